"""Replication of one rank's trace: groups, messages, splits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chakram.chakra.lint.replay_blockers import check_trace_set
from chakram.collectives.groups import ProcessGroup
from chakram.collectives.ops import CollectiveOp
from chakram.collectives.split_sizes import Splits
from chakram.foundation.errors import TraceError
from chakram.program.lowering import LoweringOptions, lower_job
from chakram.trace.replication import (
    ALL,
    Replicas,
    Replication,
    members_of,
    replicate,
    shape_of,
)
from tests.made_graphs import Row, collective, compute, receive, send, trace


def replicas(
    *rows: Row,
    nranks: int = 8,
    rank: int = 0,
    recorded: int = 8,
    known: dict[str, tuple[int, ...]] | None = None,
    **options: object,
) -> Replicas:
    return replicate(
        trace(rank, rows),
        {
            name: ProcessGroup(name=name, ranks=ranks)
            for name, ranks in (known or {}).items()
        },
        Replication(nranks=nranks, **options),
        recorded_ranks=recorded,
    )


def members(made: Replicas, rank: int, position: int = 0) -> tuple[int, ...]:
    """Return the group of one collective of a rank."""
    return made.groups[made.graphs[rank].group(position) or "world"].ranks


def check_that_it_runs(made: Replicas) -> None:
    """Lower the job, which checks that ranks agree and that no rank waits forever."""
    lowered = lower_job("j", made.graphs, made.groups, LoweringOptions())
    assert len(lowered.programs) == len(made.graphs)


def test_replicas_are_lowered_like_separate_traces() -> None:
    made = replicas(
        compute(1, duration_ns=7),
        collective(2, after=[1], group="tp"),
        compute(3, after=[1], duration_ns=9),
        send(4, 1, after=[2, 3]),
        receive(5, 7, after=[4]),
        collective(6, after=[5], group="tp"),
        known={"tp": (0, 1)},
    )
    own = {
        rank: trace(
            rank,
            [
                compute(1, duration_ns=7),
                collective(2, after=[1], group=graph.group(1)),
                compute(3, after=[1], duration_ns=9),
                send(4, (rank + 1) % 8, after=[2, 3]),
                receive(5, (rank + 7) % 8, after=[4]),
                collective(6, after=[5], group=graph.group(1)),
            ],
        )
        for rank, graph in made.graphs.items()
    }
    options = LoweringOptions()
    assert (
        lower_job("j", made.graphs, made.groups, options).programs
        == lower_job("j", own, made.groups, options).programs
    )


@pytest.mark.parametrize(
    ("ranks", "shape"),
    [
        ((5,), ()),
        ((0, 1, 2), ((1, 3),)),
        ((2, 6, 10), ((4, 3),)),
        ((0, 1, 4, 5), ((1, 2), (4, 2))),
        ((0, 2, 8, 10, 16, 18), ((2, 2), (8, 3))),
        ((0, 1, 3), None),
        ((0, 1, 4, 6), None),
    ],
)
def test_the_shape_of_a_group(ranks: tuple[int, ...], shape: object) -> None:
    assert shape_of(ranks) == shape


@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    data=st.data(),
)
def test_groups_of_one_shape_cut_the_job_into_equal_parts(
    sizes: list[int], data: st.DataObject
) -> None:
    strides = [1]
    for size in sizes:
        strides.append(strides[-1] * size)
    chosen = data.draw(st.sets(st.integers(0, len(sizes) - 1)))
    shape = tuple((strides[at], sizes[at]) for at in sorted(chosen) if sizes[at] > 1)
    cut = {tuple(members_of(shape, rank)) for rank in range(strides[-1])}
    assert sorted(rank for group in cut for rank in group) == list(range(strides[-1]))
    for group in cut:
        # Neighboring dimensions may be seen as one.
        assert members_of(shape_of(group) or (), group[0]) == list(group)


def test_groups_have_the_pattern_of_the_recorded_one() -> None:
    made = replicas(collective(1, group="7"), known={"7": (1, 5)}, rank=1, nranks=16)
    assert members(made, 0) == (0, 4)
    assert members(made, 13) == (9, 13)
    check_that_it_runs(made)


def test_groups_keep_the_order_of_the_recorded_one() -> None:
    row = collective(1, CollectiveOp.BROADCAST, group="x", root=0)
    made = replicas(row, known={"x": (4, 0, 2, 6)}, nranks=16)
    assert members(made, 0) == (4, 0, 2, 6)
    assert members(made, 11) == (13, 9, 11, 15)
    check_that_it_runs(made)
    whole = replicas(row, known={"x": (1, 0, 3, 2)}, nranks=4, recorded=4)
    assert members(whole, 3) == (1, 0, 3, 2)
    larger = replicas(row, known={"x": (1, 0, 3, 2)}, nranks=8, recorded=4)
    assert members(larger, 3) == tuple(range(8))


def test_a_group_of_all_recorded_ranks_becomes_all_ranks() -> None:
    made = replicas(collective(1, group="7"), known={"7": tuple(range(8))}, nranks=64)
    assert members(made, 63) == tuple(range(64))
    check_that_it_runs(made)


def test_nodes_without_a_group_belong_to_all_ranks() -> None:
    made = replicas(collective(1), collective(2, group="0", after=[1]), nranks=3)
    assert members(made, 2, 0) == members(made, 2, 1) == (0, 1, 2)
    check_that_it_runs(made)


def test_dimensions_define_groups() -> None:
    rows = [
        collective(number, group=name)
        for number, name in enumerate(("tp", "a", "b", "c"), start=1)
    ]
    made = replicas(
        *rows,
        nranks=24,
        dimensions={"tp": 2, "cp": 3, "dp": 4},
        groups={"a": ("cp",), "b": ("dp", "tp"), "c": (ALL,)},
        recorded=1,
    )
    assert members(made, 9, 0) == (8, 9)
    assert members(made, 9, 1) == (7, 9, 11)
    assert members(made, 9, 2) == (2, 3, 8, 9, 14, 15, 20, 21)
    assert members(made, 9, 3) == tuple(range(24))
    check_that_it_runs(made)
    assert made.notes == (
        "REPLICATED: all 24 ranks do the same as the trace of rank 0; the operations "
        "of the other ranks are unknown (tp: 2 ranks 1 apart; a: 3 ranks 2 apart; b: 2 "
        "ranks 1 apart x 4 ranks 6 apart; c: all ranks)",
    )


def test_messages_keep_the_distance_of_the_recorded_rank() -> None:
    made = replicas(
        send(1, 3, size=9, tag=4),
        receive(2, 0, size=9, tag=4),
        rank=1,
        nranks=6,
        recorded=4,
    )
    # +2, and from the rank one before: that is not the mirror image of +2.
    nodes = [made.graphs[5].node(position) for position in range(2)]
    assert [(node.peer, node.tag) for node in nodes] == [(1, 4), (3, 4)]
    check_that_it_runs(made)


def test_groups_that_only_messages_name_need_no_definition() -> None:
    rows = [{**send(1, 3), "group": "pp"}, {**receive(2, 5), "group": "pp"}]
    made = replicas(*rows, nranks=16)
    assert check_trace_set(made.graphs, made.groups) == []
    check_that_it_runs(made)


def test_backward_direction_of_a_pipeline_is_reversed() -> None:
    made = replicas(
        send(1, 4, size=9, tag=1),
        send(2, 4, size=7, tag=2),
        receive(3, 4, size=7, tag=3, after=[1]),
        receive(4, 4, size=9, tag=4, after=[2]),
        nranks=12,
        recorded=16,
    )
    peers = [made.graphs[5].node(position).peer for position in range(4)]
    assert peers == [9, 9, 1, 1]
    check_that_it_runs(made)


@pytest.mark.parametrize(
    ("recorded", "peer", "source", "goes_to"),
    [
        # Of 8 recorded ranks a half is the furthest; beyond it the way back is shorter.
        (8, 3, 5, 3),
        (8, 4, 4, 4),
        (8, 5, 3, 16 - 3),
        (8, 7, 1, 16 - 1),
        (7, 3, 4, 3),
        (7, 4, 3, 16 - 3),
        # Of one recorded rank nothing is known about a way round.
        (1, 5, 11, 5),
    ],
)
def test_messages_take_the_shorter_direction(
    recorded: int, peer: int, source: int, goes_to: int
) -> None:
    made = replicas(send(1, peer), receive(2, source), nranks=16, recorded=recorded)

    assert made.graphs[0].node(0).peer == goes_to


@pytest.mark.parametrize("away", [1, 3, 4, 5, 7])
def test_every_rank_of_a_ring_gives_the_same_replicas(away: int) -> None:
    made = [
        replicas(
            send(1, (rank + away) % 8, tag=5),
            receive(2, (rank - away) % 8, tag=5),
            rank=rank,
            nranks=16,
            recorded=8,
        )
        for rank in range(8)
    ]
    peers = [
        [each.graphs[3].node(position).peer for position in range(2)] for each in made
    ]
    assert peers == [peers[0]] * 8


@pytest.mark.parametrize("known", [{}, {"a": (0, 1), "b": (0, 1)}])
def test_messages_match_within_their_groups(known: dict[str, tuple[int, ...]]) -> None:
    made = replicas(
        *(collective(number, group=name) for number, name in enumerate(known, 1)),
        {**send(3, 1, size=9), "group": "a"},
        {**send(4, 1, size=7, after=[3]), "group": "b"},
        {**receive(5, 7, size=7), "group": "b"},
        {**receive(6, 7, size=9, after=[5]), "group": "a"},
        known=known,
    )
    check_that_it_runs(made)


def test_messages_of_one_size_are_paired_within_their_groups() -> None:
    made = replicas(
        {**send(1, 4), "group": "a"},
        {**send(2, 8), "group": "b"},
        {**receive(3, 8, after=[1]), "group": "b"},
        {**receive(4, 4, after=[2]), "group": "a"},
        nranks=24,
        recorded=24,
    )
    peers = [made.graphs[0].node(position).peer for position in range(4)]
    assert peers == [4, 8, 16, 20]
    check_that_it_runs(made)


def test_messages_without_a_peer_go_to_the_configured_rank() -> None:
    rows = [send(1, None, size=5), receive(2, None, size=5)]
    made = replicas(*rows, peer_offset=-1)
    assert [made.graphs[0].node(at).peer for at in range(2)] == [7, 1]
    check_that_it_runs(made)
    with pytest.raises(TraceError, match=r"trace\.peer_offset"):
        replicas(*rows)


def test_uneven_all_to_all_is_rotated() -> None:
    row = collective(1, CollectiveOp.ALL_TO_ALL_V, size=60)
    row["splits"] = Splits((10, 20, 30), (10, 30, 20))
    made = replicas(row, nranks=3, recorded=3)
    rows = [made.graphs[rank].splits(0) for rank in range(3)]
    assert rows == [
        Splits((10, 20, 30), (10, 30, 20)),
        Splits((30, 10, 20), (20, 10, 30)),
        Splits((20, 30, 10), (30, 20, 10)),
    ]
    check_that_it_runs(made)
    assert len(made.notes) == 1
    larger = replicas(row, nranks=6, recorded=3)
    assert larger.graphs[4].splits(0) == Splits((10,) * 6, (10,) * 6)
    assert larger.notes[1].startswith("REPLICATED: 1 uneven all-to-alls have even")


@pytest.mark.parametrize(
    ("rows", "options", "text"),
    [
        ([collective(1, group="x")], {}, "is not defined"),
        (
            [collective(1, group="x")],
            {"known": {"x": (1, 2)}},
            "does not have rank 0 (name the rank that recorded the trace: trace.rank; ",
        ),
        (
            [collective(1, group="x")],
            {"known": {"x": (0, 1, 3)}},
            "has ranks that are not evenly spaced: [0, 1, 3]",
        ),
        (
            [collective(1, group="x")],
            {"known": {"x": (0, 2, 4)}, "nranks": 8},
            "has 3 ranks with stride 2, which do not divide 8 ranks",
        ),
        ([send(1, 3), receive(2, 3, size=1)], {}, "receives 1 bytes"),
        ([send(1, 3)], {}, "sends 64 bytes, but the rank receives no other"),
        (
            [send(1, 3), receive(2, 3)],
            {"nranks": 3},
            "would be a message of each of 3 ranks to itself",
        ),
    ],
)
def test_trace_that_cannot_be_replicated_is_refused(
    rows: list[Row], options: dict, text: str
) -> None:
    with pytest.raises(TraceError) as error:
        replicas(*rows, **options)
    assert text in str(error.value)


def test_replicas_share_equal_data() -> None:
    made = replicas(
        *(compute(number, duration_ns=number) for number in range(1, 2_000)),
        nranks=2_000,
    )
    assert made.graphs[1_999].rank == 1_999
    assert made.graphs[1_999].node(7).duration_ns == 8
