"""Splits of uneven all-to-alls in files."""

from __future__ import annotations

from typing import Any

import pytest

from chakram.collectives.split_sizes import Splits
from chakram.foundation.errors import TraceError
from tests.trace_bytes import collective, metadata, read


def splits_of(*, bytes_per_element: int | None = None, **fields: Any) -> Splits | None:
    record = collective(1, **{"comm_type": 6, "comm_size": 6, **fields})
    made = read(metadata(), record, bytes_per_element=bytes_per_element)
    return made.graph.splits(0)


def test_splits_are_the_sizes_that_a_rank_sends_and_receives() -> None:
    splits = splits_of(in_split_sizes=(1, 2, 3), out_split_sizes=(0, 2, 9))
    assert splits == Splits((1, 2, 3), (0, 2, 9))


def test_splits_have_the_unit_of_sizes() -> None:
    splits = splits_of(
        bytes_per_element=2, in_split_sizes=(6, 0), out_split_sizes=(1, 2)
    )
    assert splits == Splits((12, 0), (2, 4))


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"in_split_sizes": (), "out_split_sizes": ()},
        {"comm_type": 0, "in_split_sizes": (1, 2), "out_split_sizes": (3,)},
    ],
)
def test_parts_are_equal_without_splits(fields: dict[str, Any]) -> None:
    assert splits_of(**fields) is None


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        (
            {"in_split_sizes": (6, 0)},
            "in_split_sizes has 2 parts, but out_split_sizes has 0",
        ),
        (
            {"in_split_sizes": (6, 0), "out_split_sizes": (1, 2, 3)},
            "has 2 parts, but out_split_sizes has 3",
        ),
        (
            {"in_split_sizes": (6, 1), "out_split_sizes": (1, 2)},
            "adds up to 7 bytes, but comm_size is 6",
        ),
        (
            {"in_split_sizes": (7, -1), "out_split_sizes": (1, 2)},
            "in_split_sizes is -1",
        ),
        (
            {"in_split_sizes": (2**62, 2**62), "out_split_sizes": (1, 2)},
            f"adds up to {2**63} bytes, but comm_size is 6",
        ),
        (
            {"in_split_sizes": ("a", "b"), "out_split_sizes": (1, 2)},
            "in_split_sizes is 'a'",
        ),
        ({"in_split_sizes": 6, "out_split_sizes": 6}, "in_split_sizes is '6'"),
    ],
)
def test_impossible_splits_are_refused(fields: dict[str, Any], found: str) -> None:
    with pytest.raises(TraceError) as raised:
        splits_of(**fields)
    assert found in str(raised.value)


def test_a_huge_sum_is_refused() -> None:
    with pytest.raises(TraceError):
        splits_of(
            comm_size=2**63 - 1,
            in_split_sizes=(2**62, 2**62),
            out_split_sizes=(1, 2),
        )
