"""Offset and drift of an agent's clock, from bursts of pings before and during a run.

A clock that is off by 25 ppm, which is usual, is wrong by 15 ms after ten minutes. One
measurement at the start is therefore not enough. For each segment of time, a line is
fitted to the best ping of each burst. A new segment begins when a burst contradicts the
line, for example because the clock was set. The module does no I/O and reads no clock.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from chakram.control.clock_pings import PingTimes, best_ping
from chakram.records.clock_conversion import ClockLine

LONGEST_PAUSE_NS = 10 * 10**9
"""Longest time between two bursts."""
_SHORTEST_PAUSE_NS = 250_000_000
_USUAL_DRIFT = 100e-6
"""Standard deviation of the drift of clocks before anything is measured."""
_LEAST_ERROR_NS = 10_000.0
"""Smallest error of a burst's best ping. A ping that is slower than the fastest one has
a larger error."""
_CONTRADICTION = 3.0
"""Number of standard deviations by which a burst may miss the line of its segment."""


def next_burst_ns(*, first_ns: int, last_ns: int) -> int:
    """Return when to send the next burst.

    The pause is as long as the time since the first burst, up to a limit. The drift is
    then known well enough for the time until the next burst.

    Args:
        first_ns: Time of the first burst.
        last_ns: Time of the last burst.
    """
    pause_ns = min(max(last_ns - first_ns, _SHORTEST_PAUSE_NS), LONGEST_PAUSE_NS)
    return last_ns + pause_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockSample:
    """The best ping of a burst.

    Attributes:
        local_ns: Middle of the ping on the controller's clock.
        offset_ns: How far the agent's clock was ahead, if both directions took the
            same time.
        round_trip_ns: Round-trip time without the processing time in the agent.
        segment: Number of the segment that the sample belongs to.
    """

    local_ns: int
    offset_ns: int
    round_trip_ns: int
    segment: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockSegment:
    """A line through the samples of a period in which the clock makes no steps.

    Attributes:
        begin_ns: Time of the first sample on the controller's clock.
        end_ns: Time of the last sample on the controller's clock.
        line: Conversion between times of the two clocks.
        drift_ppm: How much faster the agent's clock runs, in parts per million.
        uncertainty_ns: Bound on the error of the line: the largest residual of a
            sample, plus half the shortest round trip because the directions may be
            unequal.
    """

    begin_ns: int
    end_ns: int
    line: ClockLine
    drift_ppm: float
    uncertainty_ns: int

    def offset_ns(self, local_ns: int) -> float:
        """Return how far the agent's clock is ahead at a time on the local clock."""
        return self.line.offset_ns + self.line.drift * (local_ns - self.begin_ns)


@dataclass(slots=True)
class ClockTrack:
    """Model of an agent's clock, which every burst of pings improves.

    Until the first burst, the model equals the controller's clock.
    """

    samples: list[ClockSample] = field(default_factory=list)
    segments: list[ClockSegment] = field(default_factory=list)
    _last: array[float] = field(default_factory=lambda: array("d"))
    """Three numbers per sample of the last segment: its time and its offset relative to
    the first sample, and its round trip."""
    _slope_error: float = 0.0
    _used: list[ClockSegment] = field(default_factory=list)
    """The last segment as it was fitted after each burst."""
    _used_from_ns: int | None = None

    def add(self, pings: Sequence[PingTimes]) -> None:
        """Add a burst of pings.

        Raises:
            ValueError: If there are no pings, or a round trip is negative.
        """
        best = best_ping(pings)
        sample = ClockSample(
            local_ns=(best.sent_ns + best.answered_ns) // 2,
            offset_ns=best.offset_ns,
            round_trip_ns=best.round_trip_ns,
            segment=max(len(self.segments) - 1, 0),
        )
        if self.segments and self._contradicts(sample):
            sample = replace(sample, segment=sample.segment + 1)
            self._last = array("d")
        self.samples.append(sample)
        first = self.samples[-1 - len(self._last) // 3]
        self._last.append(sample.local_ns - first.local_ns)
        self._last.append(sample.offset_ns - first.offset_ns)
        self._last.append(sample.round_trip_ns)
        self.segments[sample.segment :] = [self._fit(first, sample)]
        self._used.append(self.segments[-1])

    def start(self) -> None:
        """Record that conversion of times begins with the last burst."""
        if self.samples:
            self._used_from_ns = self.samples[-1].local_ns

    @property
    def line(self) -> ClockLine:
        """Line that converts current times."""
        return self.segments[-1].line if self.segments else ClockLine()

    @property
    def uncertainty_ns(self) -> int:
        """Bound on the error of converted times.

        Each time is converted with the line that is the latest at that time. The bound
        includes the difference between that line and the final line. Times between the
        last burst before a step and the first burst after the step may be wrong by the
        whole step.
        """
        bounds = [segment.uncertainty_ns for segment in self.segments]
        for used, sample, later in zip(
            self._used, self.samples, self.samples[1:], strict=False
        ):
            if self._used_from_ns is None or sample.local_ns < self._used_from_ns:
                continue
            known = self.segments[sample.segment]
            differences_ns = [
                abs(used.offset_ns(time_ns) - known.offset_ns(time_ns))
                for time_ns in (sample.local_ns, later.local_ns)
            ]
            bounds.append(round(max(differences_ns)) + known.uncertainty_ns)
        for before, after in zip(self.segments, self.segments[1:], strict=False):
            step_ns = after.line.offset_ns - before.offset_ns(after.begin_ns)
            bounds.append(round(abs(step_ns)) + after.uncertainty_ns)
        return max(bounds, default=0)

    def to_remote(self, local_ns: int) -> int:
        """Convert a time from the controller's clock to the agent's clock."""
        if not self.segments:
            return local_ns
        return local_ns + round(self.segments[-1].offset_ns(local_ns))

    def _contradicts(self, sample: ClockSample) -> bool:
        """Return whether a sample differs from the line by more than both errors."""
        segment = self.segments[-1]
        elapsed_ns = sample.local_ns - segment.end_ns
        error_ns = (
            segment.uncertainty_ns
            + sample.round_trip_ns / 2
            + _LEAST_ERROR_NS
            + _CONTRADICTION * self._slope_error * elapsed_ns
        )
        return abs(sample.offset_ns - segment.offset_ns(sample.local_ns)) > error_ns

    def _fit(self, first: ClockSample, last: ClockSample) -> ClockSegment:
        """Fit a line by weighted least squares, with the usual drift as a prior."""
        times, offsets, trips_ns = np.array(self._last).reshape(-1, 3).T
        fastest_ns = int(trips_ns.min())
        weights = ((trips_ns - fastest_ns) / 2 + _LEAST_ERROR_NS) ** -2
        mean_time = np.average(times, weights=weights)
        mean_offset = np.average(offsets, weights=weights)
        common = weights @ ((times - mean_time) * (offsets - mean_offset))
        precision = weights @ (times - mean_time) ** 2 + _USUAL_DRIFT**-2
        drift = float(common / precision)
        self._slope_error = float(precision**-0.5)
        start = float(mean_offset) - drift * float(mean_time)
        largest = float(np.abs(offsets - start - drift * times).max())
        offset_ns = first.offset_ns + start
        return ClockSegment(
            begin_ns=first.local_ns,
            end_ns=last.local_ns,
            line=ClockLine(
                remote_ns=first.local_ns + round(offset_ns),
                offset_ns=offset_ns,
                drift=drift,
            ),
            drift_ppm=drift * 1e6,
            uncertainty_ns=round(largest + fastest_ns / 2) + 1,
        )
