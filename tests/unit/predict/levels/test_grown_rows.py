"""Arrays of rows keep their numbers when they grow."""

from __future__ import annotations

from array import array

import pytest

from chakram.predict.levels.row_offsets import grown


@pytest.mark.parametrize("needed", [3, 1 << 20, (1 << 20) + 1])
def test_a_grown_array_keeps_its_numbers(needed: int) -> None:
    old = array("q", (7, -1))
    new = grown(old, needed)
    assert len(new) >= needed
    assert list(new[:2]) == [7, -1]
    assert not any(new[2:])
    again = grown(new, 2 * len(new))
    assert len(again) == 2 * len(new)
    assert list(again[:3]) == [7, -1, 0]
