"""Detection of links that lose packets, from counters at the ends of paths.

Packets are counted where they enter a path or a switch, and where they leave it.  The
missing packets show which port in between loses packets, and how many.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import log

from chakram.records.run_records import LinkRecord

_ELSEWHERE = 0.02
"""Share of the losses that may occur elsewhere."""

_LESS_LIKELY = 2.0
"""Maximum deficit of a candidate's log-likelihood against the best port."""

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
        packets: By port, the number of these packets that were sent into it.
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
    This stops when another port would not make the losses much more likely.  Loss rates
    are maximum likelihood estimates for all ports together.

    Args:
        crossings: Paths of queue pairs, and switches.
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

        Of several ports with the same effect, only one is returned.
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


_IDLE = 0.02
"""A port that sends less than this share of its expected bytes is idle."""

_CHOSEN = 0.05
"""A port is ignored if it should send less than this share of its busiest peer.

Peers are the other ports of its equal-cost group.
"""

_FEW_WRONG = 0.1
"""Maximum share of corrupted packets at which a lossless switch is evidence."""


def node_of(port: str) -> str:
    """Return the name of the host or switch that owns a port."""
    return port.partition(":")[0]


@dataclass(frozen=True, kw_only=True)
class PortCounters:
    """Port and packet counters of a whole run.

    Attributes:
        links: Each direction of a link, by its egress port.
        packets: Packets sent by all hosts.
        wrong: Packets that arrived with a wrong checksum.
    """

    links: Mapping[str, LinkRecord]
    packets: int
    wrong: int

    @cached_property
    def _other_ends(self) -> dict[str, str]:
        ends: dict[str, str] = {}
        found: dict[str, str] = {}
        for port, link in self.links.items():
            other = ends.setdefault(link.link, port)
            if other != port:
                found |= {port: other, other: port}
        return found

    def other_end(self, port: str) -> str | None:
        """Return the port where the reverse direction begins, or None if unknown."""
        return self._other_ends.get(port)

    def names_of(self, ports: Iterable[str]) -> str:
        """Return the distinct link names of some ports, separated by commas."""
        return ", ".join(dict.fromkeys(self.links[port].link for port in ports))

    # Links that carry nothing.

    def idle(self, expected_bytes: Mapping[str, int]) -> list[str]:
        """Return the ports that sent almost nothing although an ECMP hash uses them.

        Args:
            expected_bytes: Bytes that each port sends in a simulation.
        """
        fullest: dict[str, int] = {}
        for port, link in self.links.items():
            if link.equal_cost is not None:
                most = max(fullest.get(link.equal_cost, 0), expected_bytes.get(port, 0))
                fullest[link.equal_cost] = most
        return [
            port
            for port, link in self.links.items()
            if link.equal_cost is not None
            and expected_bytes.get(port, 0) > _CHOSEN * fullest[link.equal_cost]
            and link.bytes < _IDLE * expected_bytes[port]
        ]

    def avoided(self, group: str | None) -> list[str]:
        """Return the ports of an equal-cost group that sent almost nothing."""
        bytes_by = {
            port: link.bytes
            for port, link in self.links.items()
            if link.equal_cost == group
        }
        limit = _IDLE * max(bytes_by.values(), default=0)
        return [port for port, sent in bytes_by.items() if sent <= limit]

    def carries_back(self, port: str) -> bool:
        """Return whether the reverse direction carried more than a few packets."""
        other = self.other_end(port)
        if other is None:
            return False
        alike = [
            link.bytes
            for link in self.links.values()
            if link.kind == self.links[port].kind
        ]
        return self.links[other].bytes > _IDLE * sum(alike) / len(alike)

    # Lost packets.

    @cached_property
    def missing(self) -> dict[str, float]:
        """Packets sent to each switch that it did not forward, by switch name."""
        hosts = {node_of(port) for port, link in self.links.items() if _is_up(link)}
        switches = sorted({*map(node_of, self.links)} - hosts)
        sums = dict.fromkeys(switches, 0.0)
        for port, link in self.links.items():
            other = self.other_end(port)
            if node_of(port) in sums:
                sums[node_of(port)] -= link.bytes
            if other is not None and node_of(other) in sums:
                sums[node_of(other)] += link.bytes
        if not self._frame_bytes:
            return {}
        return {name: max(0.0, each / self._frame_bytes) for name, each in sums.items()}

    @cached_property
    def _frame_bytes(self) -> float:
        by_hosts = sum(link.bytes for link in self.links.values() if _is_up(link))
        return by_hosts / self.packets if self.packets else 0.0

    @cached_property
    def overflowing(self) -> frozenset[str]:
        """Ports whose queues dropped packets instead of sending them."""
        return frozenset(filter(self._overflows, self.links))

    def _overflows(self, port: str) -> bool:
        # A packet lost on a link counts as sent, so it is missing at the next switch.
        drops, other = self.links[port].drops or 0, self.other_end(port)
        if not drops or other is None:
            return False
        if node_of(other) in self.missing:
            return self.missing[node_of(other)] < drops / 2
        return self.missing.get(node_of(port), 0.0) >= drops / 2

    def through_switches(self, lost: float) -> Iterator[Crossing]:
        """Yield the packets sent to each switch, and how many it did not forward.

        Switches forward corrupted packets.  If many packets were corrupted, a switch
        that forwarded everything proves nothing and is skipped.  Switches with
        overflowing queues are skipped, too.

        Args:
            lost: Packets that did not arrive, or arrived corrupted.
        """
        full = set(map(node_of, self.overflowing))
        for switch, missing in self.missing.items():
            into = {
                other: self.links[other].bytes / self._frame_bytes
                for port in self.links
                if node_of(port) == switch and (other := self.other_end(port))
            }
            if switch not in full and (missing or self.wrong < _FEW_WRONG * lost):
                yield Crossing(into, missing)


def _is_up(link: LinkRecord) -> bool:
    """Return whether a link direction begins at a host."""
    return link.kind == "host" and link.direction == "up"
