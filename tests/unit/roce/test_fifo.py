from __future__ import annotations

import random
from collections import deque

from chakram.roce.fifo import Fifo


def test_fifo_behaves_like_a_deque() -> None:
    rng = random.Random(1)
    fifo, expected = Fifo(), deque[int]()
    for number in range(2_000):
        # More come than go, then more go than come.
        if rng.random() < (0.7 if number < 1_000 else 0.3) or not expected:
            fifo.append(number)
            expected.append(number)
        else:
            assert fifo.first() == expected[0]
            assert fifo.take() == expected.popleft()
        assert fifo.count == len(expected)
    assert list(fifo) == list(expected)
