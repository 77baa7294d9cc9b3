"""Chooses the path of every flow through the virtual fabric, as switches that hash do.

Like a switch, it decides at every node among the links of equal cost, by a hash of what
makes a flow: both ends and the UDP source port.  So the packets of a queue pair stay
together, and which queue pairs collide is chance, but repeats with the seed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chakram.addresses import socket_text
from chakram.errors import FabricError, PlanError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from chakram.fabric.topology import PortRef, Topology
    from chakram.plan.plan import PortPlan
    from chakram.predict.simulator.engine import Wire

__all__ = ["Router", "flow_hash"]

_HASH_PRIME = 0x9E3779B1
"""2**32 over the golden ratio: spreads consecutive numbers over all bits."""


class Router:
    """Finds the wires of a path; what it says of a flow never changes.

    Args:
        ports: The sending and receiving ports.
        destinations: By port, the addresses and UDP ports that its bursts name by their
            index.
        topology: Their hosts, and what lies between them.
        wires: By the port of a node, the wire that begins there.
        seed: Of the hash.

    Raises:
        PlanError: If two ports have the same address and UDP port.
    """

    def __init__(
        self,
        *,
        ports: Sequence[PortPlan],
        destinations: Sequence[Sequence[tuple[str, int]]],
        topology: Topology,
        wires: Mapping[PortRef, Wire],
        seed: int,
    ) -> None:
        self._ports = ports
        self._destinations = destinations
        self._topology = topology
        self._wires = wires
        self._seed = seed
        self._index_of: dict[tuple[str, int], int] = {}
        for index, port in enumerate(ports):
            place = port.address, port.udp_port
            if place in self._index_of:
                raise PlanError(
                    "plan",
                    f"two ports have the address {socket_text(*place)}",
                    "give every port its own",
                )
            self._index_of[place] = index
        self._node_after = {
            end: link.other_end(end.node).node
            for link in topology.links
            for end in (link.a, link.b)
        }
        # Choices by node and by the switch of the receiving host: few, for many flows.
        self._next_hops: dict[tuple[str, str], tuple[PortRef, ...]] = {}

    def __call__(
        self, source: int, destination: int, source_port: int
    ) -> tuple[list[Wire], int]:
        """Return the wires that a flow crosses, and the index of the port it reaches.

        Args:
            source: Index of the sending port.
            destination: Index of the address among those of that port.
            source_port: UDP source port of the flow.

        Raises:
            PlanError: If the address is that of no port.
            FabricError: If there is no path.
        """
        place = self._destinations[source][destination]
        receiver = self._index_of.get(place)
        if receiver is None:
            raise PlanError(
                f"plan: port {self._ports[source].number}",
                f"sends to {socket_text(*place)}, which is the address of no port",
                "the plan is not complete",
            )
        if receiver == source:
            return [], receiver
        choice = flow_hash(self._seed, source, receiver, source_port)
        host, target = self._ports[source].host, self._ports[receiver].host
        wires = []
        node = host
        while node != target:
            hops = self._hops(node, target)
            if not hops:
                raise FabricError(
                    "topology",
                    f"there is no path from {host} to {target}",
                    "two ports need two connected hosts",
                )
            choice, index = divmod(choice, len(hops))
            wires.append(self._wires[hops[index]])
            node = self._node_after[hops[index]]
        if not wires:
            raise FabricError(
                "topology",
                f"two ports are on {host}",
                "two ports need two connected hosts",
            )
        return wires, receiver

    def _hops(self, node: str, target: str) -> tuple[PortRef, ...]:
        """Return the ports through which shortest paths to host *target* leave."""
        last = self._topology.switch_of(target)
        if node == last:
            return self._topology.next_hops(node, target)
        hops = self._next_hops.get((node, last))
        if hops is None:
            hops = self._topology.next_hops(node, target)
            self._next_hops[node, last] = hops
        return hops


def flow_hash(seed: int, source: int, destination: int, source_port: int) -> int:
    """Return a 32-bit number that tells flows apart, as a switch's ECMP hash does.

    It stands for a hash, not for the one of a particular switch or kernel: which flows
    collide is as random as there, and the same for the same seed.
    """
    value = seed & 0xFFFFFFFF
    for part in (source, destination, source_port):
        value = ((value ^ part) * _HASH_PRIME) & 0xFFFFFFFF
        value ^= value >> 15
    return value
