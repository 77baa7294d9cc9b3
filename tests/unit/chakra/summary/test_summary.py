"""A trace set in numbers."""

from __future__ import annotations

from collections import Counter

from chakram.chakra.summary.sizes import size_bins
from chakram.chakra.summary.summary import summarize
from chakram.chakra.summary.traffic import largest_pairs
from chakram.collectives.groups import WORLD, ProcessGroup, world_group
from chakram.collectives.ops import CollectiveOp
from chakram.collectives.split_sizes import Splits
from chakram.trace.builder import TraceGraphBuilder
from chakram.trace.graph import TraceGraph
from chakram.trace.node import NodeKind
from tests.made_graphs import collective, compute, job, label, send

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


def test_time_of_labels_is_not_counted_again() -> None:
    step = {**label(1), "name": "ProfilerStep#3", "duration_ns": 100}
    rows = [step, compute(2, duration_ns=60), compute(3, duration_ns=30)]
    got = summarize(job(rows), {WORLD: world_group(1)})
    assert got.per_rank[0].duration_ns == 90
    assert got.durations["pass"].total == 100


def test_uneven_all_to_alls_are_counted_as_in_a_run() -> None:
    splits = Splits((1, 5), (1, 5))
    rows = [
        collective(1, CollectiveOp.ALL_TO_ALL, size=6, splits=splits),
        collective(2, CollectiveOp.ALL_TO_ALL, size=6),
    ]
    got = summarize(job(rows, rows), {WORLD: world_group(2)})
    assert got.per_rank[0].communication == {
        "p2p": 0,
        "all_to_all_v": 1,
        "all_to_all": 1,
    }
    assert {row.what for row in got.communication} == {"all_to_all_v", "all_to_all"}


def test_communication_is_grouped_by_group_size() -> None:
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


def test_sizes_are_counted_by_group_and_collective() -> None:
    got = summarize({0: graph(0), 1: graph(1)}, GROUPS)
    sizes = {
        group.name: [
            (each.smallest_bytes, each.largest_bytes, each.nodes, each.total_bytes)
            for each in group.sizes["all_reduce"]
        ]
        for group in got.groups
    }
    assert sizes == {
        "1": [(5, 5, 1, 5), (6, 6, 1, 6)],
        "2": [(5, 5, 1, 5), (6, 6, 1, 6)],
        "unknown": [(1, 1, 2, 2)],
        WORLD: [(7, 7, 2, 14)],
    }
    assert [each.nodes for each in got.communication[2].sizes] == [2, 2]


def test_many_sizes_are_grouped_by_powers_of_two() -> None:
    bins = size_bins(Counter({0: 1, **dict.fromkeys(range(3, 16), 2)}))
    assert [
        (each.smallest_bytes, each.largest_bytes, each.nodes, each.total_bytes)
        for each in bins
    ] == [(0, 0, 1, 0), (3, 3, 2, 6), (4, 7, 8, 44), (8, 15, 16, 184)]
    assert len(size_bins(Counter(range(12)))) == 12
    assert size_bins(Counter()) == ()


def test_unused_groups_are_named() -> None:
    groups = {
        name: ProcessGroup(name=name, ranks=(0, 1)) for name in ("10", "9", "1", "x")
    }
    got = summarize({0: graph(0), 1: graph(1)}, {**GROUPS, **groups})
    assert got.unused_groups == ("9", "10", "x")
    messages = job([{**send(1, 1), "group": "x"}], [])
    assert summarize(messages, groups).unused_groups == ("1", "9", "10")


def test_the_largest_pairs_come_first_and_equal_ones_are_counted() -> None:
    rows = [
        [send(1, 1, size=5), send(2, 2, size=7), send(3, 3, size=5)],
        [send(1, 0, size=5)],
        [],
        [send(1, 2, size=6)],
    ]
    traffic = summarize(job(*rows), {WORLD: world_group(4)}).traffic
    largest = largest_pairs(traffic, 3)
    assert largest is not None
    assert largest.pairs == ((0, 2, 7), (3, 2, 6), (0, 1, 5))
    assert (largest.as_large, largest.all_pairs) == (2, 5)
    everything = largest_pairs(traffic, 100)
    assert everything is not None
    assert (len(everything.pairs), everything.as_large) == (5, 0)
    nothing = largest_pairs(summarize(job([], []), {}).traffic, 3)
    assert nothing is not None
    assert (nothing.pairs, nothing.as_large, nothing.all_pairs) == ((), 0, 0)
