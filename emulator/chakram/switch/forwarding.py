# cython: annotation_typing=False, language_level=3, initializedcheck=False
"""Where packets go on: next hops, and the choice among equal-cost ones.

Where switches hash, the path of a flow is found once and kept until a link goes down or
comes up: hashes of real switches cost more than everything else about a packet.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from chakram.switch.draws import draw

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from chakram.switch.port import Port
    from chakram.switch.settings import Balancing

    NextHops = Callable[[int, int], Sequence[int]]
    Chooser = Callable[[int, int], int]

__all__ = ["Forwarding"]

_NO_ROUTE = -1
_RANDOM, _ROUND_ROBIN, _ADAPTIVE, _HASH = 1, 2, 3, 0
_KINDS = {
    "hash": _HASH,
    "random": _RANDOM,
    "round_robin": _ROUND_ROBIN,
    "adaptive": _ADAPTIVE,
}
_MANY_HOPS = 64


def _doubled(old: array[int]) -> array[int]:
    """Return an array that begins with *old*, and is twice as long."""
    new = array("q", bytes(2 * 8 * len(old)))
    memoryview(new)[: len(old)] = memoryview(old)
    return new


class Forwarding:
    """The forwarding tables of all switches of a fabric.

    Args:
        ports: All ports of the fabric, by number.
        next_hops: For a switch and a node that packets are for, the numbers of the
            ports on shortest paths, in the order that hashes number them in.
        balancing: By switch, how it chooses.
        seed: For random choices.
    """

    __slots__ = (
        "_balancing",
        "_flows",
        "_hops",
        "_next_hops",
        "_numbers",
        "_paths",
        "_paths_used",
        "_ports",
        "_seed",
        "_spans",
    )

    def __init__(
        self,
        *,
        ports: list[Port],
        next_hops: NextHops,
        balancing: Sequence[Balancing],
        seed: int,
    ) -> None:
        self._ports = ports
        self._next_hops = next_hops
        self._balancing = [_KINDS[each] for each in balancing]
        self._seed = seed & ((1 << 64) - 1)
        # Of each flow: where it enters the fabric, its destination, how to choose.
        self._flows: list[tuple[int, int, Callable[[], Chooser]]] = []
        # Ports by which a flow leaves the switches of its path, where that is known:
        # where they begin and end among those of all flows.
        self._spans = array("q", bytes(8 * 2 * 64))
        self._paths = array("q", bytes(8 * _MANY_HOPS))
        self._paths_used = 0
        self._hops: dict[int, list[int]] = {}
        # Packets for which a switch has chosen so far.
        self._numbers = [0] * len(balancing)

    def add_flow(
        self, switch: int, destination: int, chooser: Callable[[], Chooser]
    ) -> int:
        """Return the number of a flow that enters at a switch.

        Args:
            switch: Its number.
            destination: The node that the flow is for.
            chooser: Makes what chooses for it, see ``EcmpHash.chooser``.
        """
        number = len(self._flows)
        self._flows.append((switch, destination, chooser))
        if 2 * number == len(self._spans):
            self._spans = _doubled(self._spans)
        self._find_path(number)
        return number

    def links_changed(self) -> None:
        """Find new paths: links have gone down or come up."""
        self._hops.clear()
        self._paths_used = 0
        for flow in range(len(self._flows)):
            self._find_path(flow)

    def has_path(self, flow: int) -> bool:
        """Tell whether any port is known by which a flow leaves a switch."""
        return self._spans[2 * flow] < self._spans[2 * flow + 1]

    def egress(self, flow: int, hop: int, node: int, destination: int) -> int:
        """Return the port by which a packet leaves switch *node*; -1: by none.

        Args:
            flow: Of the packet.
            hop: How many switches it has passed.
            node: Where it is.
            destination: The node that it is for.
        """
        at = self._spans[2 * flow] + hop
        if at < self._spans[2 * flow + 1]:
            number = self._paths[at]
            port = self._ports[number]
            if port.node == node:
                return number
        return self._choose(flow, node, destination)

    def _find_path(self, flow: int) -> None:
        """Find the ports by which a flow leaves switches, as far as that is known."""
        node, destination, chooser = self._flows[flow]
        choose = chooser()
        if self._paths_used + _MANY_HOPS > len(self._paths):
            self._paths = _doubled(self._paths)
        start = end = self._paths_used
        while node < len(self._balancing) and end < start + _MANY_HOPS:
            hops = self._hops_to(node, destination)
            if not hops or (len(hops) > 1 and self._balancing[node] != _HASH):
                break  # what follows is not known before the packet is there
            number = hops[choose(node, len(hops))]
            self._paths[end] = number
            end += 1
            port = self._ports[number]
            peer = port.peer
            if peer < 0:
                break
            port = self._ports[peer]
            node = port.node
        self._spans[2 * flow] = start
        self._spans[2 * flow + 1] = self._paths_used = end

    def _hops_to(self, node: int, destination: int) -> list[int]:
        """Return the ports by which to go on, of links that are up if any is."""
        key = node << 32 | destination
        hops = self._hops.get(key)
        if hops is None:
            known = list(self._next_hops(node, destination))
            hops = [number for number in known if self._ports[number].is_up] or known
            self._hops[key] = hops
        return hops

    def _choose(self, flow: int, node: int, destination: int) -> int:
        hops = self._hops_to(node, destination)
        count = len(hops)
        if count == 0:
            return _NO_ROUTE
        if count == 1:
            return hops[0]
        kind = self._balancing[node]
        if kind == _HASH:
            _, _, chooser = self._flows[flow]
            return hops[chooser()(node, count)]
        number = self._numbers[node]
        self._numbers[node] = number + 1
        if kind == _RANDOM:
            return hops[draw(self._seed, node, number) * count >> 32]
        if kind == _ROUND_ROBIN:
            return hops[number % count]
        # The least loaded one; among equals each in its turn.
        best = hops[number % count]
        port = self._ports[best]
        least = port.queued_bytes
        for at in range(count):
            port = self._ports[hops[at]]
            if port.queued_bytes < least:
                best = hops[at]
                least = port.queued_bytes
        return best
