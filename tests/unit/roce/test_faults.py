"""Random drops."""

from __future__ import annotations

import random

import pytest

from chakram.roce.faults import PacketFaults


def dropped(faults: PacketFaults, batches: list[int]) -> list[int]:
    """Return the numbers of the packets that are dropped from *batches*."""
    lost, number = [], 0
    for batch in batches:
        end = number + batch
        while number < end:
            number += faults.passing(end - number)
            if number < end:
                lost.append(number)
                number += 1
    return lost


def test_the_share_is_as_asked_for() -> None:
    faults = PacketFaults(drop_ratio=0.01, rng=random.Random(1))

    assert 900 < len(dropped(faults, [15] * 6_667)) < 1_100


def test_batches_make_no_difference() -> None:
    one = PacketFaults(drop_ratio=0.3, rng=random.Random(2))
    other = PacketFaults(drop_ratio=0.3, rng=random.Random(2))

    assert dropped(one, [1] * 600) == dropped(other, [7, 13, 100] * 5)


def test_nothing_and_everything() -> None:
    rng = random.Random(3)
    assert dropped(PacketFaults(drop_ratio=0.0, rng=rng), [50]) == []
    assert dropped(PacketFaults(drop_ratio=1.0, rng=rng), [50]) == list(range(50))


@pytest.mark.parametrize("drop_ratio", [-0.1, 1.1])
def test_a_ratio_is_a_ratio(drop_ratio: float) -> None:
    with pytest.raises(ValueError, match=r"not in 0\.\.1"):
        PacketFaults(drop_ratio=drop_ratio, rng=random.Random(4))
