"""Time at which traffic has recovered from a fault."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

_BACK = 0.9
"""Fraction of the lowest earlier rate at which a message is no longer slow."""


class SentAcross(NamedTuple):
    """A message whose path crossed the location of a fault.

    ``session`` identifies the pair of ranks.  ``like`` identifies the collective and
    size, so messages with the same ``like`` have comparable times.
    """

    session: Hashable
    like: Hashable
    first_sent_ns: int
    last_acked_ns: int


def recovered_ns(
    messages: Sequence[SentAcross], start_ns: int, end_ns: int
) -> int | None:
    """Return when the last session recovered, but at least *end_ns*.

    A message is slow if its rate is below 0.9 of the lowest rate that comparable
    messages of its session had before the fault.  A session recovers with the first
    message sent after the fault that is not slow, as soon as all earlier slow messages
    are acknowledged.

    Args:
        messages: All messages that crossed the location of the fault.
        start_ns: Start of the fault.
        end_ns: End of the fault.

    Returns:
        The time, or None if it is unknown.  It is unknown if there were no comparable
        messages before the fault, or if a session was still slow at its last message.
    """
    longest_ns: dict[Hashable, int] = {}
    for each in messages:
        if each.last_acked_ns <= start_ns:
            key, time_ns = each[:2], each.last_acked_ns - each.first_sent_ns
            longest_ns[key] = max(time_ns, longest_ns.get(key, 0))
    back_ns: dict[Hashable, int] = {}
    slow = []
    for each in messages:
        known_ns = longest_ns.get(each[:2])
        if known_ns is None or each.last_acked_ns <= end_ns:
            continue
        if _BACK * (each.last_acked_ns - each.first_sent_ns) > known_ns:
            slow.append(each)
        elif each.first_sent_ns >= end_ns:
            earlier_ns = back_ns.get(each.session, each.first_sent_ns)
            back_ns[each.session] = min(earlier_ns, each.first_sent_ns)
    if not back_ns or any(each.session not in back_ns for each in slow):
        return None
    held_up = (
        each.last_acked_ns
        for each in slow
        if each.first_sent_ns < back_ns[each.session]
    )
    return max(held_up, default=end_ns)
