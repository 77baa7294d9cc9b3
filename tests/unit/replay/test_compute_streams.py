from __future__ import annotations

from chakram.replay.compute_streams import ComputeStreams


def test_a_stream_has_one_slot_and_serves_in_order() -> None:
    streams = ComputeStreams()
    assert streams.take(None, 1, 10)
    assert not streams.take(None, 2, 11)
    assert not streams.take(None, 3, 12)
    assert streams.release(None) == (2, 11)
    assert streams.release(None) == (3, 12)
    assert streams.release(None) is None
    assert streams.take(None, 4, 20)


def test_preferred_operation_precedes_earlier_ones() -> None:
    streams = ComputeStreams()
    assert streams.take(None, 1, 10, 9)
    assert not streams.take(None, 2, 11, 5)
    assert not streams.take(None, 3, 12, 4)
    assert not streams.take(None, 4, 13, 5)
    released = [streams.release(None) for _ in range(4)]
    assert released == [(3, 12), (2, 11), (4, 13), None]


def test_streams_do_not_wait_for_each_other() -> None:
    streams = ComputeStreams()
    assert streams.take(None, 1, 0)
    assert streams.take(0, 2, 0)
    assert streams.take(7, 3, 0)
    assert not streams.take(0, 4, 0)
    assert streams.release(7) is None
    assert streams.release(0) == (4, 0)
