"""Traces to programs: rows, sizes, durations, dependencies."""

from __future__ import annotations

from fractions import Fraction

import pytest

from chakram.collectives.algorithms import Rule
from chakram.collectives.ops import CollectiveOp
from chakram.foundation.errors import ConfigError, MatchingError, ScheduleError
from chakram.program.lowering import BARRIER_NAME, LoweringOptions
from chakram.program.operations import (
    CollectiveOperation,
    ComputeOperation,
    ReceiveOperation,
    SendOperation,
)
from tests.made_graphs import collective, compute, label, receive, send
from tests.unit.program.lowered import lowered, operations

AG, RS = CollectiveOp.ALL_GATHER, CollectiveOp.REDUCE_SCATTER


def test_every_row_type_is_lowered() -> None:
    first, second = operations(
        [
            collective(1, CollectiveOp.BROADCAST, size=10, root=1),
            compute(2, after=[1], duration_ns=500, stream=7),
            send(3, 1, size=6, tag=4, after=[2]),
        ],
        [
            collective(1, CollectiveOp.BROADCAST, size=10, root=1),
            receive(3, 0, tag=4, size=6),
        ],
    )
    assert first == (
        CollectiveOperation(
            node_id=1,
            name="broadcast-1",
            dependencies=(),
            group="world",
            number=0,
            op=CollectiveOp.BROADCAST,
            algorithm="tree",
            input_bytes=10,
            trace_bytes=10,
            root=1,
        ),
        ComputeOperation(
            node_id=2,
            name="compute-2",
            dependencies=(0,),
            duration_ns=500,
            stream=7,
        ),
        SendOperation(
            node_id=3,
            name="send-3",
            dependencies=(1,),
            peer=1,
            number=0,
            tag=4,
            size_bytes=6,
            trace_bytes=6,
        ),
    )
    assert second[1] == ReceiveOperation(
        node_id=3,
        name="receive-3",
        dependencies=(),
        peer=0,
        number=0,
        tag=4,
        size_bytes=6,
        trace_bytes=6,
    )


def test_programs_name_their_job_rank_and_groups() -> None:
    rows = [collective(1, group="b"), collective(2, group="a")]
    result = lowered(rows, rows, groups={"a": (0, 1), "b": (1, 0), "c": (0, 1)})
    program = result.programs[1]
    assert (program.job, program.rank) == ("j", 1)
    assert [group.name for group in program.groups] == ["a", "b"]


def test_dependencies_of_other_dependencies_are_left_out() -> None:
    chain = [
        compute(node_id, after=range(1, node_id), duration_ns=1)
        for node_id in range(1, 6)
    ]
    # That 5 waits for 2 only over 3 and 4, which 9 does not name, is not looked for.
    (mine,) = operations([*chain, compute(9, after=[1, 2, 5], duration_ns=1)])
    assert [each.dependencies for each in mine] == [(), (0,), (1,), (2,), (3,), (1, 4)]


def test_collectives_of_a_group_wait_for_one_another() -> None:
    rows = [
        collective(1),
        collective(2, group="g"),
        collective(3),
        collective(4, group="g"),
    ]
    for mine in operations(rows, rows, groups={"g": (0, 1)}):
        assert [each.dependencies for each in mine] == [(), (), (0,), (1,)]
    for mine in operations(rows, rows, groups={"g": (0, 1)}, ordering="overlap"):
        assert [each.dependencies for each in mine] == [(), (), (), ()]


def test_renumbered_group_waits_in_its_new_order() -> None:
    result = lowered(
        [collective(1, AG), collective(2, RS), send(3, 1, after=[2])],
        [receive(0, 0), collective(1, AG, after=[0]), collective(2, RS)],
    )
    assert len(result.warnings) == 1
    first = result.programs[0].operations
    assert [(each.name, each.dependencies) for each in first] == [
        ("all_gather-1", (1,)),
        ("reduce_scatter-2", ()),
        ("send-3", (1,)),
    ]


def test_empty_delays_are_replaced_by_their_dependencies() -> None:
    mine, _ = operations(
        [
            send(1, 1, tag=1),
            send(2, 1, tag=2),
            label(3, after=[1, 2]),
            compute(4, after=[3]),
            send(5, 1, tag=3, after=[4]),
        ],
        [receive(i, 0, tag=i) for i in (1, 2, 3)],
    )
    assert [(each.name, each.dependencies) for each in mine] == [
        ("send-1", ()),
        ("send-2", ()),
        ("send-5", (0, 1)),
    ]


def test_empty_delays_that_save_edges_are_kept() -> None:
    sends = range(1, 9)
    mine, _ = operations(
        [
            *(send(i, 1, tag=i) for i in (1, 2, 3, 4)),
            label(100, after=(1, 2, 3, 4)),
            *(send(i, 1, tag=i, after=[100]) for i in (5, 6, 7, 8)),
        ],
        [receive(i, 0, tag=i) for i in sends],
    )
    hub = next(each for each in mine if each.node_id == 100)
    assert hub == ComputeOperation(
        node_id=100, name="label-100", dependencies=(0, 1, 2, 3), duration_ns=0
    )
    assert sum(len(each.dependencies) for each in mine) == 8


def test_sizes_are_scaled_up_to_whole_bytes() -> None:
    rows = [collective(1, size=1000), collective(2, size=1), collective(3, size=0)]
    mine, other = operations(
        [*rows, send(4, 1, size=65)],
        [*rows, receive(4, 0, size=65)],
        size_scale=Fraction(1, 64),
    )
    assert [each.input_bytes for each in mine[:3]] == [16, 1, 0]
    assert [each.trace_bytes for each in mine[:3]] == [1000, 1, 0]
    assert (mine[3].size_bytes, mine[3].trace_bytes) == (2, 65)
    assert (other[3].size_bytes, other[3].trace_bytes) == (2, 65)


def test_a_barrier_moves_nothing_whatever_its_size() -> None:
    rows = [collective(1, CollectiveOp.BARRIER, size=99)]
    mine, _ = operations(rows, rows)
    assert (mine[0].input_bytes, mine[0].trace_bytes) == (0, 0)


def test_algorithms_are_chosen_by_operation() -> None:
    rows = [collective(1), collective(2, AG), collective(3, RS)]
    mine, _ = operations(
        rows,
        rows,
        algorithms={CollectiveOp.ALL_REDUCE: "tree", AG: "auto"},
    )
    assert [each.algorithm for each in mine] == ["tree", "bruck", "recursive_halving"]
    with pytest.raises(ScheduleError, match="no algorithm 'rign'"):
        lowered(rows, rows, algorithms={RS: "rign"})


def test_algorithms_are_chosen_by_the_size_that_the_trace_has() -> None:
    rows = [collective(1, size=1 << 20), collective(2, AG, size=32 << 10, after=[1])]
    rules = {
        CollectiveOp.ALL_REDUCE: (
            Rule(algorithm="tree", up_to_bytes=64 << 10),
            Rule(algorithm="ring(chunks=2,channels=1)"),
        ),
        # Two shards of 32 KiB are 64 KiB.
        AG: (Rule(algorithm="direct", up_to_bytes=64 << 10), Rule(algorithm="ring")),
    }
    for scale in (Fraction(1), Fraction(1, 64)):
        mine, _ = operations(rows, rows, algorithms=rules, size_scale=scale)
        assert [each.algorithm for each in mine] == ["ring(chunks=2)", "direct"]


def test_an_algorithm_that_does_not_fit_a_group_is_refused() -> None:
    rows = [collective(1)]
    with pytest.raises(ScheduleError, match="does not fit a group of 2 ranks"):
        lowered(rows, rows, algorithms={CollectiveOp.ALL_REDUCE: "ring(order=0-2-1)"})


def test_unused_rule_is_still_validated() -> None:
    rules = (Rule(algorithm="tree"), Rule(algorithm="rign"))
    with pytest.raises(ScheduleError, match="no algorithm 'rign'"):
        lowered([], [], algorithms={CollectiveOp.ALL_REDUCE: rules})


def test_collectives_of_one_rank_take_no_time_and_are_not_counted() -> None:
    mine, _ = operations(
        [
            send(1, 1, tag=1),
            collective(2, group="alone", after=[1]),
            send(3, 1, tag=2, after=[2]),
        ],
        [receive(1, 0, tag=1), receive(3, 0, tag=2)],
        groups={"alone": (0,)},
    )
    assert [(each.name, each.dependencies) for each in mine] == [
        ("send-1", ()),
        ("send-3", (0,)),
    ]


def test_unselected_operations_take_no_time_and_others_are_renumbered() -> None:
    sending = [collective(1, AG), collective(2, after=[1]), send(3, 1, after=[2])]
    receiving = [collective(1, AG), collective(2, after=[1]), receive(3, 0)]
    mine, _ = operations(
        sending, receiving, select=frozenset({CollectiveOp.ALL_REDUCE})
    )
    assert [(each.name, each.number, each.dependencies) for each in mine] == [
        ("all_reduce-2", 0, ())
    ]
    mine, _ = operations(sending, receiving, select=frozenset({CollectiveOp.SEND_RECV}))
    assert [each.name for each in mine] == ["send-3"]


def test_barrier_waits_for_all_final_operations() -> None:
    result = lowered(
        [
            collective(1),
            compute(2, duration_ns=5, after=[1]),
            compute(3, duration_ns=1),
        ],
        [collective(1)],
        sync_barrier=True,
    )
    first, second = (program.operations[-1] for program in result.programs)
    assert first == CollectiveOperation(
        node_id=None,
        name=BARRIER_NAME,
        dependencies=(1, 2),
        group="world",
        number=1,
        op=CollectiveOp.BARRIER,
        algorithm="dissemination",
        input_bytes=0,
        trace_bytes=0,
    )
    assert second.dependencies == (0,)
    assert result.programs[0].groups[0].ranks == (0, 1)


def test_a_rank_without_nodes_takes_part_in_the_barrier() -> None:
    result = lowered([send(1, 1)], [receive(1, 0)], [], sync_barrier=True)
    assert [len(program.operations) for program in result.programs] == [2, 2, 1]


def test_a_single_rank_needs_no_barrier() -> None:
    result = lowered([compute(1, duration_ns=1)], sync_barrier=True)
    assert len(result.programs[0].operations) == 1
    assert result.programs[0].groups == ()


def test_a_world_without_all_ranks_is_refused_only_for_barriers() -> None:
    row = collective(1, group="world")
    ranks = ([row], [row], [compute(1, duration_ns=1)])
    with pytest.raises(MatchingError) as caught:
        lowered(*ranks, groups={"world": (0, 1)}, sync_barrier=True)
    assert str(caught.value).startswith("process group 'world': has 2 of 3 ranks")
    assert "or use iterations.sync: free" in str(caught.value)
    assert len(lowered(*ranks, groups={"world": (0, 1)}).programs) == 3


def test_group_name_reserved_for_messages_is_refused() -> None:
    rows = [collective(1, group="p2p")]
    with pytest.raises(MatchingError, match="rename the group"):
        lowered(rows, rows, groups={"p2p": (0, 1)})


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"compute_from": "guess"}, "'guess' is not a source of durations"),
        ({"compute_from": "roofline"}, "compute.peak: is missing"),
        ({"ordering": "none"}, "'none' is not an order of collectives"),
    ],
)
def test_impossible_options_are_refused(options: dict, wanted: str) -> None:
    with pytest.raises(ConfigError, match=wanted):
        LoweringOptions(**options)


def test_groups_of_alike_ranks_may_be_in_another_order_of_names() -> None:
    names = [("a", "b"), ("d", "c"), ("e", "f")]
    ranks = [
        [collective(1, AG, group=first), collective(2, RS, group=second)]
        for first, second in names
        for _ in range(2)
    ]
    groups = {
        name: (2 * pair, 2 * pair + 1) for pair in range(3) for name in names[pair]
    }
    for rank, own in enumerate(operations(*ranks, groups=groups)):
        assert [(each.group, each.op) for each in own] == [
            (names[rank // 2][0], AG),
            (names[rank // 2][1], RS),
        ]
