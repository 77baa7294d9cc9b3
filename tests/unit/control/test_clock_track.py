"""Models of clocks that are wrong: offset, drift, steps and unequal ways."""

from __future__ import annotations

import random
import sys
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chakram.control.clock_pings import PingTimes
from chakram.control.clock_track import (
    LONGEST_PAUSE_NS,
    ClockTrack,
    next_burst_ns,
)
from chakram.records.row_layout import ARRIVAL_FIELDS, RecordRows

if TYPE_CHECKING:
    from collections.abc import Callable

SECOND_NS = 10**9
WAY_NS = 120_000.0
NOISE_NS = 180_000.0
"""Mean of the delay of each way in addition to the shortest one."""


def to_local(track: ClockTrack, remote_ns: int) -> int:
    """Convert a time of an agent's clock, as ``ClockLine.convert`` does in records."""
    rows = RecordRows()
    rows.arrivals.extend(
        remote_ns if name == "received_ns" else 0 for name in ARRIVAL_FIELDS
    )
    track.line.convert(rows)
    return rows.arrivals[ARRIVAL_FIELDS.index("received_ns")]


class Clock:
    """A wrong clock, and pings to it over a noisy network."""

    def __init__(
        self,
        seed: int,
        *,
        offset_ns: int = 0,
        ppm: float = 0.0,
        step_ns: int = 0,
        step_at_ns: int = 10**18,
        asymmetry_ns: float = 0.0,
        way_ns: float = WAY_NS,
        noise_ns: float = NOISE_NS,
    ) -> None:
        self._rng = random.Random(seed)
        self._offset_ns = offset_ns
        self._ppm = ppm
        self._step = (step_ns, step_at_ns)
        self._asymmetry_ns = asymmetry_ns
        self._way_ns, self._noise_ns = way_ns, noise_ns

    def ahead_ns(self, now_ns: float) -> float:
        """Return how far the clock is ahead."""
        step_ns, at_ns = self._step
        drifted_ns = self._offset_ns + now_ns * self._ppm * 1e-6
        return drifted_ns + (step_ns if now_ns >= at_ns else 0)

    def burst(self, now_ns: int) -> list[PingTimes]:
        """Return the times of eight pings."""
        pings = []
        for _ in range(8):
            there, back = (
                self._way_ns + self._rng.expovariate(1 / self._noise_ns)
                for _ in range(2)
            )
            back += self._asymmetry_ns
            arrived_ns = now_ns + there
            remote_ns = round(arrived_ns + self.ahead_ns(arrived_ns))
            answered_ns = round(arrived_ns + back)
            pings.append(
                PingTimes(
                    sent_ns=now_ns,
                    remote_received_ns=remote_ns,
                    remote_sent_ns=remote_ns,
                    answered_ns=answered_ns,
                )
            )
            now_ns = answered_ns
        return pings


def burst_times(end_ns: int) -> list[int]:
    """Return the times of the bursts of a run."""
    times = [0]
    while times[-1] < end_ns:
        times.append(next_burst_ns(first_ns=0, last_ns=times[-1]))
    return times


def test_pauses_grow_up_to_their_limit() -> None:
    times = burst_times(120 * SECOND_NS)
    pauses = [after - before for before, after in pairwise(times)]
    assert pauses[:4] == [SECOND_NS // 4, SECOND_NS // 4, SECOND_NS // 2, SECOND_NS]
    assert pauses == sorted(pauses)
    assert pauses[-1] == LONGEST_PAUSE_NS


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(
    "wrong",
    [
        {"offset_ns": 5 * SECOND_NS},
        {"ppm": 25.0},
        {"ppm": -100.0, "offset_ns": -(3600 * SECOND_NS)},
        {"asymmetry_ns": 60_000.0},
        {"ppm": 100.0, "asymmetry_ns": 60_000.0},
    ],
)
def test_the_fitted_offset_is_within_the_printed_bound(
    seed: int, wrong: dict[str, Any]
) -> None:
    clock = Clock(seed, **wrong)
    track = ClockTrack()
    for now_ns in burst_times(600 * SECOND_NS):
        track.add(clock.burst(now_ns))
    (segment,) = track.segments
    for now_ns in range(0, 600 * SECOND_NS, SECOND_NS):
        error_ns = segment.offset_ns(now_ns) - clock.ahead_ns(now_ns)
        assert abs(error_ns) <= track.uncertainty_ns
    assert track.uncertainty_ns < 300_000
    assert segment.drift_ppm == pytest.approx(wrong.get("ppm", 0.0), abs=0.5)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("step_ns", [0, 20_000_000])
def test_times_converted_during_a_run_are_within_the_bound(
    seed: int, step_ns: int
) -> None:
    """Records come before the bursts that would tell more about their time."""
    clock = Clock(
        seed, ppm=100.0, offset_ns=7, step_ns=step_ns, step_at_ns=21 * SECOND_NS
    )
    track = ClockTrack()
    errors_ns = []
    for now_ns, next_ns in pairwise(burst_times(60 * SECOND_NS)):
        track.add(clock.burst(now_ns))
        if now_ns < SECOND_NS:
            track.start()
            continue
        for time_ns in range(now_ns, next_ns, SECOND_NS // 4):
            remote_ns = time_ns + round(clock.ahead_ns(time_ns))
            errors_ns.append(abs(to_local(track, remote_ns) - time_ns))
    track.add(clock.burst(next_ns))
    assert max(errors_ns) <= track.uncertainty_ns
    if not step_ns:
        assert track.uncertainty_ns < 1_000_000


def test_the_bound_covers_times_that_an_early_line_converted() -> None:
    """Pings of microseconds do not tell the drift within the first second."""
    clock = Clock(1, ppm=100.0, way_ns=500.0, noise_ns=100.0)
    track = ClockTrack()
    errors_ns = []
    for now_ns, next_ns in pairwise(burst_times(30 * SECOND_NS)):
        track.add(clock.burst(now_ns))
        if now_ns == 0:
            track.start()
        remote_ns = next_ns + round(clock.ahead_ns(next_ns))
        errors_ns.append(abs(to_local(track, remote_ns) - next_ns))
    track.add(clock.burst(next_ns))
    assert max(errors_ns) > 10_000
    assert max(errors_ns) <= track.uncertainty_ns


@pytest.mark.parametrize("step_ns", [5_000_000, -40_000_000, 10**10])
def test_a_step_begins_a_segment_and_widens_the_bound(step_ns: int) -> None:
    at_ns = 47 * SECOND_NS
    clock = Clock(1, ppm=25.0, step_ns=step_ns, step_at_ns=at_ns)
    track = ClockTrack()
    for now_ns in burst_times(120 * SECOND_NS):
        track.add(clock.burst(now_ns))
    before, after = track.segments
    assert before.end_ns < at_ns < after.begin_ns
    for segment in track.segments:
        for now_ns in (segment.begin_ns, segment.end_ns):
            error_ns = segment.offset_ns(now_ns) - clock.ahead_ns(now_ns)
            assert abs(error_ns) <= segment.uncertainty_ns
    assert abs(step_ns) < track.uncertainty_ns < 1.1 * abs(step_ns) + 1_000_000


@given(seed=st.integers(0, 10**6))
def test_a_steady_clock_has_no_steps(seed: int) -> None:
    clock = Clock(seed, ppm=50.0)
    track = ClockTrack()
    for now_ns in burst_times(100 * SECOND_NS):
        track.add(clock.burst(now_ns))
    assert len(track.segments) == 1


def lines_of(call: Callable[[], object]) -> int:
    """Return how many lines of Python a call executes."""
    count = 0

    def trace(*_: object) -> Any:
        nonlocal count
        count += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


def test_a_burst_after_hours_costs_no_more_than_the_first_ones() -> None:
    clock, track = Clock(1), ClockTrack()
    bursts = [clock.burst(second * SECOND_NS) for second in range(500)]
    costs = [lines_of(partial(track.add, each)) for each in bursts]
    assert len(track.segments) == 1
    assert max(costs[250:]) <= max(costs[:10])


def test_without_pings_the_clock_is_that_of_the_controller() -> None:
    track = ClockTrack()
    assert track.to_remote(5) == 5
    assert to_local(track, 5) == 5
    assert track.uncertainty_ns == 0


def test_bursts_must_be_possible() -> None:
    with pytest.raises(ValueError, match="no pings"):
        ClockTrack().add([])
    with pytest.raises(ValueError, match="a ping took -5 ns"):
        ClockTrack().add(
            [
                PingTimes(
                    sent_ns=5,
                    remote_received_ns=0,
                    remote_sent_ns=0,
                    answered_ns=0,
                )
            ]
        )


@pytest.mark.parametrize("ppm", [-200.0, 200.0])
def test_times_after_hours_are_converted_back_exactly(ppm: float) -> None:
    track = ClockTrack()
    clock = Clock(1, offset_ns=10**12, ppm=ppm, way_ns=1_000, noise_ns=1)
    for second in range(0, 8 * 3600, 600):
        track.add(clock.burst(second * SECOND_NS))
    for hours in (0, 1, 8):
        local_ns = hours * 3600 * SECOND_NS
        assert abs(to_local(track, track.to_remote(local_ns)) - local_ns) <= 1
