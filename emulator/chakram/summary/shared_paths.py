"""Overlaps of pairs of ranks at switch ports of the fabric.

The overlap of a pair with another pair at a switch port is an integral.  The integral
covers the time in which the other pair has messages at that port.  The integrand is the
number of the pair's own messages in flight.  That number changes only when a message is
posted or acknowledged, so its integral is piecewise linear.  The integral is computed
once per pair.  Each interval with messages of another pair then costs two binary
searches, regardless of the length and number of messages.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

from chakram.foundation.grouping import grouped
from chakram.summary.message_summary import SentMessage, SharedPath

SHARED_PATHS_TOLD = 3
"""Maximum number of shared paths reported for a pair, longest overlap first."""

_Pair = tuple[str, int, int]
_Ways = tuple[tuple[str, ...], ...]


class SharedPaths:
    """Pairs of ranks whose messages share switch ports at the same time.

    Args:
        pairs: All messages that cross a port, by job, source and destination.
    """

    def __init__(self, pairs: Mapping[_Pair, Sequence[SentMessage]]) -> None:
        self._by_ways = {key: _by_ways(own) for key, own in pairs.items()}
        # The pairs that use each switch port, with their paths.
        self._at: dict[str, dict[tuple[_Pair, _Ways], None]] = {}
        for key, found in self._by_ways.items():
            for ways in found:
                for hop in chain(*ways):
                    self._at.setdefault(hop, {})[key, ways] = None
        self._stays: dict[tuple[_Pair, _Ways], list[tuple[int, int]]] = {}

    def of(self, pair: _Pair) -> tuple[SharedPath, ...]:
        """Return the pairs that share a switch port with a pair, longest overlap first.

        Two pairs meet at the first port that their paths share. Later shared ports are
        not counted again. Pairs with the same sender or receiver share a host port, and
        are omitted. The result is empty if the paths are unknown.
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
        """Return the intervals of other pairs' messages, by the first shared port."""
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
        """Return the intervals in which a pair had messages on some of its paths."""
        stays = self._stays.get(place)
        if stays is None:
            pair, ways = place
            messages = self._by_ways[pair][ways]
            stays = _joined((each.posted_ns, each.acked_ns) for each in messages)
            self._stays[place] = stays
        return stays


class _UnderWay:
    """Cumulative time in flight of some messages, as a function of time.

    Attributes:
        total_ns: Time in flight of all messages.
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
        """Return the total time in flight of all messages up to *time_ns*."""
        index = bisect_right(self._times_ns, time_ns) - 1
        if index < 0:
            return 0
        return self._sums_ns[index] + self._counts[index] * (
            time_ns - self._times_ns[index]
        )


def _by_ways(messages: Iterable[SentMessage]) -> dict[_Ways, list[SentMessage]]:
    """Group messages by their paths through switches.  Skip messages without a path."""
    return grouped(
        (each.ways, each) for each in messages if each.ways and any(each.ways)
    )


def _joined(stays: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Merge overlapping intervals."""
    found: list[tuple[int, int]] = []
    for begin_ns, end_ns in sorted(stays):
        if found and begin_ns <= found[-1][1]:
            found[-1] = found[-1][0], max(end_ns, found[-1][1])
        else:
            found.append((begin_ns, end_ns))
    return found
