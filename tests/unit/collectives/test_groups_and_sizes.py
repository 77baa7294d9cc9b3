"""Process groups and sizes."""

from __future__ import annotations

from array import array

import pytest

from chakram.collectives.groups import WORLD, ProcessGroup, ranks_text, world_group
from chakram.collectives.ops import CollectiveOp, buffer_bytes, nccl_size_bytes
from chakram.records.row_layout import (
    FLOW_FIELDS,
    ITERATION_FIELDS,
    SHARE_FIELDS,
    RecordRows,
)


def test_a_group_keeps_the_order_of_its_ranks() -> None:
    group = ProcessGroup(name="g", ranks=(4, 0, 2))
    assert [group.position(rank) for rank in (4, 0, 2)] == [0, 1, 2]
    with pytest.raises(ValueError, match="rank 3 is not in process group 'g'"):
        group.position(3)


@pytest.mark.parametrize(
    ("ranks", "wanted"),
    [((), "has no ranks"), ((1, 1), "names a rank twice"), ((0, -1), "negative rank")],
)
def test_an_impossible_group_is_refused(ranks: tuple[int, ...], wanted: str) -> None:
    with pytest.raises(ValueError, match=wanted):
        ProcessGroup(name="g", ranks=ranks)


def test_the_world_is_all_ranks() -> None:
    assert world_group(3) == ProcessGroup(name=WORLD, ranks=(0, 1, 2))


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ((), ""),
        ((3,), "3"),
        ((0, 1), "0, 1"),
        (tuple(range(1024)), "0-1023"),
        ((0, 4, 8, 12), "0, 4, 8, 12"),
        (tuple(range(0, 32, 4)), "0, 4, ... 28"),
        ((0, 1, 2, 8, 9, 10), "0-2, 8-10"),
        ((5, 3, 1, 0, 7, 9), "5, 3, 1, 0 and 2 more"),
    ],
)
def test_ranks_are_written_as_ranges(ranks: tuple[int, ...], text: str) -> None:
    assert ranks_text(ranks) == text


@pytest.mark.parametrize("op", CollectiveOp)
def test_gathered_size_is_the_sum_of_all_shards(op: CollectiveOp) -> None:
    wanted = 40 if op in {CollectiveOp.ALL_GATHER, CollectiveOp.GATHER} else 10
    assert nccl_size_bytes(op, input_bytes=10, nranks=4) == wanted
    assert buffer_bytes(op, input_bytes=10, nranks=4) == wanted


def test_rows_are_counted_joined_and_selected() -> None:
    rows = RecordRows()
    rows.flows.extend(range(2 * len(FLOW_FIELDS)))
    other = RecordRows(
        shares=array("q", range(len(SHARE_FIELDS))),
        iterations=array("q", range(len(ITERATION_FIELDS))),
    )
    rows.extend(other)
    assert len(rows) == 4
    taken = rows.take()
    assert (len(taken), len(rows)) == (4, 0)
    assert taken.shares == other.shares
