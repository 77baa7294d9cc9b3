"""Streams of records are merged in ascending order."""

from __future__ import annotations

from random import Random

import pytest

from chakram.predict.levels.record_streams import RecordStreams

OVER_NS = (1 << 32) - 1
Record = tuple[int, int, int]


def drawn(random: Random, count: int) -> list[Record]:
    """Return different records in order. Many have equal first or second words."""
    return sorted(
        {
            (random.randrange(1, 9) << 32 | random.randrange(3), random.randrange(3), n)
            for n in range(count)
        }
    )


def merged(streams: RecordStreams, among: range, *, by_entry: bool) -> list[Record]:
    for each in among:
        streams.join(each)
    streams.merge(by_entry)
    found = []
    while streams.one >> 32 < OVER_NS:
        found.append((streams.one, streams.two, streams.three))
        streams.advance()
    streams.stop()
    return found


@pytest.mark.parametrize("seed", range(20))
def test_a_merge_has_all_records_in_order(seed: int) -> None:
    random = Random(seed)
    count = random.choice((1, 2, 5, 9))
    records = drawn(random, 700)
    streams = RecordStreams(count, len(records))
    for _ in range(2):
        for record in records:
            streams.append(random.randrange(count), *record)
        assert sum(map(streams.count, range(count))) == len(records)
        assert merged(streams, range(count), by_entry=False) == records
        assert not any(map(streams.count, range(count)))


def test_records_by_entry_have_no_latest_time() -> None:
    streams = RecordStreams(2, 4)
    streams.append(0, 9 << 32 | 3, 2 << 32 | 1, 7)
    streams.append(0, 9 << 32 | 5, 0, 8)
    streams.append(1, 6 << 32 | 4, 0, 9)
    streams.join(0)
    streams.join(1)
    streams.merge(True)
    found = []
    for _ in range(3):
        words = streams.one, streams.two, streams.three
        found.append((streams.stream(), streams.latest(), *words))
        streams.advance()
    assert found == [
        (0, 9, 3 << 32 | 2, 1 << 32, 7),
        (1, 6, 4 << 32, 0, 9),
        (0, 9, 5 << 32, 0, 8),
    ]


def test_streams_without_records_join_no_merge() -> None:
    streams = RecordStreams(3, 4)
    assert merged(streams, range(3), by_entry=False) == []
    streams.append(1, 1 << 32, 0, 0)
    streams.clear()
    assert merged(streams, range(3), by_entry=False) == []
