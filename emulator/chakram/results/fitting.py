"""How well a simulated run fits a measured one, pair of ranks by pair of ranks.

A fault of a link is felt first by the messages that cross it: from when they are posted
to when they are acknowledged they take longer than simulated, while messages that only
wait for them are posted later, and then take as long as ever.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import log
from typing import NamedTuple

_FEW_RESENT = 20
"""So many packets sent again say nothing, in the sum of both runs."""

_RESENT_WEIGHT = 0.5


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


def misfit(measured: Observed, simulated: Observed) -> float:
    """Return how far a simulation is from what was measured; 0: not at all.

    It is the sum of three distances: of the logarithms of the iterations; of those of
    the message times of all pairs, weighted by these times; and half the share of the
    packets sent again that only one of the two runs has.
    """
    distance = abs(log(measured.iteration_ns / simulated.iteration_ns))
    weights = total = 0.0
    for pair, time_ns in measured.flow_ns.items():
        other_ns = simulated.flow_ns.get(pair)
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


def excess_at(
    ways: Mapping[Pair, Collection[str]], measured: Observed, simulated: Observed
) -> dict[str, float]:
    """Return by port how much longer messages that cross it take than others.

    It is the mean logarithm of measured over simulated time of the pairs that cross the
    port, less that of the pairs that do not; both weighted by time.
    """
    ratios = {
        pair: (time_ns, log(time_ns / simulated.flow_ns[pair]))
        for pair, time_ns in measured.flow_ns.items()
        if time_ns and simulated.flow_ns.get(pair)
    }
    return _contrast(ways, ratios)


def losses_at(
    ways: Mapping[Pair, Collection[str]], measured: Observed, simulated: Observed
) -> dict[str, float]:
    """Return by port the share sent again of what crosses it, less that of the rest.

    Packets that the simulation sends again as well do not count.
    """
    shares = {
        pair: (
            packets,
            max(0.0, measured.resent.get(pair, 0.0) - simulated.resent.get(pair, 0.0))
            / packets,
        )
        for pair, packets in measured.packets.items()
        if packets
    }
    return _contrast(ways, shares)


def _contrast(
    ways: Mapping[Pair, Collection[str]], values: Mapping[Pair, tuple[float, float]]
) -> dict[str, float]:
    weight = sum(each for each, _ in values.values())
    total = sum(each * value for each, value in values.values())
    inside: dict[str, list[float]] = {}
    for pair, (own, value) in values.items():
        for port in ways.get(pair, ()):
            sums = inside.setdefault(port, [0.0, 0.0])
            sums[0] += own
            sums[1] += own * value
    found = {}
    for port, (own, value) in inside.items():
        rest = weight - own
        elsewhere = (total - value) / rest if rest > 0 else 0.0
        found[port] = value / own - elsewhere if own else 0.0
    return found
