"""The path of every flow through a fabric whose switches hash.

Whoever knows the hash knows the paths before the first packet: those of the simulator,
and those of a lab, whose kernel's hash is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from chakram.foundation.errors import FabricError, PlanError
from chakram.foundation.ip_addresses import socket_text
from chakram.switch.ecmp import EcmpHash, Flow

if TYPE_CHECKING:
    from chakram.plan.plan import Plan, PortPlan, QueuePairPlan
    from chakram.topology.topology import PortRef, Topology


def ports_of(plan: Plan) -> list[PortPlan]:
    """Return the ports of a plan in the order that routers number them in."""
    return [port for agent in plan.agents for port in agent.ports]


class Router:
    """Finds paths; what it says of a flow never changes.

    Args:
        ports: The sending and receiving ports.
        topology: Their hosts, and what lies between them.
        ecmp: How its switches choose.

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
                    "give every port its own",
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
        # Choices by node and by the switch of the receiving host: few, for many flows.
        self._next_hops: dict[tuple[str, str], tuple[PortRef, ...]] = {}

    def __call__(
        self, source: int, address: str, udp_port: int, source_port: int
    ) -> tuple[tuple[PortRef, ...], int]:
        """Return the ports that a flow leaves by, and the index of the one it reaches.

        The first one is that of the sending host; there is none where a port sends to
        itself.

        Args:
            source: Index of the sending port.
            address: Of the receiving port.
            udp_port: Likewise.
            source_port: UDP source port of the flow.

        Raises:
            PlanError: If the address is that of no port.
            FabricError: If there is no path.
        """
        receiver = self.receiver(source, address, udp_port)
        if receiver == source:
            return (), receiver
        sender = self._ports[source]
        host, target = sender.host, self._ports[receiver].host
        choose = self._ecmp.chooser(
            Flow(
                sender=source,
                receiver=receiver,
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
            # A host has one link: only switches choose.
            number = self._number_of.get(node)
            end = hops[0 if number is None else choose(number, len(hops))]
            ends.append(end)
            node = self._node_after[end]
        return tuple(ends), receiver

    def receiver(self, source: int, address: str, udp_port: int) -> int:
        """Return the index of the port that a port sends to; arguments as above.

        Raises:
            PlanError: If the address is that of no port.
            FabricError: If it is another port of the same host.
        """
        sender = self._ports[source]
        receiver = self._index_of.get((address, udp_port))
        if receiver is None:
            raise PlanError(
                f"plan: port {sender.number}",
                f"sends to {socket_text(address, udp_port)}, which is the address of "
                "no port",
                "the plan is not complete",
            )
        if receiver != source and self._ports[receiver].host == sender.host:
            raise FabricError(
                "topology",
                f"two ports are on {sender.host}",
                "two ports need two connected hosts",
            )
        return receiver

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


def no_path(host: str, target: str) -> FabricError:
    """Return what is wrong if nothing leads from one host to another."""
    return FabricError(
        "topology",
        f"there is no path from {host} to {target}",
        "two ports need two connected hosts",
    )


class Ways:
    """Says which ways the messages take that are recorded with a queue pair.

    Args:
        plan: Its ports are on hosts of the topology.
        topology: Hosts, switches and links.
        ecmp: How its switches choose.

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
        """Return the ports through which switches send them on to switches.

        There is a way for each of the queue pairs that messages are divided among.
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
        # The first one leaves the host, the last one the switch of the other host.
        return tuple(str(end) for end in ends[1:-1])
