"""Evidence of dead links, losses and full queues in the port counters of a fabric."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from chakram.analysis.lossy_links import Crossing

if TYPE_CHECKING:
    from chakram.records.run_records import LinkRecord

_IDLE = 0.02
"""A port that sends less than this share of its expected bytes is idle."""

_CHOSEN = 0.05
"""Minimum expected load of a port, as a share of the load of its busiest peer.

Ports with less expected load are ignored.  Peers are the other ports of the same
equal-cost group.
"""

_OVERFLOWED = 0.1
"""A queue that dropped a smaller share of the lost packets does not explain them."""

_FEW_WRONG = 0.1
"""Share of corrupted packets above which a switch without losses is no evidence.

The share refers to all packets that were lost or corrupted.
"""


def node_of(port: str) -> str:
    """Return the name of the host or switch that owns a port."""
    return port.partition(":")[0]


@dataclass(frozen=True, kw_only=True)
class PortCounters:
    """Port and packet counters of a whole run.

    Attributes:
        links: Link directions, by the egress port where each direction begins.
        packets: Number of packets sent by all hosts.
        wrong: Number of packets that arrived with a wrong checksum.
        uncounted: Switches with traffic on links that no switch counted.
    """

    links: Mapping[str, LinkRecord]
    packets: int
    wrong: int
    uncounted: Collection[str] = frozenset()

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

    # Links that carry almost nothing.

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

    def dead(
        self, idle: Collection[str], expected_bytes: Mapping[str, int]
    ) -> list[str]:
        """Return the idle ports whose link may be down.

        A link that carries data in the other direction is not down, so the routes of
        its switch have changed.  The new routes also explain the other idle ports of
        the same equal-cost group.  A port remains a suspect if the other direction of
        its link should carry data, too.

        Args:
            idle: Ports that ``idle`` returned.
            expected_bytes: Bytes that each port sends in a simulation.
        """
        measured_bytes = {port: link.bytes for port, link in self.links.items()}
        alive = {port for port in idle if self._carries_back(port, measured_bytes)}
        rerouted = {self.links[port].equal_cost for port in alive}
        return [
            port
            for port in idle
            if port not in alive
            and (
                self.links[port].equal_cost not in rerouted
                or self._carries_back(port, expected_bytes)
            )
        ]

    def misfit_of_bytes(self, simulated_bytes: Mapping[str, int]) -> float:
        """Return the share of the bytes between switches that took unexpected links.

        This is the total variation distance: 0 if each link carried the same share as
        in the simulation, and 1 if the simulation used none of the links that the run
        used.

        Args:
            simulated_bytes: Bytes that each port sends in a simulation.
        """
        ports = [port for port, link in self.links.items() if link.kind != "host"]
        carried = sum(self.links[port].bytes for port in ports)
        simulated = sum(simulated_bytes.get(port, 0) for port in ports)
        if not carried or not simulated:
            return 1.0
        return 0.5 * sum(
            abs(
                self.links[port].bytes / carried
                - simulated_bytes.get(port, 0) / simulated
            )
            for port in ports
        )

    def _carries_back(self, port: str, bytes_by: Mapping[str, int]) -> bool:
        """Return whether the reverse direction carries more than a few packets."""
        other = self.other_end(port)
        if other is None:
            return False
        kind = self.links[port].kind
        alike = [
            bytes_by.get(each, 0)
            for each, link in self.links.items()
            if link.kind == kind
        ]
        return bytes_by.get(other, 0) > _IDLE * sum(alike) / len(alike)

    # Lost packets.

    @cached_property
    def missing(self) -> dict[str, float]:
        """Number of packets that a switch received but did not forward, by switch.

        Switches with uncounted links are omitted, because the number is unknown there.
        """
        hosts = {node_of(port) for port, link in self.links.items() if _is_up(link)}
        switches = sorted({*map(node_of, self.links)} - hosts - {*self.uncounted})
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

    def overflowing_instead(self, lost: Mapping[str, int]) -> frozenset[str]:
        """Return the ports whose overflow may explain the losses on paths across them.

        Args:
            lost: Number of packets lost on all paths that cross a port, by port.
        """
        return frozenset(
            port
            for port in self.overflowing
            if (self.links[port].drops or 0) >= _OVERFLOWED * lost.get(port, 0)
        )

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

        Switches forward corrupted packets. If many packets were corrupted, a switch
        that forwarded all packets is no evidence and is skipped. Switches with
        overflowing queues are skipped, too.

        Args:
            lost: Number of packets that did not arrive, or arrived corrupted.
        """
        full = set(map(node_of, self.overflowing))
        for switch, missing in self.missing.items():
            own = [port for port in self.links if node_of(port) == switch]
            crossed = [other for port in own if (other := self.other_end(port))]
            if missing:
                # Packets were lost before the switch, or in it before an egress port
                # counted them.
                crossed += own
            if switch not in full and (missing or self.wrong < _FEW_WRONG * lost):
                packets = {
                    port: self.links[port].bytes / self._frame_bytes for port in crossed
                }
                yield Crossing(packets, missing)


def _is_up(link: LinkRecord) -> bool:
    """Return whether a link direction begins at a host."""
    return link.kind == "host" and link.direction == "up"
