"""Calculation of the summary of point-to-point messages.

See ``chakram.summary.message_summary`` for the definitions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from operator import attrgetter
from typing import NamedTuple

from chakram.foundation.grouping import grouped
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
)
from chakram.summary.shared_paths import SharedPaths

FASTER_SHARE = 1.05
"""Ratio of throughput to rate above which a port counts as faster than its rate."""

PAIRS_EXPLAINED = 8
"""Number of slowest pairs for which shared paths are reported."""

_NO_MARKS: Mapping[tuple[str, int, int], int] = {}
_NO_DROPS: Mapping[tuple[str, str], int] = {}


class BusyPeriod(NamedTuple):
    """Messages in flight without a break.  *fan* is their maximum number at once."""

    messages: list[SentMessage]
    fan: int
    begin_ns: int
    end_ns: int


def busy_periods(messages: Iterable[SentMessage]) -> list[BusyPeriod]:
    """Return the busy periods of the messages through one direction of a port.

    A message starts a new period even if it is posted exactly when the previous period
    ends.
    """
    found: list[BusyPeriod] = []
    members: list[SentMessage] = []
    under_way: list[int] = []
    fan = end_ns = 0
    for message in sorted(messages, key=attrgetter("posted_ns")):
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
    """Summarize messages, or return None if none of them crossed a port.

    Args:
        messages: All messages of measured iterations, with raw times.
        transport: Ports of the messages, and overhead of their packets.
        dilation: Divisor of raw times.
        marked: Number of packets that arrived with a congestion mark, by job, source
            and destination.
        drops: Number of packets dropped at the link of a host, by host and direction
            (``up`` or ``down``), if drops were counted.
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
    into = grouped(((m.job, ports[m.job, m.dst].number), m) for m in crossing)
    out = grouped(((m.job, ports[m.job, m.src].number), m) for m in crossing)
    pairs = grouped(((m.job, m.src, m.dst), m) for m in crossing)
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

    Pairs with a fair time come first, because ratios of times are not comparable with
    times per byte.
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
    """Builder of rows that takes the arguments of ``summarize_messages``."""

    transport: MessageTransport
    dilation: int
    marked: Mapping[tuple[str, int, int], int]
    drops: Mapping[tuple[str, str], int]
    _wire_bytes: dict[int, int] = field(default_factory=dict)

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
            retransmitted=_total(each.retransmitted for each in messages),
            marked=sum(self.marked.get((job, src, dst), 0) for src, dst in pairs),
            cnp=_total(each.cnp for each in messages),
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
        # Without known rates, messages are due after 0 ns, which is not a fair time.
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
            retransmitted=_total(each.retransmitted for each in messages),
            cnp=_total(each.cnp for each in messages),
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
    """Return fairness and skew of each busy period with two or more peers."""
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


def _total(counts: Iterable[int | None]) -> int | None:
    """Return a sum, or None if a count is unknown, as on RDMA NICs."""
    known = list(counts)
    return None if None in known else sum(filter(None, known))
