# cython: annotation_typing=False, language_level=3, initializedcheck=False
# cython: cdivision=True
"""Forwarding of packets: next hops, and the choice among equal-cost next hops.

The path of a flow through switches that choose by hash is computed once. It is kept
until a link goes down or comes up. Computing the hash of a real switch takes longer
than all other work for a packet.

A fabric has far more flows than fit into a CPU cache. The forwarding data of a flow at
a switch is therefore stored in one place. Flows with drawn choices need no Python
object.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from chakram.native.prefetch import prefetch_cell
from chakram.switch.balancing import PACKET_BALANCINGS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from chakram.switch.balancing import PacketBalancing
    from chakram.switch.port import Port
    from chakram.switch.settings import Balancing

    NextHops = Callable[[int, int], Sequence[int]]
    Chooser = Callable[[int, int], int]

__all__ = ["Forwarding", "doubled"]

_NO_ROUTE = -1
_UNKNOWN = -1
_HEAD = 2  # fields of a set before its next hops
_FEW_HOPS = 4
_MANY_HOPS = 64
_FLOWS = 64
_FIELDS = 3
# Fields of a flow: its first switch, its destination node, and its hash.
_ENTRY, _TARGET, _VALUE = range(_FIELDS)
# Steps of paths: the switch in the upper bits, the port in the lower bits.
_NODE_BITS = 32
_PORT_MASK = 0xFFFF_FFFF


def doubled(old: array[int]) -> array[int]:
    """Return a copy of *old* with twice its length."""
    new = array("q", [0]) * (2 * len(old))
    memoryview(new)[: len(old)] = memoryview(old)
    return new


class Forwarding:
    """The forwarding tables of all switches of a fabric.

    Args:
        ports: All ports of the fabric, by number.
        next_hops: Function that takes a switch and a destination node. It returns the
            port numbers on shortest paths, in the order in which hashes index them.
        balancing: Load balancing of each switch.
        seed: Seed of random choices.
    """

    __slots__ = (
        "_balancing",
        "_choosers",
        "_fields",
        "_flows",
        "_next_hops",
        "_nodes",
        "_paths",
        "_ports",
        "_set_of",
        "_set_ports",
        "_set_with",
        "_sets",
        "_sets_used",
        "_width",
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
        # Per-packet load balancing of each switch, or None for a choice by hash.
        self._balancing: list[PacketBalancing | None] = [
            None
            if each == "hash"
            else PACKET_BALANCINGS[each](node, seed & ((1 << 64) - 1))
            for node, each in enumerate(balancing)
        ]
        self._flows = 0
        self._fields = array("q", bytes(8 * _FIELDS * _FLOWS))
        # Factory of the chooser, for flows whose field ``_VALUE`` is ``_UNKNOWN``.
        self._choosers: dict[int, Callable[[], Chooser]] = {}
        # Number of steps per path, and the path of each flow. A step consists of a
        # switch and its egress port. Steps that depend on the packet are unknown.
        self._width = _FEW_HOPS
        self._paths = array("q", bytes(8 * self._width * _FLOWS))
        # Sets of next hops: their count, the index of the list of their ports, then the
        # port and the next node of each. Two indexes give the position of a set: by
        # switch and destination, and by its ports.
        self._sets = array("q", bytes(8 * _FLOWS))
        self._sets_used = 0
        self._nodes = 1 + max((port.node for port in ports), default=0)
        self._set_of = self._no_sets()
        self._set_with: dict[tuple[int, ...], int] = {}
        self._set_ports: list[list[Port]] = []

    def add_flow(
        self,
        switch: int,
        destination: int,
        chooser: Callable[[], Chooser],
        replaced: int = _UNKNOWN,
    ) -> int:
        """Return the number of a new flow that enters at a switch.

        Args:
            switch: Number of the switch.
            destination: Destination node of the flow.
            chooser: Factory of the flow's chooser (see ``EcmpHash.chooser``).
            replaced: Number of an ended flow that the new flow reuses; -1 for a new
                number.
        """
        if replaced == _UNKNOWN:
            self._choosers[self._flows] = chooser
            return self._add_flow(switch, destination, _UNKNOWN)
        self._choosers[replaced] = chooser
        self._set_flow(replaced, switch, destination, _UNKNOWN)
        return replaced

    def add_drawn_flow(self, switch: int, destination: int, value: int) -> int:
        """Return the number of a new flow with drawn choices (see ``DrawnPaths``).

        Args:
            switch: Number of the switch at which the flow enters.
            destination: Destination node of the flow.
            value: The flow's ``flow_hash``.
        """
        return self._add_flow(switch, destination, value)

    def links_changed(self) -> None:
        """Recompute all paths after links went down or came up."""
        self._set_of = self._no_sets()
        for flow in range(self._flows):
            self._find_path(flow)

    def has_path(self, flow: int) -> bool:
        """Return whether at least the first step of a flow's path is known."""
        return self._paths[flow * self._width] != _UNKNOWN

    def prefetch_path(self, flow: int) -> None:
        """Prefetch the path of a flow into the CPU cache."""
        prefetch_cell(self._paths, flow * self._width)

    def known(self, flow: int, hop: int, node: int) -> int:
        """Return the egress port at a hop of the stored path, or -1 if unknown."""
        if hop < self._width:
            step = self._paths[flow * self._width + hop]
            if step >> _NODE_BITS == node:
                return step & _PORT_MASK
        return _NO_ROUTE

    def egress(
        self, flow: int, hop: int, node: int, destination: int, packet: int
    ) -> int:
        """Return the egress port of a packet at switch *node*, or -1 if there is none.

        Args:
            flow: Flow of the packet.
            hop: Number of switches that the packet has passed.
            node: Switch that is forwarding the packet.
            destination: Destination node of the packet.
            packet: Number of the packet for random choices (see ``packet_number``).
        """
        number = self.known(flow, hop, node)
        if number >= 0:
            return number
        return self._choose(flow, node, destination, packet)

    def _add_flow(self, switch: int, destination: int, value: int) -> int:
        flow = self._flows
        if (flow + 1) * _FIELDS > len(self._fields):
            self._fields = doubled(self._fields)
        if (flow + 1) * self._width > len(self._paths):
            self._paths = doubled(self._paths)
        self._flows = flow + 1
        self._set_flow(flow, switch, destination, value)
        return flow

    def _set_flow(self, flow: int, switch: int, destination: int, value: int) -> None:
        at = flow * _FIELDS
        self._fields[at + _ENTRY] = switch
        self._fields[at + _TARGET] = destination
        self._fields[at + _VALUE] = value
        self._find_path(flow)

    def _find_path(self, flow: int) -> None:
        """Compute the egress ports of a flow, as far as they are known in advance."""
        at = flow * _FIELDS
        node = self._fields[at + _ENTRY]
        destination = self._fields[at + _TARGET]
        rest = self._fields[at + _VALUE]
        is_drawn = rest != _UNKNOWN
        choose = None if is_drawn else self._choosers[flow]()
        hop = 0
        while 0 <= node < len(self._balancing) and hop < _MANY_HOPS:
            place = self._set_to(node, destination)
            count = self._sets[place]
            if count == 0 or (count > 1 and self._balancing[node] is not None):
                break  # later hops depend on the packet
            index = 0
            if choose is not None:
                index = choose(node, count)
            elif count > 1:
                index = rest % count
                rest //= count
            if hop == self._width:
                self._widen()
            place += _HEAD + 2 * index
            self._paths[flow * self._width + hop] = (
                node << _NODE_BITS | self._sets[place]
            )
            node = self._sets[place + 1]
            hop += 1
        while hop < self._width:
            self._paths[flow * self._width + hop] = _UNKNOWN
            hop += 1

    def _widen(self) -> None:
        """Make room for paths with twice as many hops."""
        old, width = self._paths, self._width
        new = array("q", [_UNKNOWN]) * (2 * len(old))
        for flow in range(self._flows):
            for hop in range(width):
                new[2 * width * flow + hop] = old[width * flow + hop]
        self._paths = new
        self._width = 2 * width

    def _no_sets(self) -> array[int]:
        """Return an empty index of the sets of next hops."""
        return array("i", [_UNKNOWN]) * (len(self._balancing) * self._nodes)

    def _set_to(self, node: int, destination: int) -> int:
        """Return the position of the set of next hops that are up, or else of all."""
        if destination >= self._nodes:
            self._nodes = destination + 1
            self._set_of = self._no_sets()
        place = self._set_of[node * self._nodes + destination]
        if place == _UNKNOWN:
            place = self._find_set(node, destination)
            self._set_of[node * self._nodes + destination] = place
        return place

    def _find_set(self, node: int, destination: int) -> int:
        known = list(self._next_hops(node, destination))
        hops = [number for number in known if self._ports[number].is_up] or known
        same = self._set_with.get(tuple(hops))
        if same is not None:
            return same
        place = self._sets_used
        self._set_with[tuple(hops)] = place
        self._sets_used += _HEAD + 2 * len(hops)
        while self._sets_used > len(self._sets):
            self._sets = doubled(self._sets)
        self._sets[place] = len(hops)
        self._sets[place + 1] = len(self._set_ports)
        self._set_ports.append([self._ports[number] for number in hops])
        at = place + _HEAD
        for number in hops:
            peer = self._ports[number].peer
            self._sets[at] = number
            self._sets[at + 1] = self._ports[peer].node if peer >= 0 else _UNKNOWN
            at += 2
        return place

    def _choose(self, flow: int, node: int, destination: int, packet: int) -> int:
        place = self._set_to(node, destination)
        count = self._sets[place]
        if count == 0:
            return _NO_ROUTE
        first = place + _HEAD
        if count == 1:
            return self._sets[first]
        balancing = self._balancing[node]
        if balancing is not None:
            at = balancing.choose(self._set_ports[self._sets[place + 1]], packet)
        else:
            value = self._fields[flow * _FIELDS + _VALUE]
            at = (
                self._choosers[flow]()(node, count)
                if value == _UNKNOWN
                else value % count
            )
        return self._sets[first + 2 * at]
