"""Detect ports that a switch has stopped reporting, although it reports other ports.

Some versions of sonic-gnmi (202511 and earlier) begin the interval of a port again
whenever a counter changes, so they do not report busy ports. A new subscription begins
with the values of all ports.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

_LEAST_NS = 2 * 10**9
_SILENT_ROUNDS = 2
_LOOK_NS = 100_000_000

Part = tuple[str, bool]
"""A port, and whether the counters are those of the whole port, not of its classes."""


@dataclass(slots=True)
class _Reports:
    """Time of a part's last report, number of rounds, and start of the last round."""

    heard_ns: int
    rounds: int = 0
    round_ns: int = 0


class PortReports:
    """Times at which the ports of one switch were reported.

    Args:
        interval_ns: Time between two samples.
        class_refresh_ns: Interval at which the switch reads counters of classes.
    """

    def __init__(self, *, interval_ns: int, class_refresh_ns: int) -> None:
        self._interval_ns = interval_ns
        self._longest_ns = {
            is_port: max(_LEAST_NS, 5 * max(interval_ns, refresh_ns) // 2)
            for is_port, refresh_ns in ((True, 0), (False, class_refresh_ns))
        }
        self._known: dict[Part, _Reports] = {}
        self._looked_ns = 0

    def begin(self, now_ns: int) -> None:
        """Start over because of a new subscription."""
        self._known = {part: _Reports(now_ns) for part in self._known}

    def add(self, parts: Iterable[Part], now_ns: int) -> None:
        """Record that parts were reported. A round lasts at least half an interval."""
        for part in parts:
            found = self._known.get(part)
            if found is None:
                found = self._known[part] = _Reports(now_ns)
            found.heard_ns = now_ns
            if now_ns - found.round_ns >= self._interval_ns // 2:
                found.rounds += 1
                found.round_ns = now_ns

    def has_silent(self, now_ns: int) -> bool:
        """Return whether a part was not reported in several rounds of other parts.

        If this process or the switch is late, all parts are late, and a new
        subscription would not help.
        """
        if not self._known or now_ns - self._looked_ns < _LOOK_NS:
            return False
        self._looked_ns = now_ns
        most = max(each.rounds for each in self._known.values())
        return any(
            most - each.rounds >= _SILENT_ROUNDS
            and now_ns - each.heard_ns > self._longest_ns[is_port]
            for (_, is_port), each in self._known.items()
        )
