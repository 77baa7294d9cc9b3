# cython: annotation_typing=False, language_level=3, boundscheck=False
# cython: wraparound=False, initializedcheck=False
"""Packets as the switch model sees them: integers in one array.

A *slot* is the place of a packet's first integer; what follows are its fields, each
named by an offset from the slot.  What the bytes of a packet are, or which burst it
belongs to, only the owner of the slot knows: the model never sees a header.
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
"""Bytes, from Ethernet header to ICRC."""
DSCP = 1
FLOW = 2
"""Which flow it is of, see ``Forwarding``."""
DESTINATION = 3
"""Node that it is for."""
HOP = 4
"""How many switches it has passed."""
ECN = 5
"""``NOT_ECT``, ``ECT`` or ``CE``."""
INGRESS = 6
"""Port that it has come in by, and that accounts for it; -1: none does."""
CLASS = 7
"""Traffic class at the switch that it is in."""
EGRESS = 8
"""Port that it leaves by."""
NEXT = 9
"""Slot behind it in a queue; -1: none."""
TIME = 10
"""For the owner: when it arrives."""
NUMBER = 11
"""What draws know it by, see ``packet_number``."""
POSITION = 12
"""For the owner: what it is of its own."""
FATE = 13
"""What a fault of the wire does to it: a drop reason; 0: nothing."""
COUNT = 15
"""For the owner: how many packets of a burst cross links as this one."""
CHOSEN = 14
"""One more than the port that it is to leave by, if that is decided already."""

ENTERED = 16
"""When it came to the queue that it is in, or was in last."""
PAUSED_BEFORE = 17
"""How long its class had been paused at that port until then."""
QUEUED_NS = 18
"""How long it has been in queues of switches while their ports were not paused."""
PAUSED_NS = 19
"""How long while they were."""
WIRE_NS = 20
"""How long its bits have taken to leave ports."""
DEPARTED = 21
"""When it began to leave its host."""
HOST_PAUSED_NS = 22
"""How long its host's port was paused before that."""
MOST_QUEUED_NS = 23
"""The longest time in one queue, ..."""
QUEUE_PORT = 24
"""... and of which port that is."""
MOST_PAUSED_NS = 25
"""Likewise, of pauses."""
PAUSE_PORT = 26
SENT = 27
"""For the owner: when it came to the queue of its host."""
OWN_NS = 28
"""For the owner: what came with it, and is of the same message, takes to leave."""
SLOW_NS = 29
"""What its bits have taken longer on links that had lost a part of their rate."""
SLOW_PORT = 30
"""Of the last such link."""

ORDER = 31
"""For the owner: its place among what happens at one time."""

FIELDS = 32
"""Integers of a packet."""

NOT_ECT, ECT, CE = 0, 1, 3

_FIELDS = FIELDS
_NEXT = NEXT
_NONE = -1


class Packets:
    """The packets of all switches of a fabric.

    Attributes:
        cells: Their fields; another array after a call of ``take``.
        in_use: How many slots are taken.
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
        """Put the slots number *first* to *end* - 1 into the list of free ones."""
        cells = self.cells
        for number in range(end - 1, first - 1, -1):
            cells[number * _FIELDS + _NEXT] = self._free
            self._free = number * _FIELDS

    def capacity(self) -> int:
        """Return how many packets there is room for without growing."""
        return len(self.cells) // _FIELDS

    def take(self) -> int:
        """Return the slot of a new packet, all of whose fields are 0."""
        if self._free < 0:
            self._grow()
        slot = self._free
        cells = self.cells
        self._free = cells[slot + _NEXT]
        for field in range(_FIELDS):
            cells[slot + field] = 0
        self.in_use += 1
        return slot

    def give_back(self, slot: int) -> None:
        """Let go of a packet."""
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
