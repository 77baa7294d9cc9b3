"""Paths of flows through a fabric whose switches use ECMP hashing.

With a known hash, the paths are known before the first packet. The simulator's hash is
known, and so is the kernel's hash in a lab.
"""

from __future__ import annotations

from collections.abc import Sequence

from chakram.foundation.errors import FabricError, PlanError
from chakram.foundation.ip_addresses import socket_text
from chakram.plan.plan import Plan, QueuePairPlan
from chakram.plan.port_plan import PortPlan
from chakram.switch.ecmp import EcmpHash, Flow
from chakram.topology.topology import PortRef, Topology


def ports_of(plan: Plan) -> list[PortPlan]:
    """Return the ports of a plan in the order in which routers number them."""
    return [port for agent in plan.agents for port in agent.ports]


class Router:
    """Finds the path of each flow. The path of a flow never changes.

    Args:
        ports: The sending and receiving ports.
        topology: Hosts, switches and links.
        ecmp: Hash that the switches use to select a path.

    Raises:
        PlanError: If two ports have the same address and UDP port.
    """

    def __init__(
        self, *, ports: Sequence[PortPlan], topology: Topology, ecmp: EcmpHash
    ) -> None:
        self._ports = ports
        self._topology = topology
        self._ecmp = ecmp
        self._index_of: dict[tuple[str, int], int] = {}
        for index, port in enumerate(ports):
            place = port.address, port.udp_port
            if place in self._index_of:
                raise PlanError(
                    "plan",
                    f"two ports have the address {socket_text(*place)}",
                    "give every port its own address",
                )
            self._index_of[place] = index
        self._number_of = {
            switch: number for number, switch in enumerate(topology.switches)
        }
        self._node_after = {
            end: link.other_end(end.node).node
            for link in topology.links
            for end in (link.a, link.b)
        }
        # Next hops by node and switch of the receiving host. Many flows share an entry.
        self._next_hops: dict[tuple[str, str], tuple[PortRef, ...]] = {}

    def __call__(
        self, source: int, address: str, udp_port: int, source_port: int
    ) -> tuple[tuple[PortRef, ...], int]:
        """Return the egress ports of a flow's path, and the receiving port's index.

        The first egress port belongs to the sending host. If a port sends to itself,
        the path is empty.

        Args:
            source: Index of the sending port.
            address: Address of the receiving port.
            udp_port: UDP port of the receiving port.
            source_port: UDP source port of the flow.

        Raises:
            PlanError: If no port has the address.
            FabricError: If there is no path.
        """
        receiver = self.receiver(source, address, udp_port)
        if receiver == source:
            return (), receiver
        sender = self._ports[source]
        host, target = sender.host, self._ports[receiver].host
        choose = self._ecmp.chooser(
            Flow(
                sender=sender.number,
                receiver=self._ports[receiver].number,
                source=sender.address,
                destination=address,
                source_port=source_port,
                destination_port=udp_port,
            )
        )
        ends: list[PortRef] = []
        node = host
        while node != target:
            hops = self._hops(node, target)
            if not hops:
                raise no_path(host, target)
            # A host has one link, so only switches choose.
            number = self._number_of.get(node)
            end = hops[0 if number is None else choose(number, len(hops))]
            ends.append(end)
            node = self._node_after[end]
        return tuple(ends), receiver

    def receiver(self, source: int, address: str, udp_port: int) -> int:
        """Return the index of the receiving port, given the arguments of ``__call__``.

        Raises:
            PlanError: If no port has the address.
            FabricError: If the receiver is another port of the same host.
        """
        sender = self._ports[source]
        receiver = self._index_of.get((address, udp_port))
        if receiver is None:
            raise PlanError(
                f"plan: port {sender.number}",
                f"sends to {socket_text(address, udp_port)}, which is not the address "
                "of any port",
                "create the plan again: it is incomplete",
            )
        if receiver != source and self._ports[receiver].host == sender.host:
            raise FabricError(
                "topology",
                f"two ports are on {sender.host}",
                "put the ports on two connected hosts",
            )
        return receiver

    def _hops(self, node: str, target: str) -> tuple[PortRef, ...]:
        """Return the egress ports of shortest paths from *node* to host *target*."""
        last = self._topology.switch_of(target)
        if node == last:
            return self._topology.next_hops(node, target)
        hops = self._next_hops.get((node, last))
        if hops is None:
            hops = self._topology.next_hops(node, target)
            self._next_hops[node, last] = hops
        return hops


def no_path(host: str, target: str) -> FabricError:
    """Return the error for two hosts without a path between them."""
    return FabricError(
        "topology",
        f"there is no path from {host} to {target}",
        "put the ports on two connected hosts",
    )


class PathFinder:
    """Finds the paths of recorded messages by their queue pair.

    Args:
        plan: The plan, whose ports are on hosts of the topology.
        topology: Hosts, switches and links.
        ecmp: Hash that the switches use to select a path.

    Raises:
        PlanError: If two ports have the same address and UDP port.
    """

    def __init__(self, plan: Plan, topology: Topology, ecmp: EcmpHash) -> None:
        ports = ports_of(plan)
        self._router = Router(ports=ports, topology=topology, ecmp=ecmp)
        self._index_of = {port.number: index for index, port in enumerate(ports)}
        self._ranks = {
            (rank.program.job, rank.program.rank): rank for rank in plan.ranks()
        }
        self._divided = {
            (rank.program.job, rank.program.rank)
            for agent in plan.agents
            for rank in agent.ranks
            if agent.transport.split == "even"
        }
        self._pairs: dict[tuple[str, int], dict[int, QueuePairPlan]] = {}

    def __call__(self, job: str, rank: int, qpn: int) -> tuple[tuple[str, ...], ...]:
        """Return the inter-switch egress ports of each path of a rank's queue pair.

        If messages are split evenly over several queue pairs, the result has one path
        for each queue pair.
        """
        place = self._ranks[job, rank]
        pairs = self._pairs.get((job, rank))
        if pairs is None:
            pairs = {pair.qpn: pair for pair in place.queue_pairs}
            self._pairs[job, rank] = pairs
        pair = pairs.get(qpn)
        if pair is None or pair.local_rate_bps is not None:
            return ((),)
        together = [pair]
        if (job, rank) in self._divided:
            key = (pair.group, pair.channel, pair.peer_rank)
            together = [
                each
                for each in place.queue_pairs
                if (each.group, each.channel, each.peer_rank) == key
            ]
        return tuple(self._way(place.port, each) for each in together)

    def _way(self, port: int, pair: QueuePairPlan) -> tuple[str, ...]:
        ends, _ = self._router(
            self._index_of[port],
            pair.remote_address,
            pair.remote_udp_port,
            pair.source_port,
        )
        # The first port belongs to the host, and the last port to the receiver's
        # switch.
        return tuple(str(end) for end in ends[1:-1])
