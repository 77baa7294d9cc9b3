# cython: language_level=3, annotation_typing=False
"""Flows of bursts through a simulated fabric, and their receivers.

Every message may have its own queue pair and flow, and its acknowledgments form
another flow. Per-flow work therefore occurs every few packets.
"""

from __future__ import annotations

from array import array
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING

from chakram.predict.routing import no_path
from chakram.switch.ecmp import DrawnPaths, Flow
from chakram.switch.keyed_random import flow_hash

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chakram.plan.port_plan import PortPlan
    from chakram.predict.routing import Router
    from chakram.predict.simulator.switch_fabric import SwitchFabric
    from chakram.replay.endpoint import Endpoint
    from chakram.switch.ecmp import EcmpHash

__all__ = ["FlowRoutes"]

_UNKNOWN = -1


class FlowRoutes:
    """Finds the flow of a burst and the endpoint that it reaches.

    Args:
        router: Router that resolves addresses.
        endpoints: The sending and receiving ports, with all of their queue pairs.
        ports: Plans of the ports, in the same order.
        fabric: The fabric that connects the ports' hosts.
        ecmp: Hash that the switches use to select a path.
    """

    __slots__ = (
        "_destinations",
        "_drawn",
        "_ecmp",
        "_entries",
        "_fabric",
        "_firsts",
        "_forwarding",
        "_nodes",
        "_numbers",
        "_ports",
        "_receivers",
        "_router",
    )

    def __init__(
        self,
        router: Router,
        endpoints: Sequence[Endpoint],
        ports: Sequence[PortPlan],
        fabric: SwitchFabric,
        ecmp: EcmpHash,
    ) -> None:
        self._router = router
        self._ports = ports
        self._fabric = fabric
        self._ecmp = ecmp
        self._drawn = ecmp if isinstance(ecmp, DrawnPaths) else None
        model = fabric.model
        self._forwarding = model.forwarding
        self._destinations = [each.destinations for each in endpoints]
        # The port of every destination of every endpoint, and the index of each
        # endpoint's first destination.
        index_of = {
            (port.address, port.udp_port): index for index, port in enumerate(ports)
        }
        self._receivers = array(
            "q",
            [
                index_of.get(address, _UNKNOWN)
                for destinations in self._destinations
                for address in destinations
            ],
        )
        self._firsts = array("q", accumulate(map(len, self._destinations), initial=0))
        # For each port, the node of its host and the node of the first switch.
        self._numbers = array("q", [port.number for port in ports])
        self._nodes = array("q", [fabric.node(port.host) for port in ports])
        self._entries = array(
            "q",
            [
                model.port(model.port(fabric.host_port(port.host)).peer).node
                for port in ports
            ],
        )

    def find(self, source: int, destination: int, source_port: int) -> int:
        """Return the flow of a burst, or -1 if the burst stays within the port.

        Args:
            source: Index of the sending endpoint.
            destination: Index among the destinations of the endpoint.
            source_port: UDP source port.

        Raises:
            PlanError: If no port has the destination's address.
            FabricError: If there is no path to the destination.
        """
        receiver = self.receiver(source, destination)
        if receiver == source:
            return _UNKNOWN
        entry = self._entries[source]
        if receiver == _UNKNOWN or self._nodes[receiver] == self._nodes[source]:
            # This call raises the error.
            self._router.receiver(source, *self._destinations[source][destination])
        node = self._nodes[receiver]
        if self._drawn is not None:
            near, far = self._numbers[source], self._numbers[receiver]
            number = self._forwarding.add_drawn_flow(
                entry, node, flow_hash(self._drawn.seed, near, far, source_port)
            )
        else:
            number = self._add_flow(source, destination, receiver, source_port)
        if not self._forwarding.has_path(number) and not self._fabric.next_hops(
            entry, node
        ):
            raise no_path(self._ports[source].host, self._ports[receiver].host)
        return number

    def receiver(self, source: int, destination: int) -> int:
        """Return the index of the endpoint at a destination, or -1 if there is none."""
        return self._receivers[self._firsts[source] + destination]

    def node(self, endpoint: int) -> int:
        """Return the node of the host of an endpoint."""
        return self._nodes[endpoint]

    def _add_flow(
        self, source: int, destination: int, receiver: int, source_port: int
    ) -> int:
        """Add a flow whose path depends on a header hash, and return its number."""
        address, udp_port = self._destinations[source][destination]
        flow = Flow(
            sender=self._numbers[source],
            receiver=self._numbers[receiver],
            source=self._ports[source].address,
            destination=address,
            source_port=source_port,
            destination_port=udp_port,
        )
        return self._forwarding.add_flow(
            self._entries[source],
            self._nodes[receiver],
            partial(self._ecmp.chooser, flow),
        )
