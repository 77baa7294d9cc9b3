# cython: language_level=3, annotation_typing=False
# cython: wraparound=False, boundscheck=False, initializedcheck=False
"""Kinds of collectives in a simulation, stored in arrays.

Rows of numbers are stored in one array per kind of row, so that compiled code creates
no Python integers. ``chakram.predict.levels.row_offsets`` defines the layout of the
rows.
"""

from __future__ import annotations

from array import array
from math import gcd
from typing import TYPE_CHECKING

from chakram.predict.levels import row_offsets
from chakram.predict.levels.row_offsets import grown

if TYPE_CHECKING:
    from collections.abc import Callable

    from chakram.predict.levels.collective_messages import MessageColumns

__all__ = ["Kinds"]

_FIRST_ROOM = 1024
_NRANKS = row_offsets.NRANKS
_ROTATES = row_offsets.ROTATES
_TURN = row_offsets.TURN
_CHUNKS = row_offsets.CHUNKS
_PLACE = row_offsets.PLACE
_MISSING = row_offsets.MISSING
_AWAITS = row_offsets.AWAITS
_BATCH = row_offsets.BATCH
_IN_TURN = row_offsets.IN_TURN
_SHAPE = row_offsets.SHAPE
_COUNTS = row_offsets.COUNTS
_FIRST_SEND = row_offsets.FIRST_SEND
_FIRST_RECEIVE = row_offsets.FIRST_RECEIVE
_FIRST_GROUP = row_offsets.FIRST_GROUP
_POSITION = row_offsets.POSITION
_PEER = row_offsets.PEER
_SIZE = row_offsets.SIZE
_STEP = row_offsets.STEP
_CHANNEL = row_offsets.CHANNEL
_RECEIVE = row_offsets.RECEIVE
_WAITS = row_offsets.WAITS
_WAY = row_offsets.WAY
_RELEASES = row_offsets.RELEASES
_SEND = row_offsets.SEND
_NEEDS = row_offsets.NEEDS
_COUNTER = row_offsets.COUNTER
_MEMBER = row_offsets.MEMBER
_WAITERS = row_offsets.WAITERS


class Kinds:
    """Stores message sizes, and the sends and receives of collectives by position."""

    def __init__(self) -> None:
        # For each size class, the payload bytes, packets, and processing time at the
        # receiver.
        self._size_bytes = array("q", bytes(8 * 16))
        self._size_packets = array("q", bytes(8 * 16))
        self._size_taken = array("q", bytes(8 * 16))
        self._shape_of: dict[object, int] = {}
        self._shapes = array("q", bytes(8 * _SHAPE * 4))
        self._positions = array("q", bytes(8 * _FIRST_ROOM))
        self._positions_used = 0
        self._sends = array("q", bytes(8 * _FIRST_ROOM))
        self._sends_used = 0
        self._releases = array("q", bytes(8 * _FIRST_ROOM))
        self._releases_used = 0
        self._dependents = array("q", bytes(8 * _FIRST_ROOM))
        self._dependents_used = 0
        self._groups = array("q", bytes(8 * _FIRST_ROOM))
        self._groups_used = 0
        self._members = array("q", bytes(8 * _FIRST_ROOM))
        self._members_used = 0
        self._chunk_sizes = array("q", bytes(8 * 16))
        self._chunks_used = 0

    def shape(self, key: object, make: Callable[[], MessageColumns]) -> int:
        """Return the index of a kind of collective.  Call *make* if the kind is new."""
        known = self._shape_of.get(key)
        if known is None:
            known = self._add_shape(make())
            self._shape_of[key] = known
        return known

    def messages_of(self, shape: int, *, first: bool = False) -> int:
        """Return the number of messages of one collective of a kind.

        If *first* is true, count only messages that wait for no other message.
        """
        nranks = self._shapes[shape * _SHAPE + _NRANKS]
        rotates = self._shapes[shape * _SHAPE + _ROTATES]
        place = self._shapes[shape * _SHAPE + _PLACE]
        last = place + (1 if rotates else nranks)
        begin = self._positions[place * _POSITION + _FIRST_SEND]
        end = self._positions[last * _POSITION + _FIRST_SEND]
        sends = end - begin
        if first:
            sends -= sum(
                self._sends[send * _SEND + _WAITS] for send in range(begin, end)
            )
        return sends * (nranks if rotates else 1)

    def is_alike(self, shape: int) -> bool:
        """Return whether all positions of a kind send the same sizes."""
        if not self._shapes[shape * _SHAPE + _ROTATES]:
            return False
        place = self._shapes[shape * _SHAPE + _PLACE] * _POSITION
        first = self._positions[place + _FIRST_SEND]
        last = self._positions[place + _POSITION + _FIRST_SEND]
        chunks = self._shapes[shape * _SHAPE + _CHUNKS]
        ways = {self._sends[send * _SEND + _WAY] for send in range(first, last)}
        return all(
            self._chunk_sizes[way + chunk] == self._chunk_sizes[way]
            for way in ways
            for chunk in range(chunks)
        )

    def ring_distance(self, shape: int) -> int:
        """Return the distance from each position to the position that receives from it.

        The result is 0 if ``RingSteps`` cannot simulate the kind. ``RingSteps``
        requires that all positions send the same sizes, that each message waits for the
        previous one, and that every position depends on all others.
        """
        place = self._shapes[shape * _SHAPE + _PLACE] * _POSITION
        first = self._positions[place + _FIRST_SEND]
        count = self._positions[place + _POSITION + _FIRST_SEND] - first
        nranks = self._shapes[shape * _SHAPE + _NRANKS]
        if not self.is_alike(shape) or not count or count < nranks - 1:
            return 0
        distance = self._sends[first * _SEND + _PEER]
        # For each send, the number of receives up to the last receive for which it
        # waits.
        waits = [0] * count
        receives = self._positions[place + _FIRST_RECEIVE]
        groups = self._positions[place + _FIRST_GROUP]
        for receive in range(count):
            for at in range(
                self._releases[receives + receive],
                self._releases[receives + receive + 1],
            ):
                group = (groups + self._dependents[at]) * _WAITERS
                for member in range(
                    self._groups[group + _MEMBER],
                    self._groups[group + _WAITERS + _MEMBER],
                ):
                    waits[self._members[member]] = receive + 1
        is_ring = (
            self._shapes[shape * _SHAPE + _AWAITS]
            and not self._shapes[shape * _SHAPE + _BATCH]
            and waits == list(range(count))
            and gcd(distance, nranks) == 1
            and all(
                self._sends[send * _SEND + _PEER] == distance
                and self._sends[send * _SEND + _RECEIVE] == send - first
                for send in range(first, first + count)
            )
        )
        return distance if is_ring else 0

    def set_size(
        self, size_class: int, size_bytes: int, packets: int, taken_ns: int
    ) -> None:
        """Set the values of a size class."""
        if size_class >= len(self._size_bytes):
            self._size_bytes = grown(self._size_bytes, size_class + 1)
            self._size_packets = grown(self._size_packets, size_class + 1)
            self._size_taken = grown(self._size_taken, size_class + 1)
        self._size_bytes[size_class] = size_bytes
        self._size_packets[size_class] = packets
        self._size_taken[size_class] = taken_ns

    def _add_shape(self, columns: MessageColumns) -> int:
        number = len(self._shape_of)
        if (number + 1) * _SHAPE > len(self._shapes):
            self._shapes = grown(self._shapes, (number + 1) * _SHAPE)
        chunks = columns.chunk_sizes
        reduced = columns.reduced
        first_chunk = self._chunks_used
        nchunks = len(chunks)
        # A reduction takes longer at the receiver, so it has separate size classes.
        ways = sorted(set(reduced)) if nchunks else []
        needed = first_chunk + nchunks * len(ways)
        if needed > len(self._chunk_sizes):
            self._chunk_sizes = grown(self._chunk_sizes, needed)
        for way in ways:
            for size_bytes in chunks:
                self._chunk_sizes[self._chunks_used] = self._size_class(
                    size_bytes, size_bytes if way else 0
                )
                self._chunks_used += 1
        first_send = self._sends_used
        needed = (first_send + len(columns.peers)) * _SEND
        if needed > len(self._sends):
            self._sends = grown(self._sends, needed)
        for index, peer in enumerate(columns.peers):
            row = (first_send + index) * _SEND
            self._sends[row + _PEER] = peer
            if nchunks:
                self._sends[row + _SIZE] = columns.sizes[index]
                way = ways.index(reduced[index])
                self._sends[row + _WAY] = first_chunk + nchunks * way
            else:
                self._sends[row + _SIZE] = self._size_class(
                    columns.sizes[index], reduced[index]
                )
            self._sends[row + _STEP] = columns.steps[index]
            self._sends[row + _CHANNEL] = columns.channels[index]
            self._sends[row + _RECEIVE] = columns.receives[index]
            self._sends[row + _WAITS] = columns.waits[index]
        self._set_releases(columns)
        self._sends_used += len(columns.peers)
        first_receive = self._releases_used
        needed = first_receive + len(columns.first_dependent)
        if needed > len(self._releases):
            self._releases = grown(self._releases, needed)
        for each in columns.first_dependent:
            self._releases[self._releases_used] = each + self._dependents_used
            self._releases_used += 1
        needed = self._dependents_used + len(columns.dependents)
        if needed > len(self._dependents):
            self._dependents = grown(self._dependents, needed)
        for each in columns.dependents:
            self._dependents[self._dependents_used] = each
            self._dependents_used += 1
        first_group = self._groups_used
        most = self._add_groups(columns)
        row = number * _SHAPE
        self._shapes[row + _NRANKS] = columns.nranks
        self._shapes[row + _ROTATES] = columns.rotates
        self._shapes[row + _TURN] = columns.turn
        self._shapes[row + _CHUNKS] = nchunks
        self._shapes[row + _PLACE] = self._positions_used
        self._shapes[row + _MISSING] = _COUNTS if columns.batch else most
        self._shapes[row + _AWAITS] = columns.awaits_sends
        self._shapes[row + _BATCH] = columns.batch
        self._shapes[row + _IN_TURN] = columns.in_turn
        ends = len(columns.first_send)
        needed = (self._positions_used + ends) * _POSITION
        if needed > len(self._positions):
            self._positions = grown(self._positions, needed)
        for index in range(ends):
            row = self._positions_used * _POSITION
            self._positions[row + _FIRST_SEND] = first_send + columns.first_send[index]
            self._positions[row + _FIRST_RECEIVE] = (
                first_receive + columns.first_receive[index]
            )
            self._positions[row + _FIRST_GROUP] = (
                first_group + columns.first_group[index]
            )
            self._positions_used += 1
        return number

    def _set_releases(self, columns: MessageColumns) -> None:
        """Set for each new send whether its arrival releases other sends."""
        dependents = columns.first_dependent
        for index, peer in enumerate(columns.peers):
            receive = columns.receives[index]
            if not columns.rotates:
                receive += columns.first_receive[peer]
            self._sends[(self._sends_used + index) * _SEND + _RELEASES] = (
                columns.batch > 0
                or columns.in_turn
                or dependents[receive] < dependents[receive + 1]
            )

    def _add_groups(self, columns: MessageColumns) -> int:
        """Append the groups, and return the maximum number of counters per position."""
        first_group, first_member = self._groups_used, self._members_used
        # One extra row marks the end of the last group's members.
        self._groups_used += len(columns.needs) + 1
        if self._groups_used * _WAITERS > len(self._groups):
            self._groups = grown(self._groups, self._groups_used * _WAITERS)
        self._members_used += len(columns.members)
        if self._members_used > len(self._members):
            self._members = grown(self._members, self._members_used)
        for index, each in enumerate(columns.members):
            self._members[first_member + index] = each
        most = counters = position = 0
        for index, each in enumerate(columns.first_member):
            row = (first_group + index) * _WAITERS
            self._groups[row + _MEMBER] = first_member + each
            if index == len(columns.needs):
                break
            while index >= columns.first_group[position + 1]:
                position += 1
                counters = 0
            self._groups[row + _NEEDS] = columns.needs[index]
            self._groups[row + _COUNTER] = counters
            if columns.needs[index] > 1:
                counters += 1
                most = max(most, counters)
        return most

    def _size_class(self, size_bytes: int, reduced_bytes: int) -> int:
        """Return the class of a size, and call ``set_size`` for a new one.

        Subclasses implement this.

        Args:
            size_bytes: Size of a message.
            reduced_bytes: Number of bytes of the message that the receiver reduces.
        """
        raise NotImplementedError
