"""Durations and recorded starts after lowering."""

from __future__ import annotations

from fractions import Fraction

import pytest

from chakram.collectives.ops import CollectiveOp
from chakram.foundation.errors import TraceError
from tests.made_graphs import collective, compute, label
from tests.made_plans import matrix_splits
from tests.unit.program.lowered import lowered, operations

AV = CollectiveOp.ALL_TO_ALL_V


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"compute_from": "none"}, []),
        ({"compute_from": "trace"}, [100]),
        ({"compute_from": "trace", "scale": Fraction(1, 3)}, [33]),
        ({"compute_from": "roofline", "peak_flops": 10**9}, [3000]),
        (
            {
                "compute_from": "roofline",
                "peak_flops": 10**9,
                "memory_bytes_per_s": 10**9,
                "scale": Fraction(2),
            },
            [8000, 1000],
        ),
    ],
)
def test_durations(options: dict, wanted: list[int]) -> None:
    (mine,) = operations(
        [
            compute(1, duration_ns=100, num_ops=3000, tensor_bytes=4000),
            compute(2, tensor_bytes=500),
        ],
        **options,
    )
    assert [each.duration_ns for each in mine] == wanted


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"compute_from": "none"}, ()),
        (
            {"compute_from": "trace"},
            (
                "the trace has no durations, so computation takes no time; "
                "to estimate durations, use compute.from: roofline",
            ),
        ),
        (
            {"compute_from": "roofline", "peak_flops": 1},
            (
                "the trace has neither operations nor tensor sizes, so computation "
                "takes no time; to use its durations, set compute.from: trace",
            ),
        ),
    ],
)
def test_computation_without_time_is_reported(options: dict, wanted: tuple) -> None:
    assert lowered([compute(1)], **options).warnings == wanted


def test_trace_without_computation_causes_no_warning() -> None:
    assert lowered([label(1)]).warnings == ()


# Recorded start times.


def test_recorded_starts_are_kept_where_a_policy_asks() -> None:
    rank = [
        compute(1, duration_ns=5, start_ns=1_000),
        collective(2, after=[1], start_ns=1_500),
    ]
    for first, second in operations(rank, rank):
        assert (first.start_ns, second.start_ns) == (None, None)
    for first, second in operations(rank, rank, with_starts=True):
        assert (first.start_ns, second.start_ns) == (0, 500)
        assert second.dependencies == (0,)


def test_an_uneven_collective_keeps_its_recorded_start_too() -> None:
    matrix = [[0, 3], [3, 0]]
    ranks = [
        [
            compute(1, duration_ns=5, start_ns=1_000),
            collective(
                2, AV, size=3, splits=matrix_splits(matrix, rank), start_ns=1_500
            ),
        ]
        for rank in range(2)
    ]
    for _, second in operations(*ranks, with_starts=True):
        assert (second.op, second.start_ns) == (AV, 500)


def test_start_times_replace_dependencies() -> None:
    # By ids and dependencies 2 runs before 3; by recorded times after it.
    ranks = [
        [
            compute(1, duration_ns=700, start_ns=50 + skew),
            collective(2, size=20, after=[1], start_ns=900 + skew),
            collective(3, size=30, after=[2], start_ns=250 + skew),
            compute(4, after=[3], duration_ns=10, start_ns=60 + skew),
        ]
        for skew in (0, 7_000)
    ]
    for rows in operations(*ranks, order="start_times", scale=Fraction(2)):
        assert [(row.start_ns, row.dependencies) for row in rows] == [
            (0, ()),
            (20, ()),
            (400, ()),
            (1_700, (2,)),
        ]
        assert [row.number for row in rows[2:]] == [0, 1]
        assert rows[2].input_bytes == 30


def test_trace_without_start_times_is_refused_for_recorded_starts() -> None:
    rows = [label(9), collective(1), compute(2, duration_ns=3)]
    with pytest.raises(TraceError) as error:
        lowered(rows, rows, order="start_times")
    assert str(error.value) == (
        "t.0.et: rank 0 has no recorded start times (use order: dependencies, which "
        "needs no start times)"
    )


def test_nodes_without_start_times_start_at_once_with_a_warning() -> None:
    rows = [collective(1, start_ns=10), compute(2, duration_ns=3)]
    result = lowered(rows, rows, order="start_times")
    assert result.warnings == (
        "2 nodes have no recorded start time; they start at the beginning of each "
        "iteration",
    )
