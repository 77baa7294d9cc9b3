"""A job as a list of messages."""

from __future__ import annotations

import csv
from typing import Any

from chakram.chakra.write.message_list import P2P_COLUMNS, p2p_csv
from chakram.collectives.groups import WORLD, ProcessGroup, world_group
from chakram.collectives.ops import CollectiveOp
from chakram.trace.builder import TraceGraphBuilder
from chakram.trace.graph import TraceGraph
from chakram.trace.node import NodeKind


def graph(rank: int, *nodes: dict[str, Any]) -> TraceGraph:
    builder = TraceGraphBuilder(rank=rank, source="made")
    for number, columns in enumerate(nodes):
        builder.add(node_id=number, name=f"n{number}", **columns)
    return builder.build()


def collective(op: CollectiveOp, size: int, **columns: Any) -> dict[str, Any]:
    return {"kind": NodeKind.COLLECTIVE, "op": op, "comm_bytes": size, **columns}


def rows(
    graphs: dict[int, TraceGraph], *, groups: Any = None, **options: Any
) -> list[dict[str, str]]:
    groups = groups or {WORLD: world_group(len(graphs))}
    text = b"".join(p2p_csv(graphs, groups, **options)).decode()
    return list(csv.DictReader(text.splitlines()))


def test_all_to_all_is_one_message_to_each_other_rank() -> None:
    node = collective(CollectiveOp.ALL_TO_ALL, 300)
    got = rows({rank: graph(rank, node) for rank in range(3)})
    assert [(row["rank"], row["peer"], row["bytes"]) for row in got] == [
        *(("0", "1", "100"), ("0", "2", "100")),
        *(("1", "2", "100"), ("1", "0", "100")),
        *(("2", "0", "100"), ("2", "1", "100")),
    ]
    assert tuple(got[0]) == P2P_COLUMNS
    assert got[0]["collective"] == "all_to_all"
    assert (got[0]["group"], got[0]["k"], got[0]["needs"]) == (WORLD, "0", "")


def test_ring_forwards_earlier_arrivals() -> None:
    node = collective(CollectiveOp.ALL_GATHER, 10, group="a")
    got = rows(
        {rank: graph(rank, node) for rank in range(3)},
        groups={"a": ProcessGroup(name="a", ranks=(2, 0, 1))},
        algorithms={CollectiveOp.ALL_GATHER: "ring"},
    )
    # Ranks, not positions; rank 0 sends to 1 and gets from 2.
    of_0 = [row for row in got if row["rank"] == "0"]
    assert [(row["peer"], row["step"], row["needs"]) for row in of_0] == [
        ("1", "0", ""),
        ("1", "1", "2:0:0"),
    ]


def test_every_dependency_names_a_message_of_the_list() -> None:
    node = collective(CollectiveOp.ALL_REDUCE, 4096)
    got = rows(
        {rank: graph(rank, node) for rank in range(5)},
        algorithms={CollectiveOp.ALL_REDUCE: "ring(channels=2)"},
    )
    there = {(row["rank"], row["peer"], row["channel"], row["message"]) for row in got}
    assert len(there) == len(got)
    for row in got:
        for need in row["needs"].split():
            source, channel, message = need.split(":")
            assert (source, row["rank"], channel, message) in there


def test_computation_forwards_its_dependencies() -> None:
    reduce = collective(CollectiveOp.ALL_REDUCE, 8)
    compute = {"kind": NodeKind.COMPUTE, "duration_ns": 5}
    got = rows(
        {
            rank: graph(
                rank,
                reduce,
                {**compute, "dependencies": [0]},
                {**compute, "dependencies": [1]},
                {**reduce, "dependencies": [2]},
            )
            for rank in range(2)
        }
    )
    first, second = got[0], got[-1]
    assert (first["k"], first["after"]) == ("0", "")
    assert (second["k"], second["after"]) == ("1", first["operation"])
    assert (second["node"], second["name"]) == ("3", "n3")


def test_list_includes_trace_messages_and_repeats_iterations() -> None:
    send = {"kind": NodeKind.SEND, "peer": 1, "comm_bytes": 7}
    receive = {"kind": NodeKind.RECEIVE, "peer": 0, "comm_bytes": 7}
    got = rows({0: graph(0, send), 1: graph(1, receive)}, iterations=3)
    assert [row["iteration"] for row in got] == ["0", "1", "2"]
    assert got[0]["collective"] == "send_recv"
    assert (got[0]["rank"], got[0]["peer"], got[0]["bytes"]) == ("0", "1", "7")
