"""Measurement of how far a switch's clock is ahead of the clock of this machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request, and the switch's answer with the time of its clock.

    Attributes:
        sent_ns: Time of the request on the clock of this machine.
        device_ns: Time in the answer.
        received_ns: Time of the answer on the clock of this machine.
    """

    sent_ns: int
    device_ns: int
    received_ns: int

    @property
    def round_trip_ns(self) -> int:
        """Time between request and answer."""
        return self.received_ns - self.sent_ns

    @property
    def ahead_ns(self) -> int:
        """Estimate of how far the device is ahead, to within half a round trip."""
        return self.device_ns - (self.sent_ns + self.received_ns) // 2


@dataclass(slots=True)
class DeviceClock:
    """The clock of one switch.

    Attributes:
        best: The fastest exchange of each burst of requests.
        advances: Whether the device's time changed within every burst. If not, samples
            get their arrival times, so later bursts do not change the lead.
        assumed_ns: Lead to assume if the clock was not measured.
        step_ns: Estimated size of the steps in which the clock advances.
    """

    best: list[Exchange] = field(default_factory=list)
    advances: bool = True
    assumed_ns: int = 0
    step_ns: int = 0

    def add(self, exchanges: Sequence[Exchange]) -> None:
        """Record a burst of exchanges."""
        if not exchanges:
            return
        first, last = exchanges[0], exchanges[-1]
        if len(exchanges) > 1 and last.device_ns <= first.device_ns:
            self.advances = False
        if not self.advances and self.best:
            return
        best = min(exchanges, key=lambda each: each.round_trip_ns)
        self.best.append(best)
        # If the clock has no steps, the leads of two exchanges differ by at most half
        # the sum of their round trips.
        steps = (
            abs(each.ahead_ns - best.ahead_ns)
            - (each.round_trip_ns + best.round_trip_ns + 1) // 2
            for each in exchanges
        )
        self.step_ns = max(self.step_ns, *steps)

    @property
    def ahead_ns(self) -> int:
        """How far the device is ahead, as the mean of all bursts."""
        if not self.best:
            return self.assumed_ns
        return sum(each.ahead_ns for each in self.best) // len(self.best)

    @property
    def bound_ns(self) -> int | None:
        """Largest error of ``ahead_ns``, or None if the clock was not measured.

        Every burst bounds the lead at the time of the burst. Drift of the clock adds
        half of the difference between bursts. A clock that advances in steps adds the
        size of a step.
        """
        if not self.best or not self.advances:
            return None
        ahead_ns = self.ahead_ns
        return (
            max(
                abs(each.ahead_ns - ahead_ns) + (each.round_trip_ns + 1) // 2
                for each in self.best
            )
            + self.step_ns
        )

    def to_device(self, local_ns: int) -> int:
        """Return the device's time that corresponds to a time of this machine."""
        return local_ns + self.ahead_ns
