"""Links that became slower between two runs, from the times of their messages.

A slower link delays even the fastest message of each pair of ranks that uses the link.
Delays by hosts and by other traffic vary, so the fastest message avoids most of them. A
slow host delays the messages of its ports in the same way. Slower messages on a host
link may therefore mean a slow link or a slow host.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import pairwise
from statistics import median
from typing import NamedTuple

_SLOWER, _OF_ONE_PAIR = 1.15, 1.5
"""Minimum ratios of the times of slower messages: for several pairs, and for one."""

_GAP = 1.1
"""Minimum ratio between the slower pairs and all others."""

_SAME = 1.1
"""Maximum median ratio of the pairs that do not use a slower link."""

_FEWEST = 3
"""Minimum number of messages of a pair on each side."""

_LARGE = 0.25
"""Minimum size of messages that show rates, as a share of the largest size."""


class Fastest(NamedTuple):
    """The fastest of the largest messages between two ranks.

    Attributes:
        bytes: Size of these messages.
        time_ns: Time of the fastest one from the first packet to the last ACK.
        messages: Number of these messages.
        links: Directions of links on their paths, e.g. ``h3-leaf1 up``.
    """

    bytes: int
    time_ns: float
    messages: int
    links: frozenset[str]

    def together(self, other: Fastest | None) -> Fastest:
        """Combine this with *other* messages of the same pair."""
        if other is None or other.bytes < self.bytes:
            return self
        if other.bytes > self.bytes:
            return other
        return Fastest(
            self.bytes,
            min(self.time_ns, other.time_ns),
            self.messages + other.messages,
            self.links | other.links,
        )


Pair = tuple[str, int, int]
"""Job, sender and receiver."""


class SlowerLink(NamedTuple):
    """A link whose messages became slower.

    Attributes:
        place: The link, several links that the same pairs use, or a host that sends
            or receives all their messages.
        pairs: Number of pairs of ranks that use it.
        ratio: Median ratio of their fastest times.
        other_pairs: Number of other pairs, whose messages did not become slower.
    """

    place: str
    pairs: int
    ratio: float
    other_pairs: int

    def __str__(self) -> str:
        longer = f"{100 * (self.ratio - 1):.0f} % longer"
        return f"{self.place} ({self.pairs} pairs of ranks: {longer})"


def slower_links(
    a: Mapping[Pair, Fastest], b: Mapping[Pair, Fastest]
) -> list[SlowerLink]:
    """Return the links that are slower in *b*, the link with the most pairs first.

    The result is empty unless the messages of most other pairs take the same time.
    """
    largest = max((each.bytes for each in a.values()), default=0)
    ratios = {
        pair: b[pair].time_ns / before.time_ns
        for pair, before in a.items()
        if pair in b
        and before.time_ns
        and (before.bytes, before.links) == (b[pair].bytes, b[pair].links)
        and min(before.messages, b[pair].messages) >= _FEWEST
        and before.bytes >= _LARGE * largest
    }
    users: dict[str, set[Pair]] = {}
    for pair in ratios:
        for link in a[pair].links:
            users.setdefault(link, set()).add(pair)
    slow = _slower_pairs(ratios)
    others = ratios.keys() - slow
    if not others or median(ratios[pair] for pair in others) > _SAME:
        return []
    alike: dict[frozenset[Pair], list[str]] = {}
    for link, pairs in users.items():
        is_clear = len(pairs) > 1 or ratios[min(pairs)] >= _OF_ONE_PAIR
        if pairs <= slow and is_clear:
            alike.setdefault(frozenset(pairs), []).append(link)
    found = []
    left = set(slow)
    while left and (most := _covering(alike, left)):
        found.append(
            SlowerLink(
                place=_place(alike.pop(most), most),
                pairs=len(most),
                ratio=median(ratios[pair] for pair in most),
                other_pairs=len(others),
            )
        )
        left -= most
    # Links cannot be the only reason if they do not explain all slower messages.
    return [] if left else found


def _slower_pairs(ratios: Mapping[Pair, float]) -> set[Pair]:
    """Return the pairs above the largest gap between ratios, if there is a gap."""
    ordered = sorted(ratios.values())
    gaps = [
        (high / low, high) for low, high in pairwise(ordered) if low and high >= _SLOWER
    ]
    gap, least = max(gaps, default=(0.0, 0.0))
    if gap < _GAP:
        return set()
    return {pair for pair, ratio in ratios.items() if ratio >= least}


def _covering(
    alike: Collection[frozenset[Pair]], left: Collection[Pair]
) -> frozenset[Pair] | None:
    """Return the set with most pairs of *left*, or None if no set has any."""
    best = max(alike, key=lambda each: (len(each & {*left}), -len(each)), default=None)
    return best if best and best & {*left} else None


def _place(links: Collection[str], pairs: Collection[Pair]) -> str:
    """Return the links, and any host at which all *pairs* begin or end, as text."""
    ends = (
        {(job, src) for job, src, _ in pairs},
        {(job, dst) for job, _, dst in pairs},
    )
    hosts = [f"the host of rank {min(end)[1]}" for end in ends if len(end) == 1]
    return " or ".join([*sorted(links), *hosts])
