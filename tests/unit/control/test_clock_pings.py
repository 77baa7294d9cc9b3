from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chakram.control.clock_pings import PingTimes, best_ping
from chakram.control.clock_track import ClockTrack


def ping(
    *, offset_ns: int, there_ns: int, back_ns: int, work_ns: int = 10, at_ns: int = 0
) -> PingTimes:
    received_ns = at_ns + there_ns + offset_ns
    return PingTimes(
        sent_ns=at_ns,
        remote_received_ns=received_ns,
        remote_sent_ns=received_ns + work_ns,
        answered_ns=at_ns + there_ns + work_ns + back_ns,
    )


ways = st.integers(0, 10**7)


@given(
    offset_ns=st.integers(-(10**15), 10**15),
    trips=st.lists(st.tuples(ways, ways, ways), min_size=1, max_size=10),
)
def test_the_true_offset_lies_within_the_uncertainty(
    offset_ns: int, trips: list[tuple[int, int, int]]
) -> None:
    track = ClockTrack()
    track.add(
        [
            ping(offset_ns=offset_ns, there_ns=there, back_ns=back, work_ns=work)
            for there, back, work in trips
        ]
    )
    assert abs(track.line.offset_ns - offset_ns) <= track.uncertainty_ns


def test_the_fastest_ping_decides() -> None:
    slow = ping(offset_ns=5000, there_ns=1_000_000, back_ns=10)
    fast = ping(offset_ns=5000, there_ns=100, back_ns=100)
    track = ClockTrack()
    track.add([slow, fast, slow])
    assert (track.line.offset_ns, track.uncertainty_ns) == (5000, 101)
    assert track.to_remote(100) == 5100


def test_no_pings_give_no_offset() -> None:
    with pytest.raises(ValueError, match="no pings"):
        best_ping([])


def test_a_ping_cannot_end_before_it_began() -> None:
    with pytest.raises(ValueError, match="a ping took -5 ns"):
        best_ping([ping(offset_ns=0, there_ns=-10, back_ns=5)])
