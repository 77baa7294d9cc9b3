from __future__ import annotations

import random

from chakram.replay.integer_map import NumberTable


def test_integer_map_behaves_like_a_dictionary() -> None:
    rng = random.Random(1)
    table = NumberTable()
    expected: dict[int, int] = {}
    for value in range(3_000):
        key = rng.randrange(100) << 16 | rng.randrange(100)
        if key not in expected:
            table.put(key, value)
            expected[key] = value
        other = rng.randrange(1 << 40)
        assert table.find(other) == expected.get(other, -1)
    assert {key: table.find(key) for key in expected} == expected


def test_keys_may_be_as_large_as_queue_pairs_and_messages_make_them() -> None:
    table = NumberTable()
    keys = [0, 1, (1 << 24) - 1 << 16 | 0xFFFF, (1 << 24) - 1 << 16]
    for value, key in enumerate(keys):
        table.put(key, value)
    assert [table.find(key) for key in keys] == [0, 1, 2, 3]
    assert table.find(2) == -1
