"""Fit of a simulated run to a measured one, compared by pairs of ranks.

A link fault first delays the messages that cross the link.  Those messages take longer
than simulated from posting to acknowledgment.  Messages that only wait for delayed
messages are posted later, but then take their usual time.

A message waits for its acknowledgment, too, so a slow port delays the messages of both
directions.  The time from posting to delivery distinguishes the directions.  A slow
port delays the delivery of data that it sends, but not of data whose acknowledgments it
sends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import log
from statistics import median_low
from typing import NamedTuple

_FEW_RESENT = 20
"""Constant added to the retransmissions of both runs.

It reduces the weight of small numbers of retransmissions.
"""

_RESENT_WEIGHT = 0.5

_ABSENT = 1.0
"""Absolute log ratio assumed for a pair of ranks without comparable messages."""

_SMALL = 0.02

LATE = 0.1
"""Minimum share of the time for which a suspected host is late."""

_LATER = 2.0
"""Minimum ratio of a suspected host's late time to the median of all hosts."""

_FEW_HOSTS = 2
_LATEST = 1.5
"""Minimum ratio of a suspected host's late time to the second longest late time.

This alternative criterion applies to three or more hosts.
"""


class Pair(NamedTuple):
    """A sending rank and a receiving rank of a job."""

    job: str
    src: int
    dst: int


class Message(NamedTuple):
    """Times and packets of a message.

    Attributes:
        pair: Sender and receiver of the message.
        time_ns: Time from posting to acknowledgment.
        packets: Number of packets.
        retransmitted: Number of retransmitted packets.
        delivered_ns: Time from posting to delivery, or None if unknown.
    """

    pair: Pair
    time_ns: int
    packets: int
    retransmitted: int
    delivered_ns: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """Times and packets of a run, or of some of its iterations.

    Attributes:
        iteration_ns: Mean time of an iteration.
        flow_ns: Total time of the messages per iteration, by pair of ranks.
        delivered_ns: Total time up to delivery per iteration, by pair of ranks.  Pairs
            with an unknown delivery time are omitted.
        resent: Mean number of retransmitted packets per iteration, by pair of ranks.
        packets: Mean number of packets per iteration, by pair of ranks.
    """

    iteration_ns: float
    flow_ns: Mapping[Pair, float] = field(default_factory=dict)
    delivered_ns: Mapping[Pair, float] = field(default_factory=dict)
    resent: Mapping[Pair, float] = field(default_factory=dict)
    packets: Mapping[Pair, float] = field(default_factory=dict)

    @property
    def resent_share(self) -> float:
        """Ratio of retransmitted packets to packets."""
        packets = sum(self.packets.values())
        return sum(self.resent.values()) / packets if packets else 0.0


def observed(messages: Iterable[Message], iterations_ns: Sequence[int]) -> Observed:
    """Summarize the messages of some iterations.

    Args:
        messages: The messages of these iterations.
        iterations_ns: Times of the iterations that contain the messages.

    Raises:
        ValueError: If there is no iteration.
    """
    if not iterations_ns:
        raise ValueError("no iteration")
    count = len(iterations_ns)
    flow_ns: dict[Pair, float] = {}
    delivered_ns: dict[Pair, float] = {}
    resent: dict[Pair, float] = {}
    packets: dict[Pair, float] = {}
    unknown = set()
    for each in messages:
        pair = each.pair
        flow_ns[pair] = flow_ns.get(pair, 0.0) + each.time_ns / count
        packets[pair] = packets.get(pair, 0.0) + each.packets / count
        resent[pair] = resent.get(pair, 0.0) + each.retransmitted / count
        if each.delivered_ns is None:
            unknown.add(pair)
        else:
            own_ns = each.delivered_ns / count
            delivered_ns[pair] = delivered_ns.get(pair, 0.0) + own_ns
    for pair in unknown:
        delivered_ns.pop(pair, None)
    return Observed(
        iteration_ns=sum(iterations_ns) / count,
        flow_ns=flow_ns,
        delivered_ns=delivered_ns,
        resent=resent,
        packets=packets,
    )


def intact(messages: Iterable[Message]) -> Observed:
    """Summarize the messages without retransmitted packets.

    Times are means per message.  The iteration time is omitted, because messages with
    retransmissions lengthen it.
    """
    own = [each for each in messages if not each.retransmitted]
    counts = Counter(each.pair for each in own)
    found = observed(own, [1])
    return Observed(
        iteration_ns=1.0,
        flow_ns={pair: each / counts[pair] for pair, each in found.flow_ns.items()},
        delivered_ns={
            pair: each / counts[pair] for pair, each in found.delivered_ns.items()
        },
    )


def takes_longer(run: Observed, other: Observed) -> bool:
    """Return whether *run* takes longer than *other*.

    This compares iteration times.  If they are equal, it compares the message times of
    pairs that occur in both runs.
    """
    if run.iteration_ns != other.iteration_ns:
        return run.iteration_ns > other.iteration_ns
    both = run.flow_ns.keys() & other.flow_ns.keys()
    return sum(run.flow_ns[each] for each in both) > sum(
        other.flow_ns[each] for each in both
    )


def misfit(measured: Observed, simulated: Observed) -> float:
    """Return the distance between a measured and a simulated run (0 is a perfect fit).

    The distance is the sum of:

    * The absolute log ratio of the iteration times.
    * The mean absolute log ratio of the message times of all pairs, to acknowledgment
      and to delivery, weighted by these times.  A pair that is missing from the
      simulation counts as 1. A delivery time that is unknown in one of the runs is
      ignored.
    * Half the difference in retransmitted packets, divided by their sum over both runs.
    """
    distance = abs(log(measured.iteration_ns / simulated.iteration_ns))
    weights = total = 0.0
    for pair, time_ns in measured.flow_ns.items():
        other_ns = simulated.flow_ns.get(pair)
        weight = max(time_ns, other_ns or 0.0)
        weights += weight
        if other_ns and time_ns:
            total += weight * abs(log(time_ns / other_ns))
        else:
            total += weight * _ABSENT
    for pair, time_ns in measured.delivered_ns.items():
        other_ns = simulated.delivered_ns.get(pair)
        if other_ns and time_ns:
            weight = max(time_ns, other_ns)
            weights += weight
            total += weight * abs(log(time_ns / other_ns))
    if weights:
        distance += total / weights
    apart = both = 0.0
    for pair in {*measured.resent, *simulated.resent}:
        here = measured.resent.get(pair, 0.0)
        there = simulated.resent.get(pair, 0.0)
        apart += abs(here - there)
        both += here + there
    return distance + _RESENT_WEIGHT * apart / (both + _FEW_RESENT)


def slow_ports(
    ways: Mapping[Pair, Collection[str]],
    measured: Observed,
    simulated: Observed,
    *,
    least: float,
) -> list[str]:
    """Return the ports that delay messages more than other ports, most likely first.

    The *excess* of a port compares log(measured / simulated time) of pairs, weighted by
    measured time.  It is the mean over the pairs that cross the port, minus the mean
    over all other pairs.  The variance that a port explains is its squared excess times
    the harmonic weight of both groups.

    The result alternates between ports with the largest excess and ports that explain
    the most variance.  The excess finds ports with few messages, and the variance finds
    ports that delay the whole job.

    Args:
        ways: Egress ports on the path of the messages, by pair of ranks.
        measured: The measured run.
        simulated: The simulated run.
        least: Minimum excess of a reported port.
    """
    # The offset damps the ratios of very short times, which vary a lot.
    least_ns = _SMALL * measured.iteration_ns
    ratios = {
        pair: (
            time_ns,
            log((time_ns + least_ns) / (simulated.flow_ns[pair] + least_ns)),
        )
        for pair, time_ns in measured.flow_ns.items()
        if time_ns and simulated.flow_ns.get(pair)
    }
    excess, explained = _contrast(ways, ratios)
    found = sorted(port for port, value in excess.items() if value >= least)
    orders = (
        sorted(found, key=lambda port: -excess[port]),
        sorted(found, key=lambda port: -explained[port]),
    )
    return list(
        dict.fromkeys(port for both in zip(*orders, strict=True) for port in both)
    )


def _contrast(
    ways: Mapping[Pair, Collection[str]], values: Mapping[Pair, tuple[float, float]]
) -> tuple[dict[str, float], dict[str, float]]:
    """Return the excess and the explained variance of each port."""
    weight = sum(each for each, _ in values.values())
    total = sum(each * value for each, value in values.values())
    inside: dict[str, list[float]] = {}
    for pair, (own, value) in values.items():
        for port in ways.get(pair, ()):
            sums = inside.setdefault(port, [0.0, 0.0])
            sums[0] += own
            sums[1] += own * value
    excess, explained = {}, {}
    for port, (own, value) in inside.items():
        rest = weight - own
        elsewhere = (total - value) / rest if rest > 0 else 0.0
        excess[port] = value / own - elsewhere if own else 0.0
        # If all messages cross a port, there is no other group to weigh against.
        explained[port] = excess[port] ** 2 * own * (rest or own) / weight
    return excess, explained


def late_hosts(waits: Mapping[str, float]) -> dict[str, float]:
    """Return the late times of hosts that were late much longer than others.

    The longest time comes first.

    Args:
        waits: Share of the run for which the data plane of each host was late.
    """
    limit = _LATER * median_low(waits.values()) if waits else 0.0
    if len(waits) > _FEW_HOSTS:
        limit = min(limit, _LATEST * sorted(waits.values())[-2])
    limit = max(LATE, limit)
    late = {host: share for host, share in waits.items() if share >= limit}
    return dict(sorted(late.items(), key=lambda item: -item[1]))


def pauses(samples: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the spans in which a port was paused, as start and end in ns.

    Args:
        samples: Sample times and the accumulated pause time at each, both in ns.
    """
    spans: list[tuple[int, int]] = []
    is_going_on = False
    for (before_ns, had_ns), (time_ns, paused_ns) in pairwise(samples):
        grown_ns = min(paused_ns - had_ns, time_ns - before_ns)
        if grown_ns > 0:
            if is_going_on:
                spans[-1] = spans[-1][0], before_ns + grown_ns
            else:
                spans.append((time_ns - grown_ns, time_ns))
        # A pause that lasts until a sample may continue after it.
        is_going_on = grown_ns > 0 and (
            is_going_on is False or before_ns + grown_ns >= time_ns
        )
    return [(max(0, at_ns), end_ns) for at_ns, end_ns in spans if end_ns > 0]
