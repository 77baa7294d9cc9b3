"""Synchronization of a host's wall clock by chrony or PTP, and the clock's accuracy.

A run uses the times of monotonic clocks, which pings compare. The wall clocks of the
hosts allow a check: if chrony bounds the error of two wall clocks, pings must not
measure a larger difference between them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from chakram.foundation.units import format_time

_FIELDS = 14
_MOST_S = 1e9
_LOCAL = "7F7F0101"
"""Reference ID of a clock that chrony serves without synchronizing it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeSource:
    """The daemon that synchronizes a host's wall clock, and its measurements.

    Attributes:
        name: ``chrony`` or ``ptp``.
        is_synchronized: Whether the daemon follows a reference clock.
        offset_ns: Last measured offset from the reference clock.
        bound_ns: Bound on the error of the wall clock. None if unknown.
    """

    name: str
    is_synchronized: bool
    offset_ns: int
    bound_ns: int | None = None


def parse_tracking(text: str) -> TimeSource | None:
    """Parse the output of ``chronyc -c tracking``. Return None if it is not valid.

    The bound is the offset, the root dispersion and half the root delay, as RFC 5905
    defines the root synchronization distance.
    """
    fields = text.strip().split(",")
    if len(fields) != _FIELDS:
        return None
    try:
        offset_s, delay_s, dispersion_s = (float(fields[each]) for each in (4, 10, 11))
    except ValueError:
        return None
    if not abs(offset_s) + abs(delay_s) + abs(dispersion_s) < _MOST_S:
        return None
    return TimeSource(
        name="chrony",
        is_synchronized=fields[0] != _LOCAL and fields[13] != "Not synchronised",
        offset_ns=-round(offset_s * 1e9),  # chrony prints how far the clock is behind
        bound_ns=round((abs(offset_s) + dispersion_s + delay_s / 2) * 1e9),
    )


def parse_time_status(text: str) -> TimeSource | None:
    """Parse the output of ``pmc`` for ``TIME_STATUS_NP``.

    Return None if the output lacks the offset or ``gmPresent``. PTP reports no bound on
    the error.
    """
    offset = re.search(r"\bmaster_offset\s+(-?\d{1,18})\b", text)
    present = re.search(r"\bgmPresent\s+(true|false)", text)
    if offset is None or present is None:
        return None
    return TimeSource(
        name="ptp",
        is_synchronized=present[1] == "true",
        offset_ns=int(offset[1]),
    )


def disagreement(
    name: str,
    *,
    ahead_ns: int,
    uncertainty_ns: int,
    sources: Sequence[TimeSource | None],
) -> str | None:
    """Return a warning if pings contradict the daemons of both hosts, else None.

    Args:
        name: Name of the agent.
        ahead_ns: How far the agent's wall clock is ahead of the controller's, according
            to pings.
        uncertainty_ns: Bound on the error of *ahead_ns*.
        sources: Programs that synchronize the wall clocks of both hosts.
    """
    bounds = [
        each.bound_ns
        for each in sources
        if each is not None and each.is_synchronized and each.bound_ns is not None
    ]
    if len(bounds) < len(sources):
        return None
    limit_ns = sum(bounds) + uncertainty_ns
    if abs(ahead_ns) <= limit_ns:
        return None
    way = "ahead of" if ahead_ns > 0 else "behind"
    return (
        f"agent {name}: pings show that its wall clock is {format_time(abs(ahead_ns))} "
        f"{way} the controller's, but chrony bounds the difference to "
        f"{format_time(limit_ns)}: check chrony on both hosts, and whether the control "
        "network delays one direction more than the other"
    )
