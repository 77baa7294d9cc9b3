"""A trace set in numbers."""

from __future__ import annotations

from chakram.chakra.summary import CommunicationRow, summarize
from chakram.core.collectives import CollectiveOp
from chakram.core.groups import WORLD, ProcessGroup, world_group
from chakram.core.trace import NodeKind, TraceGraph, TraceGraphBuilder

GROUPS = {
    WORLD: world_group(2),
    "1": ProcessGroup(name="1", ranks=(0,)),
    "2": ProcessGroup(name="2", ranks=(1,)),
}


def graph(rank: int) -> TraceGraph:
    builder = TraceGraphBuilder(rank=rank, source="made")
    builder.add(
        node_id=0, kind=NodeKind.COMPUTE, name="c", duration_ns=5 + rank, num_ops=3
    )
    for node_id, (group, size) in enumerate(
        [(None, 7), (str(rank + 1), 5), (str(rank + 1), 6), ("unknown", 1)], start=1
    ):
        builder.add(
            node_id=node_id,
            kind=NodeKind.COLLECTIVE,
            name="a",
            op=CollectiveOp.ALL_REDUCE,
            comm_bytes=size,
            group=group,
        )
    if rank:
        builder.add(
            node_id=9, kind=NodeKind.SEND, name="s", comm_bytes=100, peer=0, group="2"
        )
    return builder.build()


def test_nodes_traffic_and_times_are_summed_up() -> None:
    got = summarize({0: graph(0), 1: graph(1)}, GROUPS)
    assert (got.nodes, got.min_rank_nodes, got.max_rank_nodes) == (11, 5, 6)
    assert got.nodes_by_kind == {"compute": 2, "collective": 8, "send": 1}
    assert (got.max_rank_duration_ns, got.num_ops) == (6, 6)
    rows = [
        ("send", None, 1, 1, 100, 100, 100),
        ("all_reduce", 1, 2, 4, 5, 6, 22),
        ("all_reduce", 2, 1, 2, 7, 7, 14),
        ("all_reduce", None, 1, 2, 1, 1, 2),
    ]
    assert got.communication == tuple(
        CommunicationRow(
            what=what,
            group_ranks=group_ranks,
            groups=groups,
            nodes=nodes,
            min_bytes=smallest,
            max_bytes=largest,
            total_bytes=total,
        )
        for what, group_ranks, groups, nodes, smallest, largest, total in rows
    )
