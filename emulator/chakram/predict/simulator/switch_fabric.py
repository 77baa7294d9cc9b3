"""Modeled switches of a topology, with numbered ports, and PFC deadlock detection.

A link depends on a second link if its packets may continue on the second link. While
the second link is paused, packets fill the buffer at the end of the first link. The
first link is then paused, too. If links form a dependency cycle, lossless traffic can
deadlock.

Source: S. Hu et al., "Deadlocks in datacenter networks: why do they form, and how to
avoid them" (HotNets 2016).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from chakram.foundation.errors import FabricError
from chakram.switch.headroom import LinkEnd
from chakram.switch.model import SwitchModel
from chakram.switch.settings import HostSpec, PortSpec, SwitchSpec

if TYPE_CHECKING:
    from chakram.switch.port import Port
    from chakram.switch.profiles import Profile
    from chakram.topology.topology import Link, PortRef, Topology

__all__ = ["SwitchFabric", "port_names"]

_JITTER_NS = 30_000
"""Maximum random send delay of a lab host in the model.

A sleeping process wakes up to about 50 us late, even with a dedicated core. Without
this delay, senders that lose packets would lose them repeatedly at the same times.
"""


class SwitchFabric:
    """The switches and hosts of a topology as one model.

    Args:
        topology: Hosts, switches and links.
        profile: Profile of the switches.
        ecn: Whether packets are ECN-capable. If not, no packet is marked.
        seed: Seed for ECN marks and random choices.

    Attributes:
        model: The switches in the order of the topology, then the hosts.
        ends: Ports by number.
        delays_ns: For each port number, the propagation delay of its link.
        host_ports: Port number of each host, in the order of the topology.
        has_choice: Whether there are equal-cost paths.

    Raises:
        FabricError: If a switch has too little memory for its profile.
    """

    def __init__(
        self, topology: Topology, profile: Profile, *, ecn: bool, seed: int
    ) -> None:
        self._topology = topology
        links = topology.ends()
        self.ends: list[PortRef] = [link.end_at(node) for node, link in links]
        self.delays_ns = [link.delay_ns for _, link in links]
        self._number_of = {end: number for number, end in enumerate(self.ends)}
        self._number_named = {str(end): n for end, n in self._number_of.items()}
        nodes = (*topology.switches, *topology.hosts)
        self._node_of = {node: number for number, node in enumerate(nodes)}
        self._nodes = nodes
        # Next hops by switch and switch of the destination. Many hosts share an entry.
        self._hops: dict[tuple[str, str], list[int]] = {}
        self.model = SwitchModel(
            switches=[self._switch(name, profile, ecn) for name in topology.switches],
            hosts=[self._host(name, profile) for name in topology.hosts],
            next_hops=self.next_hops,
            seed=seed,
        )
        self.host_ports = [self.host_port(host) for host in topology.hosts]
        self.has_choice = any(map(topology.has_choice, topology.switches))

    def node(self, name: str) -> int:
        """Return the number of a host or switch."""
        return self._node_of[name]

    def port(self, end: PortRef) -> int:
        """Return the number of a port."""
        return self._number_of[end]

    def named(self, end: str) -> Port:
        """Return the port with the name *end*, ``node:port`` as in records."""
        return self.model.port(self._number_named[end])

    def host_port(self, host: str) -> int:
        """Return the number of the port of a host."""
        return self._number_of[self._topology.host_link(host).end_at(host)]

    def next_hops(self, node: int, destination: int) -> list[int]:
        """Return the ports on shortest paths: see ``Forwarding``."""
        name, target = self._nodes[node], self._nodes[destination]
        last = self._topology.switch_of(target)
        hops = self._hops.get((name, last)) if name not in (last, target) else None
        if hops is None:
            ends = self._topology.next_hops(name, target)
            hops = [self._number_of[end] for end in ends]
            if name not in (last, target):
                self._hops[name, last] = hops
        return hops

    def buffer_cycle(self) -> tuple[str, ...]:
        """Return the names of ports in a buffer dependency cycle, if there is one.

        Without PFC there is no cycle. Hosts of one switch are equivalent.
        """
        if not any(port.pauses() for port in self.model.ports()):
            return ()
        topology = self._topology
        one_of = {topology.switch_of(host): host for host in topology.hosts}
        return buffer_cycle(
            self.model,
            next_hops=self.next_hops,
            destinations=[self.node(host) for host in one_of.values()],
        )

    def _switch(self, name: str, profile: Profile, ecn: bool) -> SwitchSpec:
        links = self._topology.links_of(name)
        try:
            settings = profile.switch(
                [
                    LinkEnd(rate_bps=each.rate_bps, delay_ns=each.delay_ns)
                    for each in links
                ],
                queue_bytes=[each.queue_bytes for each in links],
                thresholds=[
                    None
                    if each.ecn is None or not ecn
                    else (
                        each.ecn.kmin_bytes,
                        each.ecn.kmax_bytes,
                        each.ecn.probability,
                    )
                    for each in links
                ],
            )
        except ValueError as error:
            raise FabricError(
                f"switch {name}", str(error), "use a larger buffer"
            ) from None
        return SwitchSpec(
            name=name,
            settings=settings,
            ports=tuple(self._port(name, each) for each in links),
        )

    def _host(self, name: str, profile: Profile) -> HostSpec:
        link = self._topology.host_link(name)
        return HostSpec(
            port=self._port(name, link),
            # A NIC does not drop the packets of its host.
            settings=profile.host(queue_bytes=None),
        )

    def _port(self, node: str, link: Link) -> PortSpec:
        return PortSpec(
            name=str(link.end_at(node)),
            rate_bps=link.rate_bps,
            bucket_bytes=self._topology.saved_bytes(node, link),
            jitter_ns=_JITTER_NS if node in self._topology.hosts else 0,
            peer=self._number_of[link.other_end(node)],
        )


def port_names(topology: Topology) -> list[str]:
    """Return the names of the ports of a model, by their number."""
    return [str(link.end_at(node)) for node, link in topology.ends()]


def buffer_cycle(
    model: SwitchModel,
    *,
    next_hops: Callable[[int, int], Sequence[int]],
    destinations: Iterable[int],
) -> tuple[str, ...]:
    """Return the names of ports in a buffer dependency cycle, if there is one.

    Each port sends to the switch of the next port, and the last port to the switch of
    the first.

    Args:
        model: The fabric.
        next_hops: Function that returns the next hops, as in the model.
        destinations: Destination nodes of traffic.
    """
    ports = model.ports()
    switches = {port.node for port in ports if not port.is_host}
    depends: dict[int, set[int]] = {port.number: set() for port in ports}
    for destination in destinations:
        out = {
            node: list(next_hops(node, destination))
            for node in switches
            if node != destination
        }
        # Ports where packets for this destination may queue, following next hops from
        # hosts.
        reached = [port.number for port in ports if port.is_host]
        seen = set(reached)
        while reached:
            number = reached.pop()
            peer = ports[number].peer
            if peer < 0:
                continue
            for after in out.get(ports[peer].node, ()):
                depends[number].add(after)
                if after not in seen:
                    seen.add(after)
                    reached.append(after)
    return tuple(ports[number].name for number in _cycle(depends))


def _cycle(edges: dict[int, set[int]]) -> list[int]:
    """Return the nodes of a cycle in order, or an empty list if there is no cycle."""
    done: set[int] = set()
    for start in edges:
        if start in done:
            continue
        path: list[int] = []
        on_path: set[int] = set()
        stack: list[tuple[int, bool]] = [(start, False)]
        while stack:
            node, is_left = stack.pop()
            if is_left:
                path.pop()
                on_path.discard(node)
                done.add(node)
                continue
            if node in on_path:
                return path[path.index(node) :]
            if node in done:
                continue
            path.append(node)
            on_path.add(node)
            stack.append((node, True))
            stack.extend((after, False) for after in sorted(edges[node]))
    return []
