"""A trace set in numbers."""

from __future__ import annotations

from chakram.chakra.summary import summarize
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


def test_nodes_and_times_are_counted_by_rank() -> None:
    got = summarize({0: graph(0), 1: graph(1)}, GROUPS)
    assert got.nodes == 11
    assert got.nodes_by_kind == {"compute": 2, "collective": 8, "send": 1}
    assert [rank.nodes for rank in got.per_rank] == [5, 6]
    assert got.per_rank[1].computation == {
        "gemm": 0,
        "attention": 0,
        "elementwise": 0,
        "other": 1,
    }
    assert got.per_rank[1].communication == {"p2p": 1, "all_reduce": 4}
    assert [rank.duration_ns for rank in got.per_rank] == [5, 6]
    assert [rank.num_ops for rank in got.per_rank] == [3, 3]
    assert got.durations["compute"].cdf == ((5, 1), (6, 2))
    assert got.without_duration == {"collective": 8, "send": 1}


def test_what_stage_says_of_operations_counts() -> None:
    got = summarize({0: graph(0)}, GROUPS, op_types={0: ["M"] + [""] * 4})
    assert got.per_rank[0].computation["gemm"] == 1


def test_communication_is_put_together_by_size_of_group() -> None:
    got = summarize({0: graph(0), 1: graph(1)}, GROUPS)
    rows = [
        ("send", None, 0, 1, 100, 100, 100, 100, ()),
        # 7 bytes: each of two ranks sends the other its whole buffer.
        ("all_reduce", 2, 1, 2, 7, 7, 14, 14, ("recursive_doubling",)),
        ("all_reduce", 1, 2, 4, 5, 6, 22, 0, ("recursive_doubling",)),
        ("all_reduce", None, 1, 2, 1, 1, 2, 0, ()),
    ]
    assert [
        (
            *(row.what, row.group_ranks, row.groups, row.nodes, row.min_bytes),
            *(row.max_bytes, row.total_bytes, row.sent_bytes, row.algorithms),
        )
        for row in got.communication
    ] == rows
    assert got.traffic.unplaced == 2
    assert got.messages is not None
    assert got.messages.cdf == ((7, 2), (100, 3))


def test_groups_are_listed_by_number_and_all_ranks_last() -> None:
    got = summarize({0: graph(0), 1: graph(1)}, GROUPS)
    assert [group.name for group in got.groups] == ["1", "2", "unknown", WORLD]
    assert [group.ranks for group in got.groups] == [(0,), (1,), None, (0, 1)]
    assert got.groups[0].nodes == {"all_reduce": 2}


def test_degrees_count_every_node_at_both_ends() -> None:
    builder = TraceGraphBuilder(rank=0, source="made")
    for node_id, dependencies in enumerate([(), (0,), (0, 1)]):
        builder.add(
            node_id=node_id,
            kind=NodeKind.COMPUTE,
            name="c",
            dependencies=dependencies,
        )
    got = summarize({0: builder.build()}, {WORLD: world_group(1)}).dependencies
    assert (got.edges, got.roots, got.leaves) == (3, 1, 1)
    assert got.parents is not None
    assert got.children is not None
    assert got.parents.cdf == got.children.cdf == ((0, 1), (1, 2), (2, 3))
