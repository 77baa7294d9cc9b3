"""Detection of links that lose packets, from counters at the ends of paths.

Packets are counted where they enter a path or a switch, and where they leave it. The
missing packets show which port between these points loses packets, and how many.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log

_ELSEWHERE = 0.02
"""Share of the losses that may occur elsewhere."""

_LESS_LIKELY = 2.0
"""Maximum difference between the log-likelihoods of the best port and a candidate."""

_MORE_LIKELY = 8.0
"""Minimum gain in log-likelihood from another lossy port."""

_MOST_LOSSY = 3
_PROMISING = 12
_ESTIMATES = 25
"""Number of expectation-maximization steps."""


@dataclass(frozen=True, slots=True)
class Crossing:
    """Packets that were counted where they were sent and where they should arrive.

    Attributes:
        packets: Number of these packets that were sent into each port.
        lost: Number of packets that did not arrive.
    """

    packets: Mapping[str, float]
    lost: float


def lossy_ports(
    crossings: Sequence[Crossing], known: Sequence[str] = ()
) -> list[tuple[str, float]]:
    """Return candidates for a port that loses packets, with their loss rates.

    The model is that each port loses a share of the packets sent into it.  Any packet
    may also be lost elsewhere, with a small probability.  So the losses of a crossing
    follow a Poisson distribution.

    Ports are added one by one, starting with the port that best explains the losses.
    The search stops when another port would not make the losses much more likely.  Loss
    rates are maximum likelihood estimates for all ports together.

    Args:
        crossings: Packets counted on the paths of queue pairs, and at switches.
        known: Ports already known to lose packets.

    Returns:
        The first port that was added, and the ports that explain nearly as much in its
        place, most likely first.
    """
    crossed = sorted({port for each in crossings if each.lost for port in each.packets})
    lossy = _Lossy(crossings)
    added: list[str] = []
    now, _ = lossy.fit(known)
    while len(added) < _MOST_LOSSY:
        chosen = (*known, *added)
        likely = {
            port: lossy.fit((*chosen, port))[0] for port in lossy.promising(chosen)
        }
        best = max(likely, key=lambda port: likely[port], default=None)
        if best is None or likely[best] < now + _MORE_LIKELY:
            break
        added.append(best)
        now = likely[best]
    if not added:
        return []
    others = (*known, *added[1:])
    fits = {port: lossy.fit((*others, port)) for port in crossed if port not in others}
    near = [port for port, (value, _) in fits.items() if value >= now - _LESS_LIKELY]
    near.sort(key=lambda port: (-round(fits[port][0], 6), port))
    return [(port, fits[port][1][-1]) for port in near]


class _Lossy:
    """Likelihood of the losses if some ports lose a share of their packets."""

    def __init__(self, crossings: Sequence[Crossing]) -> None:
        self._rows = [
            (each.packets, max(each.packets.values()), each.lost)
            for each in crossings
            if any(each.packets.values())
        ]
        sent = sum(each for _, each, _ in self._rows)
        lost = sum(each for _, _, each in self._rows)
        self._elsewhere = _ELSEWHERE * lost / max(1, sent) or 1e-12

    def fit(self, ports: Sequence[str]) -> tuple[float, list[float]]:
        """Return the log-likelihood and the loss rates of *ports*."""
        rows = [
            (
                [
                    (at, packets[port])
                    for at, port in enumerate(ports)
                    if port in packets
                ],
                self._elsewhere * sent,
                lost,
            )
            for packets, sent, lost in self._rows
        ]
        crossing = [0.0] * len(ports)
        for own, _, _ in rows:
            for at, packets in own:
                crossing[at] += packets
        shares = [0.1] * len(ports)
        for _ in range(_ESTIMATES):
            found = [0.0] * len(ports)
            for own, elsewhere, lost in rows:
                if own and lost:
                    whole = elsewhere + sum(shares[at] * each for at, each in own)
                    for at, each in own:
                        found[at] += lost * shares[at] * each / whole
            shares = [
                value / each if each else 0.0
                for value, each in zip(found, crossing, strict=True)
            ]
        likely = 0.0
        for own, elsewhere, lost in rows:
            whole = elsewhere + sum(shares[at] * each for at, each in own)
            likely += (lost * log(whole) if lost else 0.0) - whole
        return likely, shares

    def promising(self, chosen: Sequence[str]) -> list[str]:
        """Return the ports, except *chosen*, that best explain the remaining losses.

        If several ports have the same effect, only one of them is returned.
        """
        share_of = dict(zip(chosen, self.fit(chosen)[1], strict=True))
        slope: dict[str, float] = {}
        curvature: dict[str, float] = {}
        for packets, sent, lost in self._rows:
            whole = self._elsewhere * sent
            whole += sum(share_of.get(port, 0.0) * n for port, n in packets.items())
            for port, count in packets.items():
                slope[port] = slope.get(port, 0.0) + count * (lost / whole - 1)
                square = lost * (count / whole) ** 2
                curvature[port] = curvature.get(port, 0.0) + square
        alike = {
            (slope[port], curvature[port]): port
            for port in sorted(slope, reverse=True)
            if slope[port] > 0 and curvature[port] and port not in share_of
        }
        # Sort by the gain of one Newton step.
        best = sorted(alike, key=lambda each: -(each[0] ** 2) / each[1])
        return [alike[each] for each in best[:_PROMISING]]
