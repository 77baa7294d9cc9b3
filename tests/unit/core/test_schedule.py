"""Transfers, their numbers and their parts."""

import pytest

from chakram.core.algorithms import algorithm
from chakram.core.collectives import CollectiveOp
from chakram.core.schedule import Transfer, part_bytes, rank_schedule


def test_a_position_does_not_send_to_itself() -> None:
    with pytest.raises(ValueError, match="step 3: position 1 sends to itself"):
        Transfer(step=3, src=1, dst=1, chunk=0)


def test_parts_differ_by_one_byte_at_most() -> None:
    assert [part_bytes(10, nparts=4, part=part) for part in range(4)] == [2, 3, 2, 3]
    assert [part_bytes(1, nparts=3, part=part) for part in range(3)] == [0, 0, 1]


def test_a_position_begins_with_whom_the_algorithm_names_first() -> None:
    direct = algorithm(CollectiveOp.ALL_TO_ALL, "direct")
    begins_with = [
        rank_schedule(direct, position=position, nranks=4).sends[0].peer
        for position in range(4)
    ]
    # If all began with position 0, its port would be late and the others idle.
    assert begins_with == [1, 2, 3, 0]
