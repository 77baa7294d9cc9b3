"""When traffic has recovered from a fault: its sessions are back at their rate."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

_BACK = 0.9
"""A message is back at its rate with that part of the least rate before."""


class SentAcross(NamedTuple):
    """A message that crossed the place of a fault.

    ``session`` is the pair of ranks, ``like`` what messages have in common whose times
    can be compared: collective and size.
    """

    session: Hashable
    like: Hashable
    first_sent_ns: int
    last_acked_ns: int


def recovered_ns(
    messages: Sequence[SentAcross], start_ns: int, end_ns: int
) -> int | None:
    """Return when the last session was back at its rate, *end_ns* at the earliest.

    A message is slow if it has less than 0.9 of the least rate that messages like it,
    of its session, had before the fault.  A session is back with the first one begun
    after the fault that is not slow; what was slow before that has to be acknowledged.

    Args:
        messages: All that crossed its place.
        start_ns: When the fault began.
        end_ns: When it was over.

    Returns:
        None: nobody knows, for nothing like what came afterwards was sent before, or
        a session was slow to its last message.
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
