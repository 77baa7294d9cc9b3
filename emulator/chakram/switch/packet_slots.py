# cython: annotation_typing=False, language_level=3, boundscheck=False
# cython: wraparound=False, initializedcheck=False
"""Packets of the switch model, as integers in one array.

A *slot* is the index of a packet's first integer. The fields of the packet follow, and
each field name is an offset from the slot. The model does not use packet headers. Only
the owner of a slot has the bytes of the packet, or the burst that the packet belongs
to.
"""

from __future__ import annotations

from array import array

__all__ = [
    "CE",
    "CHOSEN",
    "CLASS",
    "COUNT",
    "DEPARTED",
    "DESTINATION",
    "DSCP",
    "ECN",
    "ECT",
    "EGRESS",
    "ENTERED",
    "FATE",
    "FIELDS",
    "FLOW",
    "HOP",
    "HOST_PAUSED_NS",
    "INGRESS",
    "MOST_PAUSED_NS",
    "MOST_QUEUED_NS",
    "NEXT",
    "NOT_ECT",
    "NUMBER",
    "ORDER",
    "OWN_NS",
    "PAUSED_BEFORE",
    "PAUSED_NS",
    "PAUSE_PORT",
    "POSITION",
    "QUEUED_NS",
    "QUEUE_PORT",
    "SENT",
    "SIZE",
    "SLOW_NS",
    "SLOW_PORT",
    "TIME",
    "WIRE_NS",
    "Packets",
]

SIZE = 0
"""Size in bytes, from Ethernet header to ICRC."""
DSCP = 1
FLOW = 2
"""Flow number (see ``Forwarding``)."""
DESTINATION = 3
"""Number of the destination node."""
HOP = 4
"""Number of switches that the packet has passed."""
ECN = 5
"""``NOT_ECT``, ``ECT`` or ``CE``."""
INGRESS = 6
"""Port that received the packet and is charged for its memory, or -1."""
CLASS = 7
"""Traffic class at its current switch."""
EGRESS = 8
"""Egress port."""
NEXT = 9
"""Slot of the next packet in a queue, or -1."""
TIME = 10
"""For the owner: arrival time."""
NUMBER = 11
"""Number of the packet for random draws (see ``packet_number``)."""
POSITION = 12
"""For the owner: any value."""
FATE = 13
"""Drop reason if a link fault affects the packet, else 0."""
COUNT = 15
"""For the owner: number of packets of a burst that the slot represents."""
CHOSEN = 14
"""Egress port plus 1 if it is already chosen, else 0."""

ENTERED = 16
"""Time at which the packet entered its current or last queue."""
PAUSED_BEFORE = 17
"""Total pause time of the packet's class at the port of its queue until ``ENTERED``."""
QUEUED_NS = 18
"""Time in switch queues while their ports were not paused."""
PAUSED_NS = 19
"""Time in switch queues while their ports were paused."""
WIRE_NS = 20
"""Total serialization delay."""
DEPARTED = 21
"""Time at which the packet began to leave its host."""
HOST_PAUSED_NS = 22
"""Pause time at its host's port before ``DEPARTED``."""
MOST_QUEUED_NS = 23
"""Longest time in one queue, without pauses."""
QUEUE_PORT = 24
"""Port of the queue in which the packet spent ``MOST_QUEUED_NS``."""
MOST_PAUSED_NS = 25
"""Longest pause time at one port, which is ``PAUSE_PORT``."""
PAUSE_PORT = 26
SENT = 27
"""For the owner: time at which the packet entered its host's queue."""
OWN_NS = 28
"""For the owner: serialization delay of earlier packets of its burst and message."""
SLOW_NS = 29
"""Additional serialization delay on links with a degraded rate."""
SLOW_PORT = 30
"""Port of the last link with a degraded rate."""

ORDER = 31
"""For the owner: order among events at the same time."""

FIELDS = 32
"""Number of integers per packet."""

NOT_ECT, ECT, CE = 0, 1, 3

_FIELDS = FIELDS
_NEXT = NEXT
_NONE = -1


class Packets:
    """The packets in all switches of a fabric.

    Attributes:
        cells: Fields of all packets. ``take`` may replace the array.
        in_use: Number of slots in use.
    """

    __slots__ = ("_free", "cells", "in_use")

    def __init__(self, capacity: int = 256) -> None:
        if capacity < 1:
            raise ValueError(f"a capacity of {capacity} packets is not positive")
        self.cells = array("q", bytes(8 * _FIELDS * capacity))
        self.in_use = 0
        self._free = _NONE
        self._chain(0, capacity)

    def _chain(self, first: int, end: int) -> None:
        """Add slots *first* to *end* - 1 to the list of free slots."""
        cells = self.cells
        for number in range(end - 1, first - 1, -1):
            cells[number * _FIELDS + _NEXT] = self._free
            self._free = number * _FIELDS

    def capacity(self) -> int:
        """Return how many packets fit into the array at its current size."""
        return len(self.cells) // _FIELDS

    def take(self) -> int:
        """Return the slot of a new packet, with all fields 0."""
        if self._free < 0:
            self._grow()
        slot = self._free
        self._free = self.cells[slot + _NEXT]
        for field in range(_FIELDS):
            self.cells[slot + field] = 0
        self.in_use += 1
        return slot

    def release_bytes(self, slot: int) -> None:
        """Free the slot of a packet."""
        self.cells[slot + _NEXT] = self._free
        self._free = slot
        self.in_use -= 1

    def get(self, slot: int, field: int) -> int:
        """Return a field of a packet."""
        return self.cells[slot + field]

    def put(self, slot: int, field: int, value: int) -> None:
        """Set a field of a packet."""
        self.cells[slot + field] = value

    def _grow(self) -> None:
        old = self.cells
        count = len(old)
        cells = array("q", bytes(8 * 2 * count))
        for at in range(count):
            cells[at] = old[at]
        self.cells = cells
        self._chain(count // _FIELDS, 2 * count // _FIELDS)
