"""Replayable sets that mislead, and sets that must cause no warning."""

from __future__ import annotations

import pytest

from chakram.chakra.lint import traffic_warnings
from chakram.chakra.lint.computation_warnings import LintWarningKind, check_computation
from chakram.chakra.lint.traffic_warnings import (
    DAY_BYTES,
    LARGE_BYTES,
    check_traffic,
    summarize_warnings,
)
from chakram.chakra.trace_warning import TraceWarning
from chakram.collectives.groups import ProcessGroup, world_group
from chakram.collectives.ops import CollectiveOp
from chakram.collectives.split_sizes import Splits
from tests.made_graphs import Row, collective, compute, job, label, receive, send

AG, BARRIER, BROADCAST = (
    CollectiveOp.ALL_GATHER,
    CollectiveOp.BARRIER,
    CollectiveOp.BROADCAST,
)
A2AV = CollectiveOp.ALL_TO_ALL_V


def of_computation(*ranks: list[Row]) -> list[TraceWarning]:
    return check_computation(job(*ranks))


def of_traffic(
    *ranks: list[Row], recorded: bool = False, **members: tuple[int, ...]
) -> list[TraceWarning]:
    groups = {
        name: ProcessGroup(name=name, ranks=ranks) for name, ranks in members.items()
    }
    groups["world"] = world_group(len(ranks))
    return check_traffic(job(*ranks), groups, recorded=recorded)


def kinds(warnings: list[TraceWarning]) -> list[LintWarningKind]:
    return [warning.kind for warning in warnings]


# What waits


def test_collectives_without_waiting_computation_cause_a_warning() -> None:
    rank = [
        compute(1, duration_ns=5),
        collective(2, AG, after=[1]),
        collective(3, after=[1, 2]),
        compute(4, after=[1], duration_ns=6),
    ]
    (warning,) = of_computation(rank, rank)
    assert (warning.kind, warning.rank, warning.count) == (
        LintWarningKind.NOTHING_WAITS,
        0,
        4,
    )
    assert warning.where == "t.0.et: offset 0: rank 0 node 2 'all_gather-2'"


def test_one_waiting_computation_prevents_the_warning() -> None:
    rank = [collective(1, AG), label(2, after=[1]), compute(3, num_ops=1)]
    waits = [*rank[:2], compute(3, after=[2], num_ops=1)]
    assert of_computation(rank, waits) == []
    assert kinds(of_computation(rank, rank)) == [LintWarningKind.NOTHING_WAITS]


@pytest.mark.parametrize(
    "rank",
    [
        # A step of data parallelism ends with its gradients.
        [compute(1, num_ops=1), collective(2, after=[1])],
        [compute(1, num_ops=1), send(2, 1, after=[1]), collective(3, BARRIER, size=0)],
        [collective(1, AG)],
        [compute(1, num_ops=1)],
    ],
)
def test_sets_without_any_dependency_are_accepted(rank: list[Row]) -> None:
    assert of_computation(rank, rank) == []


# What computation takes


def test_computation_without_cost_causes_a_warning() -> None:
    rank = [compute(1), collective(2, after=[1]), compute(3, after=[2])]
    (warning,) = of_computation(rank, rank)
    assert (warning.kind, warning.count) == (LintWarningKind.NO_COSTS, 4)
    for cost in ("duration_ns", "num_ops", "tensor_bytes"):
        costly = [compute(1, **{cost: 7}), collective(2), compute(3, after=[2])]
        assert of_computation(rank, costly) == []
    assert of_computation([compute(1)]) == []


def test_mostly_missing_durations_cause_a_warning() -> None:
    def rank(stated: int, unstated: int, **more: int) -> list[Row]:
        rows = [compute(k, duration_ns=k + 1) for k in range(stated)]
        rows += [compute(100 + k, **more) for k in range(unstated)]
        return [*rows, collective(200)]

    assert of_computation(rank(5, 5), rank(5, 0)) == []
    (warning,) = of_computation(rank(5, 5), rank(5, 6))
    assert (warning.kind, warning.rank, warning.count) == (
        LintWarningKind.PARTIAL_DURATIONS,
        1,
        6,
    )
    assert "node 100" in warning.where
    assert of_computation(rank(5, 6, num_ops=1)) == []


def test_unmeasured_durations_cause_a_warning() -> None:
    def rank(count: int, duration_ns: int, last_ns: int) -> list[Row]:
        rows = [compute(k, duration_ns=duration_ns) for k in range(count - 1)]
        return [*rows, compute(count, duration_ns=last_ns), collective(200)]

    (warning,) = of_computation(rank(16, 5000, 5000), rank(3, 5000, 5000))
    assert (warning.kind, warning.count) == (LintWarningKind.EQUAL_DURATIONS, 19)
    assert of_computation(rank(15, 5000, 5000)) == []
    assert of_computation(rank(16, 5000, 5001)) == []
    assert of_computation(rank(16, 1000, 1000)) == []


def test_equal_durations_are_those_of_computations_that_state_one() -> None:
    rows = [compute(k, duration_ns=5000) for k in range(1, 17)]
    (warning,) = of_computation([compute(100), *rows, collective(200)])
    assert (warning.kind, warning.count) == (LintWarningKind.EQUAL_DURATIONS, 16)
    assert "node 1 " in warning.where
    assert "like all computations of the set that state a duration" in warning.found


def test_starts_before_their_dependencies_cause_a_warning() -> None:
    rank = [
        collective(1, start_ns=9),
        collective(2, start_ns=9, after=[1]),
        collective(3, start_ns=8, after=[1, 2]),
        collective(4, after=[3]),
    ]
    (warning,) = of_computation(rank)
    assert (warning.kind, warning.rank, warning.count) == (
        LintWarningKind.TIME_BACKWARDS,
        0,
        1,
    )
    assert "started before node 1 'all_reduce-1'" in warning.found


# What is sent


def test_buffers_larger_than_any_gpu_cause_a_warning() -> None:
    rows = [collective(1, size=LARGE_BYTES), send(2, 1, size=LARGE_BYTES)]
    (warning,) = of_traffic(rows, [])
    assert (warning.kind, warning.rank, warning.count) == (
        LintWarningKind.IMPLAUSIBLE_SIZE,
        0,
        2,
    )
    assert of_traffic([collective(1, size=LARGE_BYTES - 1)], []) == []
    # What an all-gather fills is larger than what each rank puts in.
    (warning,) = of_traffic([collective(1, AG, size=LARGE_BYTES // 2)], [])
    assert warning.kind is LintWarningKind.IMPLAUSIBLE_SIZE
    assert warning.found.startswith("is all_gather of 64GiB (32GiB of each rank):")


def test_more_than_a_day_of_traffic_causes_a_warning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert DAY_BYTES // LARGE_BYTES > 60_000
    monkeypatch.setattr(traffic_warnings, "DAY_BYTES", 3 * 2**30)
    rows = [collective(k, size=2**30) for k in range(3)]
    (warning,) = of_traffic(rows, [])
    assert (warning.kind, warning.where) == (LintWarningKind.IMPLAUSIBLE_SIZE, "rank 0")
    assert of_traffic(rows[1:], []) == []


def test_collectives_without_bytes_cause_a_warning() -> None:
    rows = [collective(1, size=0), collective(2), collective(3, AG, size=0)]
    (warning,) = of_traffic([collective(1)], rows)
    assert (warning.kind, warning.rank, warning.count) == (
        LintWarningKind.EMPTY_COLLECTIVE,
        1,
        2,
    )
    assert of_traffic([collective(1, BARRIER, size=0)], []) == []
    splits = Splits((0, 0), (0, 5))
    assert of_traffic([collective(1, A2AV, size=0, splits=splits)], []) == []


def test_empty_messages_cause_a_warning_if_a_rank_has_no_others() -> None:
    empty = [send(1, 1, size=0), receive(2, 1, size=0)]
    (warning,) = of_traffic(empty, [*empty, send(3, 0)])
    assert (warning.kind, warning.rank, warning.count) == (
        LintWarningKind.EMPTY_COLLECTIVE,
        0,
        2,
    )


def test_missing_roots_cause_a_warning() -> None:
    bare = [collective(k, BROADCAST, group="g") for k in range(3)]
    (warning,) = of_traffic(bare, bare[:1], g=(1, 0))[1:]
    assert (warning.kind, warning.count) == (LintWarningKind.ROOTLESS, 3)
    assert "rank 1 is the root of all" in warning.found
    assert of_traffic(bare[:1], bare[:1], g=(0, 1)) == []
    stated = [collective(k, BROADCAST, root=k % 2) for k in range(3)]
    assert of_traffic(stated, stated) == []


def test_ranks_without_peers_cause_a_warning() -> None:
    rows = [collective(1), collective(2)]
    assert kinds(of_traffic(rows, recorded=True)) == [LintWarningKind.LONE_RANK]
    assert of_traffic(rows) == []
    (warning,) = of_traffic([collective(1, group="g")], [], g=(0,))
    assert (warning.kind, warning.where) == (
        LintWarningKind.LONE_RANK,
        "process group 'g'",
    )
    # Files of further ranks would not help: the set has them all.
    (sentence,) = summarize_warnings([warning])
    assert "(correct the group, unless it had one rank in the job, too)" in sentence


def test_collectives_without_a_group_cause_a_warning() -> None:
    rows = [collective(1)]
    (warning,) = of_traffic(rows, rows, rows, g=(0, 2), h=(1,), i=(0, 1, 2))
    assert warning.kind is LintWarningKind.UNUSED_GROUPS
    assert warning.found.startswith("'g' (0, 2) are defined, but every collective uses")
    used = [collective(2, group="h")]
    assert of_traffic(rows, [*rows, *used], rows, g=(0, 2), h=(0, 1)) == []
    # Groups for one's own sake, as STAGE writes them, are no warning.
    assert of_traffic(rows, rows, a=(0,), b=(1,)) == []


def test_text_traces_without_groups_cause_a_warning() -> None:
    def rows(*names: str) -> list[Row]:
        return [
            {**collective(k), "name": f"COMM_COLL_NODE_{name}"}
            for k, name in enumerate(names)
        ]

    model = ("mlp1_ALLGATHER", "mlp1_IG_COMM__ALLREDUCE")
    hybrid = rows(*model, "mlp1_ALLREDUCE", "mlp2_ALLREDUCE")
    (warning,) = of_traffic(hybrid, hybrid)
    assert (warning.kind, warning.count) == (LintWarningKind.LOST_GROUPS, 1)
    assert "node 0" in warning.where
    # Model parallel, however often it is run, or data parallel alone.
    for names in (model, model * 3, ("mlp1_ALLREDUCE",) * 2, ("e_ALLTOALL", "m_SUM")):
        assert of_traffic(rows(*names), rows(*names)) == []
    assert of_traffic(hybrid) == []


def test_groups_in_descending_order_cause_a_warning() -> None:
    rows = [collective(1, group="g")]
    (warning,) = of_traffic(rows, rows, g=(1, 0), h=(1, 0))
    assert (warning.kind, warning.rank) == (LintWarningKind.UNSORTED_GROUP, None)
    assert warning.where == "process group 'g'"


# Which message is which


def test_unordered_messages_of_one_tag_cause_a_warning() -> None:
    (warning,) = of_traffic(
        [send(1, 1, size=5), send(2, 1, size=6)],
        [receive(1, 0, size=5), receive(2, 0, size=6, after=[1])],
    )
    assert (warning.kind, warning.rank, warning.count) == (
        LintWarningKind.AMBIGUOUS_MESSAGES,
        0,
        1,
    )
    assert "node 2" in warning.where
    assert "goes to rank 1 with tag 0, as does node 1" in warning.found


@pytest.mark.parametrize(
    "rows",
    [
        [send(1, 1, size=5), send(2, 1, size=5)],
        [send(1, 1, size=5, tag=1), send(2, 1, size=6, tag=2)],
        [send(1, 1, size=5), {**send(2, 1, size=6), "group": "b"}],
        [send(1, 1, size=5), send(2, 2, size=6)],
        [send(1, 1, size=5), label(2, after=[1]), send(3, 1, size=6, after=[2])],
    ],
)
def test_distinguishable_messages_cause_no_warning(rows: list[Row]) -> None:
    assert of_traffic(rows, [], []) == []


def test_search_for_an_order_is_bounded() -> None:
    # A ladder has 2**n ways down, and no message is at their end.
    rungs = [
        label(
            10 * k + side, after=[10 * (k - 1) + each for each in (0, 1)] if k else []
        )
        for k in range(400)
        for side in (0, 1)
    ]
    sends = [send(5000 + k, 1, size=k, after=[3990]) for k in range(1500)]
    (warning,) = of_traffic([*rungs, *sends], [])
    assert warning.count == 1499
