"""Calculation of the summary of point-to-point messages.

See ``chakram.summary.message_summary`` for the definitions.

Overlaps of pairs of ranks at switch ports of the fabric.

The overlap of a pair with another pair at a switch port is an integral.  It covers the
time in which the other pair has messages there.  The integrand is the number of the
pair's own messages in flight.  That number changes only when a message is posted or
acknowledged, so its integral is piecewise linear.  It is computed once per pair.  Each
stay of another pair then costs two binary searches, however long the messages are and
however many overlap.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import chain
from typing import NamedTuple

from chakram.plan.wire_cost import serialisation_ns, wire_bytes
from chakram.summary.bandwidth import jain_index, percentile
from chakram.summary.message_summary import (
    FctPercentiles,
    MessageSummary,
    MessageTransport,
    PairSummary,
    PortFacts,
    PortSummary,
    SentMessage,
    SharedPath,
)

FASTER_SHARE = 1.05
"""Multiple of its rate above which a port counts as faster than its rate."""

PAIRS_EXPLAINED = 8
"""Number of slowest pairs for which shared paths are reported."""

_NO_MARKS: Mapping[tuple[str, int, int], int] = {}
_NO_DROPS: Mapping[tuple[str, str], int] = {}


def _posted_ns(message: SentMessage) -> int:
    return message.posted_ns


class BusyPeriod(NamedTuple):
    """Messages in flight without a break; *fan* is their maximum number at once."""

    messages: list[SentMessage]
    fan: int
    begin_ns: int
    end_ns: int


def busy_periods(messages: Iterable[SentMessage]) -> list[BusyPeriod]:
    """Return the busy periods of the messages through one direction of a port.

    A message starts a new period even if it is posted at the very time when the
    previous period ends.
    """
    found: list[BusyPeriod] = []
    members: list[SentMessage] = []
    under_way: list[int] = []
    fan = end_ns = 0
    for message in sorted(messages, key=_posted_ns):
        while under_way and under_way[0] <= message.posted_ns:
            heappop(under_way)
        if members and not under_way:
            found.append(BusyPeriod(members, fan, members[0].posted_ns, end_ns))
            members, fan, end_ns = [], 0, 0
        members.append(message)
        heappush(under_way, message.acked_ns)
        fan = max(fan, len(under_way))
        end_ns = max(end_ns, message.acked_ns)
    if members:
        found.append(BusyPeriod(members, fan, members[0].posted_ns, end_ns))
    return found


def summarize_messages(
    messages: Sequence[SentMessage],
    transport: MessageTransport,
    *,
    dilation: int = 1,
    marked: Mapping[tuple[str, int, int], int] = _NO_MARKS,
    drops: Mapping[tuple[str, str], int] = _NO_DROPS,
) -> MessageSummary | None:
    """Summarize messages; return None if none of them crossed a port.

    Args:
        messages: All messages of measured iterations, with raw times.
        transport: Their ports, and the overhead of their packets.
        dilation: Divisor of times.
        marked: Packets that arrived with a congestion mark, by job, source and
            destination.
        drops: Packets dropped at the link of a host, by host and direction (``up`` or
            ``down``), if they were counted.
    """
    maker = _Maker(transport, dilation, marked, drops)
    ports = transport.ports
    crossing = [
        each
        for each in messages
        if ports[each.job, each.src].number != ports[each.job, each.dst].number
        and (each.job, each.src, each.dst) not in transport.within_hosts
    ]
    if not crossing:
        return None
    into: dict[tuple[str, int], list[SentMessage]] = {}
    out: dict[tuple[str, int], list[SentMessage]] = {}
    pairs: dict[tuple[str, int, int], list[SentMessage]] = {}
    for each in crossing:
        into.setdefault((each.job, ports[each.job, each.dst].number), []).append(each)
        out.setdefault((each.job, ports[each.job, each.src].number), []).append(each)
        pairs.setdefault((each.job, each.src, each.dst), []).append(each)
    summaries = sorted((maker.pair(own) for own in pairs.values()), key=_slowest_first)
    shared_paths = SharedPaths(pairs)
    slowest = [
        replace(pair, met=shared_paths.of((pair.job, pair.src, pair.dst)))
        for pair in summaries[:PAIRS_EXPLAINED]
    ]
    return MessageSummary(
        messages=len(crossing),
        receivers=tuple(maker.port(into[key], receives=True) for key in sorted(into)),
        senders=tuple(maker.port(out[key], receives=False) for key in sorted(out)),
        pairs=(*slowest, *summaries[PAIRS_EXPLAINED:]),
        worst_over_median=_worst_over_median(summaries),
    )


def _slowest_first(pair: PairSummary) -> tuple[bool, float, str, int, int]:
    """Return the sort key of a pair in the list of all pairs.

    Times per byte are not comparable with ratios of times.  So pairs with a fair time
    come first.
    """
    share = pair.fair_share
    if share:
        slowness = 1 / share
    else:
        slowness = pair.mean_ns * pair.messages / max(1, pair.payload_bytes)
    return not share, -slowness, pair.job, pair.src, pair.dst


def _worst_over_median(pairs: Iterable[PairSummary]) -> float | None:
    """Return the largest slowdown of a pair divided by the median slowdown."""
    times = sorted(1 / pair.fair_share for pair in pairs if pair.fair_share)
    return times[-1] / times[(len(times) - 1) // 2] if times else None


@dataclass(slots=True, eq=False)
class _Maker:
    """Builder of rows; takes the arguments of ``summarize_messages``."""

    transport: MessageTransport
    dilation: int
    marked: Mapping[tuple[str, int, int], int]
    drops: Mapping[tuple[str, str], int]
    _wire_bytes: dict[int, int] = field(init=False, default_factory=dict)

    def port(self, messages: Sequence[SentMessage], *, receives: bool) -> PortSummary:
        """Return the row of a port from all messages through it."""
        dilation = self.dilation
        job = messages[0].job
        ranks = {each.dst if receives else each.src for each in messages}
        pairs = {(each.src, each.dst) for each in messages}
        port = self.transport.ports[job, min(ranks)]
        periods = busy_periods(messages)
        busy_ns = sum(each.end_ns - each.begin_ns for each in periods)
        payload_bytes = sum(each.size_bytes for each in messages)
        wire = sum(self._wire(each.size_bytes) for each in messages)
        all_ns = [self._fair_ns(period, port) for period in periods]
        known_ns = [fair_ns for fair_ns in all_ns if fair_ns is not None]
        fair_ns = sum(known_ns) if len(known_ns) == len(periods) else None
        fairness, skews_ns = _among_peers(periods, receives=receives)
        goodput_bps, goodput_share = self._rate(payload_bytes, busy_ns, port)
        _, wire_share = self._rate(wire, busy_ns, port)
        is_faster = wire_share is not None and wire_share > FASTER_SHARE
        return PortSummary(
            job=job,
            port=port.number,
            host=port.host,
            rate_bps=self._undilated_rate(port.rate_bps),
            ranks=tuple(sorted(ranks)),
            peers=len({src if receives else dst for src, dst in pairs}),
            messages=len(messages),
            periods=len(periods),
            fan=max(period.fan for period in periods),
            payload_bytes=payload_bytes,
            wire_bytes=wire,
            busy_ns=busy_ns / dilation,
            goodput_bps=goodput_bps,
            goodput_share=None if is_faster else goodput_share,
            wire_share=None if is_faster else wire_share,
            is_faster=is_faster,
            time_ns=busy_ns / len(periods) / dilation,
            fair_ns=None if fair_ns is None else fair_ns / len(periods) / dilation,
            fair_share=fair_ns / busy_ns if fair_ns and busy_ns else None,
            fct=self._percentiles(messages),
            fairness=sum(fairness) / len(fairness) if fairness else None,
            fairness_min=min(fairness, default=None),
            skew_ns=sum(skews_ns) / len(skews_ns) / dilation if skews_ns else None,
            skew_max_ns=max(skews_ns) / dilation if skews_ns else None,
            retransmitted=sum(each.retransmitted for each in messages),
            marked=sum(self.marked.get((job, src, dst), 0) for src, dst in pairs),
            cnp=sum(each.cnp for each in messages),
            drops=self.drops.get((port.host, "down" if receives else "up")),
        )

    def pair(self, messages: Sequence[SentMessage]) -> PairSummary:
        """Return the row of a pair from all its messages."""
        first = messages[0]
        busy_ns = sum(
            period.end_ns - period.begin_ns for period in busy_periods(messages)
        )
        payload_bytes = sum(each.size_bytes for each in messages)
        taken_ns = sum(each.fct_ns for each in messages)
        dues_ns = [each.due_ns for each in messages if each.due_ns is not None]
        # Without known rates, messages are due after 0 ns, which is no fair time.
        due_ns = (sum(dues_ns) or None) if len(dues_ns) == len(messages) else None
        ports = [
            self.transport.ports[first.job, rank] for rank in (first.src, first.dst)
        ]
        slower = min(ports, key=lambda port: port.rate_bps or float("inf"))
        goodput_bps, goodput_share = self._rate(payload_bytes, busy_ns, slower)
        taken = Counter(way for each in messages for way in each.ways or () if way)
        return PairSummary(
            job=first.job,
            src=first.src,
            dst=first.dst,
            messages=len(messages),
            payload_bytes=payload_bytes,
            rate_bps=self._undilated_rate(slower.rate_bps),
            goodput_bps=goodput_bps,
            goodput_share=None
            if goodput_share is not None and goodput_share > FASTER_SHARE
            else goodput_share,
            fct=self._percentiles(messages),
            mean_ns=taken_ns / len(messages) / self.dilation,
            fair_ns=None if due_ns is None else due_ns / len(messages) / self.dilation,
            fair_share=due_ns / taken_ns if due_ns and taken_ns else None,
            retransmitted=sum(each.retransmitted for each in messages),
            cnp=sum(each.cnp for each in messages),
            paths=tuple(path for path, _ in taken.most_common()),
        )

    def _fair_ns(self, period: BusyPeriod, port: PortFacts) -> int | None:
        """Return the fair time of a busy period, or None if it is unknown."""
        if not any(each.due_ns for each in period.messages):
            return None
        wire = sum(self._wire(each.size_bytes) for each in period.messages)
        longest_ns = serialisation_ns(wire, rate_bps=port.rate_bps)
        for each in period.messages:
            if each.due_ns is None:
                return None
            longest_ns = max(longest_ns, each.posted_ns + each.due_ns - period.begin_ns)
        return min(longest_ns, period.end_ns - period.begin_ns)

    def _wire(self, size_bytes: int) -> int:
        found = self._wire_bytes.get(size_bytes)
        if found is None:
            transport = self.transport
            found = self._wire_bytes[size_bytes] = wire_bytes(
                size_bytes,
                path_mtu=transport.path_mtu,
                verb=transport.verb,
                overhead_bytes=transport.overhead_bytes,
            )
        return found

    def _rate(
        self, nbytes: int, busy_ns: int, port: PortFacts
    ) -> tuple[float | None, float | None]:
        """Return an undilated rate in bit/s, and its share of a port's rate."""
        if not busy_ns:
            return None, None
        raw_bps = nbytes * 8e9 / busy_ns
        share = raw_bps / port.rate_bps if port.rate_bps else None
        return raw_bps * self.dilation, share

    def _undilated_rate(self, rate_bps: int | None) -> int | None:
        return None if rate_bps is None else rate_bps * self.dilation

    def _percentiles(self, messages: Sequence[SentMessage]) -> FctPercentiles:
        times_ns = sorted(each.fct_ns for each in messages)
        p50, p95, p99 = (
            percentile(times_ns, percent) / self.dilation for percent in (50, 95, 99)
        )
        return FctPercentiles(
            min_ns=times_ns[0] / self.dilation,
            p50_ns=p50,
            p95_ns=p95,
            p99_ns=p99,
            max_ns=times_ns[-1] / self.dilation,
        )


def _among_peers(
    periods: Iterable[BusyPeriod], *, receives: bool
) -> tuple[list[float], list[int]]:
    """Return fairness and skew of each busy period with two peers or more."""
    fairness: list[float] = []
    skews_ns: list[int] = []
    for period in periods:
        # By peer: fair time or bytes, measured time, and time of the first post.
        peers: dict[int, tuple[int, int, int]] = {}
        for each in period.messages:
            peer = each.src if receives else each.dst
            due, taken_ns, first_ns = peers.get(peer, (0, 0, each.posted_ns))
            peers[peer] = (
                due + (each.size_bytes if each.fair_ns is None else each.fair_ns),
                taken_ns + each.fct_ns,
                min(first_ns, each.posted_ns),
            )
        if len(peers) < 2:
            continue
        index = jain_index([due / (taken or 1) for due, taken, _ in peers.values()])
        if index is not None:
            fairness.append(index)
        firsts_ns = [first_ns for _, _, first_ns in peers.values()]
        skews_ns.append(max(firsts_ns) - min(firsts_ns))
    return fairness, skews_ns


SHARED_PATHS_TOLD = 3
"""Number of shared paths reported for a pair, longest overlap first."""

_Pair = tuple[str, int, int]
_Ways = tuple[tuple[str, ...], ...]


class SharedPaths:
    """Pairs of ranks whose messages share switch ports at the same time.

    Args:
        pairs: All messages that cross a port, by job, source and destination.
    """

    def __init__(self, pairs: Mapping[_Pair, Sequence[SentMessage]]) -> None:
        self._by_ways = {key: _by_ways(own) for key, own in pairs.items()}
        # By switch port: the pairs that use it, each with its paths.
        self._at: dict[str, dict[tuple[_Pair, _Ways], None]] = {}
        for key, found in self._by_ways.items():
            for ways in found:
                for hop in chain(*ways):
                    self._at.setdefault(hop, {})[key, ways] = None
        self._stays: dict[tuple[_Pair, _Ways], list[tuple[int, int]]] = {}

    def of(self, pair: _Pair) -> tuple[SharedPath, ...]:
        """Return the pairs that a pair met, longest overlap first.

        Two pairs meet at the first port that their paths share.  Later shared ports do
        not count again.  Pairs with the same sender or receiver share a host port, and
        are left out.  The result is empty if the paths are unknown.
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
        """Return the stays of all other pairs, by the first port that is shared."""
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
    """Group messages by their paths through switches; skip those without any."""
    found: dict[_Ways, list[SentMessage]] = {}
    for each in messages:
        if each.ways and any(each.ways):
            found.setdefault(each.ways, []).append(each)
    return found


def _joined(stays: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Merge overlapping intervals."""
    found: list[tuple[int, int]] = []
    for begin_ns, end_ns in sorted(stays):
        if found and begin_ns <= found[-1][1]:
            found[-1] = found[-1][0], max(end_ns, found[-1][1])
        else:
            found.append((begin_ns, end_ns))
    return found
