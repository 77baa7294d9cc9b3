"""Finds out which pairs of ranks met whom on their way through the fabric.

How long two pairs were at one port of a switch together is an integral: over the time
in which the other pair had messages there, the number of own messages under way.  The
integral of that number, a line with a bend wherever one is posted or acknowledged, is
made once for a pair; then every stay of another pair costs two searches in it, however
long the messages are and however many of them overlap.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

from chakram.summary.message_summary import SentMessage, SharedPath

SHARED_PATHS_TOLD = 3
"""Of those that a pair met, so many that were there for longest are named."""

_Pair = tuple[str, int, int]
_Ways = tuple[tuple[str, ...], ...]


class SharedPaths:
    """Who met whom.

    Args:
        pairs: All messages that cross a port, by job, source and destination.
    """

    def __init__(self, pairs: Mapping[_Pair, Sequence[SentMessage]]) -> None:
        self._by_ways = {key: _by_ways(own) for key, own in pairs.items()}
        # Through every port of a switch: the pairs, and by which of their ways.
        self._at: dict[str, dict[tuple[_Pair, _Ways], None]] = {}
        for key, found in self._by_ways.items():
            for ways in found:
                for hop in chain(*ways):
                    self._at.setdefault(hop, {})[key, ways] = None
        self._stays: dict[tuple[_Pair, _Ways], list[tuple[int, int]]] = {}

    def of(self, pair: _Pair) -> tuple[SharedPath, ...]:
        """Return whom a pair met, the longest first; empty if its paths are unknown.

        Two pairs meet where their paths come together: what they share behind that,
        they share.  Pairs with a rank in common share its port, and are left out.
        """
        met_ns: dict[tuple[str, _Pair], int] = {}
        taken_ns = 0
        for ways, own in self._by_ways[pair].items():
            under_way = _UnderWay(own)
            taken_ns += under_way.total_ns
            for (hop, other), stays in self._others(pair, ways).items():
                common_ns = sum(
                    under_way.until(end_ns) - under_way.until(begin_ns)
                    for begin_ns, end_ns in _joined(stays)
                )
                if common_ns:
                    met_ns[hop, other] = met_ns.get((hop, other), 0) + common_ns
        longest = sorted(met_ns.items(), key=lambda each: (-each[1], each[0]))
        return tuple(
            SharedPath(at=hop, job=job, src=src, dst=dst, share=common_ns / taken_ns)
            for (hop, (job, src, dst)), common_ns in longest[:SHARED_PATHS_TOLD]
        )

    def _others(
        self, pair: _Pair, ways: _Ways
    ) -> dict[tuple[str, _Pair], list[tuple[int, int]]]:
        """Return the stays of all other pairs, by where they are met first."""
        job, src, dst = pair
        seen: set[tuple[_Pair, _Ways]] = set()
        found: dict[tuple[str, _Pair], list[tuple[int, int]]] = {}
        for hop in chain(*ways):
            for place in self._at[hop]:
                other = place[0]
                if place in seen or (
                    other[0] == job and (other[1] == src or other[2] == dst)
                ):
                    continue
                seen.add(place)
                found.setdefault((hop, other), []).extend(self._stays_of(place))
        return found

    def _stays_of(self, place: tuple[_Pair, _Ways]) -> list[tuple[int, int]]:
        """Return when a pair had messages on some of its ways."""
        stays = self._stays.get(place)
        if stays is None:
            pair, ways = place
            messages = self._by_ways[pair][ways]
            stays = _joined((each.posted_ns, each.acked_ns) for each in messages)
            self._stays[place] = stays
        return stays


class _UnderWay:
    """How long messages have been under way until a point in time, all together.

    Attributes:
        total_ns: Until the end.
    """

    def __init__(self, messages: Sequence[SentMessage]) -> None:
        changes: dict[int, int] = {}
        for each in messages:
            changes[each.posted_ns] = changes.get(each.posted_ns, 0) + 1
            changes[each.acked_ns] = changes.get(each.acked_ns, 0) - 1
        self._times_ns = sorted(changes)
        self._counts: list[int] = []
        self._sums_ns: list[int] = []
        count = sum_ns = before_ns = 0
        for time_ns in self._times_ns:
            sum_ns += count * (time_ns - before_ns)
            count += changes[time_ns]
            before_ns = time_ns
            self._counts.append(count)
            self._sums_ns.append(sum_ns)
        self.total_ns = sum_ns

    def until(self, time_ns: int) -> int:
        """Return the sum of the times that each has been under way until then."""
        index = bisect_right(self._times_ns, time_ns) - 1
        if index < 0:
            return 0
        return self._sums_ns[index] + self._counts[index] * (
            time_ns - self._times_ns[index]
        )


def _by_ways(messages: Iterable[SentMessage]) -> dict[_Ways, list[SentMessage]]:
    """Return messages by their ways through switches; those with none left out."""
    found: dict[_Ways, list[SentMessage]] = {}
    for each in messages:
        if each.ways and any(each.ways):
            found.setdefault(each.ways, []).append(each)
    return found


def _joined(stays: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return times without overlaps: being there twice is being there."""
    found: list[tuple[int, int]] = []
    for begin_ns, end_ns in sorted(stays):
        if found and begin_ns <= found[-1][1]:
            found[-1] = found[-1][0], max(end_ns, found[-1][1])
        else:
            found.append((begin_ns, end_ns))
    return found
