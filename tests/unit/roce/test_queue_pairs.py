from __future__ import annotations

import pytest

from chakram.roce.queue_pairs import QueuePairs
from tests.virtual_wire import make_queue_pair


@pytest.mark.parametrize(
    "qpns",
    [
        range(17 << 6 | 3, 400 << 6, 64),
        range(2, 300),
        # Of a table that takes low bits all would begin at one place.
        range(1 << 6, 1 << 23, 1 << 16),
    ],
)
def test_queue_pairs_are_found_by_any_numbers(qpns: range) -> None:
    pairs = QueuePairs()
    made = [make_queue_pair(qpn) for qpn in qpns]
    for each in made:
        pairs.add(each)
    assert pairs.all() == tuple(made)
    assert [pairs.find(qpn) for qpn in qpns] == made
    assert pairs.find(qpns[0] + 1) is (made[1] if qpns.step == 1 else None)
    assert pairs.find(qpns[-1] + qpns.step) is None


def test_queue_pair_numbers_are_unique_and_must_exist() -> None:
    pairs = QueuePairs()
    pairs.add(make_queue_pair(7))
    with pytest.raises(ValueError, match="queue pair 7 already exists"):
        pairs.add(make_queue_pair(7))
    with pytest.raises(KeyError):
        pairs.of(8)
    assert len(pairs.all()) == 1
