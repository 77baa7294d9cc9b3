"""Transfers, their numbers and their parts."""

import pytest

from chakram.core.schedule import Transfer, part_bytes


def test_a_position_does_not_send_to_itself() -> None:
    with pytest.raises(ValueError, match="step 3: position 1 sends to itself"):
        Transfer(step=3, src=1, dst=1, chunk=0)


def test_parts_differ_by_one_byte_at_most() -> None:
    assert [part_bytes(10, nparts=4, part=part) for part in range(4)] == [2, 3, 2, 3]
    assert [part_bytes(1, nparts=3, part=part) for part in range(3)] == [0, 0, 1]
