# cython: annotation_typing=False, language_level=3, initializedcheck=False
# cython: cdivision=True
"""Per-packet load balancing: how a switch chooses among equal-cost next hops.

Balancing ``hash`` has no class here, because it chooses per flow (see ``Forwarding``).
To add a scheme, see docs/howto/add-a-balancing.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chakram.switch.keyed_random import draw

if TYPE_CHECKING:
    from collections.abc import Mapping

    from chakram.switch.port import Port

__all__ = ["PACKET_BALANCINGS", "Adaptive", "PacketBalancing", "Random", "RoundRobin"]

_NODE_STREAM = 1 << 42


class PacketBalancing:
    """Per-packet load balancing of one switch.

    Args:
        node: Number of the switch.
        seed: Seed of random choices, at least 0 and below 2**64.
    """

    __slots__ = ("_count", "_node", "_seed")

    def __init__(self, node: int, seed: int) -> None:
        self._node = node
        self._seed = seed
        # Number of choices so far, for schemes that use the ports in rotation.
        self._count = 0

    def choose(self, ports: list[Port], packet: int) -> int:
        """Choose the egress port of a packet, and return its index in *ports*.

        Args:
            ports: At least two ports that are up and on shortest paths.
            packet: Number of the packet for random choices (see ``packet_number``).
        """
        raise NotImplementedError


class Random(PacketBalancing):
    """Choose a random port for each packet."""

    __slots__ = ()

    def choose(self, ports: list[Port], packet: int) -> int:
        """Return the index of a random port."""
        return draw(self._seed, _NODE_STREAM + self._node, packet) * len(ports) >> 32


class RoundRobin(PacketBalancing):
    """Choose the ports in round-robin order."""

    __slots__ = ()

    def choose(self, ports: list[Port], packet: int) -> int:
        """Return the index of the next port."""
        number = self._count
        self._count = number + 1
        return number % len(ports)


class Adaptive(PacketBalancing):
    """Choose the port with the shortest queue. Break ties in rotation."""

    __slots__ = ()

    def choose(self, ports: list[Port], packet: int) -> int:
        """Return the index of the port with the shortest queue."""
        number = self._count
        self._count = number + 1
        best = number % len(ports)
        port = ports[best]
        least = port.queued_bytes
        for at in range(len(ports)):
            port = ports[at]
            if port.queued_bytes < least:
                best = at
                least = port.queued_bytes
        return best


PACKET_BALANCINGS: Mapping[str, type[PacketBalancing]] = {
    "random": Random,
    "round_robin": RoundRobin,
    "adaptive": Adaptive,
}
"""Class of each ``Balancing`` except ``hash``."""
