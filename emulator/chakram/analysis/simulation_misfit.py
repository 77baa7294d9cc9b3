"""How well a simulated run fits a measured one, pair of ranks by pair of ranks.

A fault of a link is felt first by the messages that cross it: from when they are posted
to when they are acknowledged they take longer than simulated, while messages that only
wait for them are posted later, and then take as long as ever.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import log
from statistics import median_low
from typing import NamedTuple

_FEW_RESENT = 20
"""So many packets sent again say nothing, in the sum of both runs."""

_RESENT_WEIGHT = 0.5

_ABSENT = 1.0
"""Logarithm for a pair of ranks without messages that can be compared."""

_SMALL = 0.02

LATE = 0.1
"""A host that is late for less than that share of the time is not suspected."""

_LATER = 2.0
"""And neither is one that is less than so many times as late as most others."""


class Pair(NamedTuple):
    """A rank that sends to another."""

    job: str
    src: int
    dst: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What a run, or some iterations of it, showed.

    Attributes:
        iteration_ns: Mean time of an iteration.
        flow_ns: By pair of ranks the mean time of its messages in an iteration, summed.
        resent: By pair the mean number of packets sent again in an iteration.
        packets: By pair, of all packets.
    """

    iteration_ns: float
    flow_ns: Mapping[Pair, float] = field(default_factory=dict)
    resent: Mapping[Pair, float] = field(default_factory=dict)
    packets: Mapping[Pair, float] = field(default_factory=dict)

    @property
    def resent_share(self) -> float:
        """Packets sent again per packet."""
        packets = sum(self.packets.values())
        return sum(self.resent.values()) / packets if packets else 0.0


def observed(
    flows: Iterable[tuple[Pair, int, int, int]], iterations_ns: Sequence[int]
) -> Observed:
    """Return what messages and iterations showed.

    Args:
        flows: Of each message its pair, its time in ns, packets, packets sent again.
        iterations_ns: Times of the iterations that the messages are of.

    Raises:
        ValueError: If there is no iteration.
    """
    if not iterations_ns:
        raise ValueError("no iteration")
    count = len(iterations_ns)
    flow_ns: dict[Pair, float] = {}
    resent: dict[Pair, float] = {}
    packets: dict[Pair, float] = {}
    for pair, time_ns, sent, again in flows:
        flow_ns[pair] = flow_ns.get(pair, 0.0) + time_ns / count
        packets[pair] = packets.get(pair, 0.0) + sent / count
        resent[pair] = resent.get(pair, 0.0) + again / count
    return Observed(
        iteration_ns=sum(iterations_ns) / count,
        flow_ns=flow_ns,
        resent=resent,
        packets=packets,
    )


def intact(flows: Iterable[tuple[Pair, int, int, int]]) -> Observed:
    """Return what messages showed of which no packet was sent again.

    Times are means of a message, and the time of iterations is left out: others make it
    longer.

    Args:
        flows: As for ``observed``.
    """
    times_ns: dict[Pair, list[int]] = {}
    for pair, time_ns, _, again in flows:
        if not again:
            times_ns.setdefault(pair, []).append(time_ns)
    return Observed(
        iteration_ns=1.0,
        flow_ns={pair: sum(each) / len(each) for pair, each in times_ns.items()},
    )


def takes_longer(run: Observed, other: Observed) -> bool:
    """Tell whether iterations, or else messages of the same pairs, take longer."""
    if run.iteration_ns != other.iteration_ns:
        return run.iteration_ns > other.iteration_ns
    both = run.flow_ns.keys() & other.flow_ns.keys()
    return sum(run.flow_ns[each] for each in both) > sum(
        other.flow_ns[each] for each in both
    )


def misfit(measured: Observed, simulated: Observed) -> float:
    """Return how far a simulation is from what was measured; 0: not at all.

    It is the sum of three distances: of the logarithms of the iterations; of those of
    the message times of all pairs, weighted by these times, 1 for pairs that the
    simulation lacks; and half the share of the packets sent again that only one of the
    two runs has.
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
    """Return the ports whose messages take longer than others, the likeliest first.

    The *excess* of a port is the mean logarithm of measured over simulated time of the
    pairs that cross it, less that of the pairs that do not, both weighted by time.  The
    variance of the logarithms that a port explains is its squared excess times the
    harmonic weight of both groups.  Ports with the largest excess and ports that
    explain most alternate: a port of few messages has the one, a port that delays the
    whole job has the other.

    Args:
        ways: By pair the ports that its messages leave by.
        measured: What was measured.
        simulated: What was simulated.
        least: The excess that a port has to have.
    """
    # Times that are nothing beside an iteration differ by much for little reason.
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
    """Return by port its excess, and the variance that it explains."""
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
        # Where all messages cross a port, nothing is left to compare it with.
        explained[port] = excess[port] ** 2 * own * (rest or own) / weight
    return excess, explained


def late_hosts(waits: Mapping[str, float]) -> dict[str, float]:
    """Return the hosts that were late for longer than the others, the latest first.

    Args:
        waits: By host the share of the run for which its data plane was late.
    """
    usual = median_low(waits.values()) if waits else 0.0
    late = {
        host: share
        for host, share in waits.items()
        if share >= max(LATE, _LATER * usual)
    }
    return dict(sorted(late.items(), key=lambda item: -item[1]))


def pauses(samples: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return when a port was paused: begin and end of each span, in ns.

    Args:
        samples: Times, and for how long the port had been paused by then, in ns.
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
        # A pause that fills the time until a sample may go on after it.
        is_going_on = grown_ns > 0 and (
            is_going_on is False or before_ns + grown_ns >= time_ns
        )
    return [(max(0, at_ns), end_ns) for at_ns, end_ns in spans if end_ns > 0]
