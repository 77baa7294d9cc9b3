# cython: language_level=3, annotation_typing=False
# cython: wraparound=False, boundscheck=False, initializedcheck=False, cdivision=True
"""Pending messages of collectives, and the sends that an arrival releases.

A *share* consists of the sends and receives of one position of a collective. An
arriving message releases the sends of its receiver that wait for this message. A share
ends when its sends have arrived at their receivers and its receives are processed.
Without ``MessageColumns.awaits_sends``, the sends need only be posted.

A message that only its shares wait for is counted as soon as its arrival time is known
(``_count_arrival``). Only the last such arrival of a share has an event.

``Traffic`` manages the shares and the events. Its subclasses model the network between
hosts: ``chakram.predict.levels.message_level`` and
``chakram.predict.levels.flow_level``.

Rows of numbers are stored in one array per kind of row, so that compiled code creates
no Python integers. A message in flight takes about 60 bytes.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from chakram.foundation.errors import RunFailed
from chakram.foundation.units import LAST_INSTANT_NS
from chakram.predict.levels import row_offsets
from chakram.predict.levels.collective_kinds import Kinds
from chakram.predict.levels.row_offsets import grown
from chakram.predict.simulator.event_queue import Events
from chakram.predict.simulator.signal_checks import EVENTS_PER_SIGNALS, let_signals_in
from chakram.records.row_layout import (
    CAUSE_MESSAGE,
    CAUSE_OPERATION,
    CAUSE_START,
    FLOW_FIELDS,
)

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Traffic"]

_YEAR_NS = 365 * 24 * 3600 * 10**9

_NONE = row_offsets.NONE
_NETWORK = row_offsets.NETWORK
_TAKEN = row_offsets.TAKEN
_BEGUN = row_offsets.BEGUN
_ARRIVED = row_offsets.ARRIVED
_ENDED = row_offsets.ENDED
_STEPPED = row_offsets.STEPPED
_KINDS = row_offsets.KINDS
_KIND_BITS = row_offsets.KIND_BITS
_KIND = row_offsets.KIND
_AT = row_offsets.AT
_GROUP = row_offsets.GROUP
_HOST = row_offsets.HOST
_LEFT = row_offsets.LEFT
_STATE = row_offsets.STATE
_EARLY = row_offsets.EARLY
_COUNTERS = row_offsets.COUNTERS
_RANK = row_offsets.RANK
_ROW = row_offsets.ROW
_ITERATION = row_offsets.ITERATION
_RELEASED = row_offsets.RELEASED
_SENDS = row_offsets.SENDS
_ARRIVALS = row_offsets.ARRIVALS
_SENT = row_offsets.SENT
_RECEIVED = row_offsets.RECEIVED
_LOCAL = row_offsets.LOCAL
_SERVER = row_offsets.SERVER
_LAST_NS = row_offsets.LAST_NS
_LAST_ORDER = row_offsets.LAST_ORDER
_SHARE = row_offsets.SHARE
_NEXT = row_offsets.NEXT
_FROM = row_offsets.FROM
_TO = row_offsets.TO
_WHICH = row_offsets.WHICH
_CLASS = row_offsets.CLASS
_POSTED = row_offsets.POSTED
_LEFT_AT = row_offsets.LEFT_AT
_CAUSE = row_offsets.CAUSE
_MORE = row_offsets.MORE
_SLOT = row_offsets.SLOT

_WAITING = 0
_GOING = 1

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
_COME = row_offsets.COME
_CREDITS = row_offsets.CREDITS
_BEHIND = row_offsets.BEHIND
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
_RELEASES = row_offsets.RELEASES
_WAITS = row_offsets.WAITS
_WAY = row_offsets.WAY
_SEND = row_offsets.SEND
_NEEDS = row_offsets.NEEDS
_COUNTER = row_offsets.COUNTER
_MEMBER = row_offsets.MEMBER
_WAITERS = row_offsets.WAITERS
_FLOW = len(FLOW_FIELDS)
_MANY_SLOTS = 10_000
"""Minimum number of message rows that do not fit into the caches."""


class Traffic(Kinds):
    """Running shares, their messages, and the events.

    Args:
        start_ns: Delay from the start of a rank's share to its first send.
        record: Whether to write flow rows.

    Attributes:
        record: Whether flow rows are written.
        is_folded: Whether the share of position 0 represents the shares of all
            positions, which send equal messages at equal times.  Its messages then
            arrive at this share itself, in place of the messages from other shares.
        is_stepped: Whether all collectives advance in steps of all positions
            (``chakram.predict.levels.ring_steps``).
        is_alone: Whether no operation begins between the end of a share and the end of
            its collective.
        now_ns: Time of the last event.
        events: Number of events.
        messages: Number of messages whose arrival is processed.
        done: Shares that have ended since the caller last cleared the list.
        report: If not None, a function called in long runs with the number of messages
            so far, or an estimate.
        flows: Flow rows (``FLOW_FIELDS``) since the last ``take_flows``.
    """

    def __init__(
        self,
        *,
        start_ns: int,
        record: bool,
    ) -> None:
        Kinds.__init__(self)
        self.now_ns = 0
        self.events = 0
        self.messages = 0
        self._coming = Events()
        self.done: list[int] = []
        self.report: Callable[[int], None] | None = None
        self._start_ns = start_ns
        # Whether all events of the current time have been processed.
        self._is_settled = False
        # Time of the caller's next action.
        self._caller_ns = 0
        self.record = record
        self.is_folded = False
        self.is_stepped = False
        self.is_alone = False
        self._shares = array("q", bytes(8 * _SHARE * 64))
        self._shares_used = 0
        self._free_shares: dict[int, list[int]] = {}
        self._open_shares: dict[int, int] = {}
        self._counters = array("q", bytes(8 * 16))
        self._counters_used = 0
        self._free_counters: dict[int, list[int]] = {}
        self._slots = array("q", bytes(8 * _SLOT * 64))
        self._slots_used = 0
        self._free_slot = _NONE
        # Whether there are so many messages that their rows are prefetched.
        self._is_large = False
        self._flows = array("q", bytes(8 * _FLOW))
        self._flows_used = 0
        # Work since the last signal check. An expensive event counts as several.
        self._work = 0

    # ---- shares ----------------------------------------------------------------------

    def open(self, shape: int) -> int:
        """Create a collective and return the share of position 0.

        The shares of the other positions follow it.
        """
        nranks = 1 if self.is_folded else self._shapes[shape * _SHAPE + _NRANKS]
        free = self._free_shares.get(nranks)
        if free:
            first = free.pop()
        else:
            first = self._shares_used
            self._shares_used += nranks
            if self._shares_used * _SHARE > len(self._shares):
                self._shares = grown(self._shares, self._shares_used * _SHARE)
        self._open_shares[first] = nranks
        rotates = self._shapes[shape * _SHAPE + _ROTATES]
        place = self._shapes[shape * _SHAPE + _PLACE]
        for position in range(nranks):
            row = (first + position) * _SHARE
            at = (place + (0 if rotates else position)) * _POSITION
            self._shares[row + _KIND] = shape
            self._shares[row + _AT] = position
            self._shares[row + _GROUP] = first
            self._shares[row + _STATE] = _WAITING
            self._shares[row + _EARLY] = _NONE
            self._shares[row + _COUNTERS] = _NONE
            self._shares[row + _SENDS] = 0
            self._shares[row + _ARRIVALS] = 0
            self._shares[row + _SENT] = 0
            self._shares[row + _RECEIVED] = 0
            self._shares[row + _LAST_NS] = _NONE
            self._shares[row + _LEFT] = (
                self._positions[at + _POSITION + _FIRST_SEND]
                - self._positions[at + _FIRST_SEND]
                + self._positions[at + _POSITION + _FIRST_RECEIVE]
                - self._positions[at + _FIRST_RECEIVE]
            )
        return first

    def place(
        self, share: int, host: int, rank: int, server: int = _NONE, local: int = _NONE
    ) -> None:
        """Set the host and rank of a share, and the handling of its local messages.

        Messages within a host take no time unless *local* is given.

        Args:
            share: Share of any position of an open collective.
            host: Number of the share's host.
            rank: Number of the share's rank.
            server: Number of the share's server.  Messages between hosts of one server
                stay off the network.  ``NONE`` means no server.
            local: Number of the line for messages within the host or server. ``NONE``
                means that they take no time.
        """
        row = share * _SHARE
        self._shares[row + _HOST] = host
        self._shares[row + _RANK] = rank
        self._shares[row + _LOCAL] = local
        self._shares[row + _SERVER] = server

    def begin(self, share: int, operation: int, iteration: int, released: int) -> None:
        """Start a share now.

        Args:
            share: A placed share.
            operation: Operation of the share in the program of its rank.
            iteration: Iteration of the program.
            released: The operation that released the share. -1 means the start.
        """
        self._is_settled = True
        row = share * _SHARE
        self._shares[row + _ROW] = operation
        self._shares[row + _ITERATION] = iteration
        self._shares[row + _RELEASED] = released
        if self.is_stepped:
            self._shares[row + _STATE] = _GOING
            self._join_ring(share)
        elif self._start_ns and self._shares[row + _LEFT]:
            self._coming.add(self.now_ns + self._start_ns, share * _KINDS + _BEGUN)
        else:
            self._start(share)

    def sent_bytes(self, share: int) -> int:
        """Return the payload bytes that a share has sent."""
        return self._shares[share * _SHARE + _SENT]

    def received_bytes(self, share: int) -> int:
        """Return the payload bytes that a share has received."""
        return self._shares[share * _SHARE + _RECEIVED]

    def left(self, share: int) -> int:
        """Return the number of outstanding messages of a share."""
        return self._shares[share * _SHARE + _LEFT]

    def close(self, first: int) -> None:
        """Release the storage of a collective whose shares have all ended."""
        self._free_shares.setdefault(self._open_shares.pop(first), []).append(first)

    def _join_ring(self, share: int) -> None:
        """Begin a share of a ring.  Subclasses with such rings implement this."""
        raise NotImplementedError

    def _step_ring(self, first: int) -> None:
        """Take steps of a ring.  Subclasses with such rings implement this."""
        raise NotImplementedError

    def _start(self, share: int) -> None:
        """Send the messages without dependencies, then process early arrivals."""
        row = share * _SHARE
        if self._shares[row + _LEFT] == 0:
            self._complete(share)
            return
        shape = self._shares[row + _KIND] * _SHAPE
        counters = self._shapes[shape + _MISSING]
        if counters:
            self._shares[row + _COUNTERS] = self._take_counters(counters)
        at = self._position_row(share)
        first = self._positions[at + _FIRST_SEND]
        last = self._positions[at + _POSITION + _FIRST_SEND]
        cause = (
            CAUSE_START if self._shares[row + _RELEASED] == _NONE else CAUSE_OPERATION
        )
        batch = self._shapes[shape + _BATCH]
        if batch:
            last = first + batch
            for place in range(_COUNTS):
                self._counters[self._shares[row + _COUNTERS] + place] = 0
        elif counters:
            group = self._positions[at + _FIRST_GROUP]
            end = self._positions[at + _POSITION + _FIRST_GROUP]
            while group < end:
                needs = self._groups[group * _WAITERS + _NEEDS]
                if needs > 1:
                    self._counters[
                        self._shares[row + _COUNTERS]
                        + self._groups[group * _WAITERS + _COUNTER]
                    ] = needs
                group += 1
        send = first
        while send < last:
            if self._sends[send * _SEND + _WAITS]:
                send += 1
            else:
                send = self._post_series(share, send, last, cause)
        self._shares[row + _STATE] = _GOING
        if self._shares[row + _LEFT] == 0:
            self._complete(share)
            return
        if self._shapes[shape + _IN_TURN]:
            return
        slot = self._shares[row + _EARLY]
        self._shares[row + _EARLY] = _NONE
        # The list contains the early messages in reverse order.
        before = _NONE
        while slot != _NONE:
            following = self._slots[slot * _SLOT + _NEXT]
            self._slots[slot * _SLOT + _NEXT] = before
            before = slot
            slot = following
        while before != _NONE:
            following = self._slots[before * _SLOT + _NEXT]
            if batch:
                self._counters[self._shares[row + _COUNTERS] + _COME] += 1
            self._receive(before)
            before = following

    def _position_row(self, share: int) -> int:
        row = share * _SHARE
        shape = self._shares[row + _KIND] * _SHAPE
        place = self._shapes[shape + _PLACE]
        if not self._shapes[shape + _ROTATES]:
            place += self._shares[row + _AT]
        return place * _POSITION

    def _take_counters(self, count: int) -> int:
        free = self._free_counters.get(count)
        if free:
            return free.pop()
        first = self._counters_used
        self._counters_used += count
        if self._counters_used > len(self._counters):
            self._counters = grown(self._counters, self._counters_used)
        return first

    def _complete(self, share: int) -> None:
        """End a share without outstanding messages, now or at its last arrival."""
        row = share * _SHARE
        last_ns = self._shares[row + _LAST_NS]
        order = self._shares[row + _LAST_ORDER]
        if last_ns > self.now_ns or (
            last_ns == self.now_ns
            and not self._is_settled
            and order > self._coming.taken_order()
        ):
            self._coming.add_at(last_ns, order, share * _KINDS + _ENDED)
        else:
            self._end(share)

    def _end(self, share: int) -> None:
        row = share * _SHARE
        counters = self._shares[row + _COUNTERS]
        if counters != _NONE:
            count = self._shapes[self._shares[row + _KIND] * _SHAPE + _MISSING]
            self._free_counters.setdefault(count, []).append(counters)
            self._shares[row + _COUNTERS] = _NONE
        self.done.append(share)

    # ---- messages --------------------------------------------------------------------

    def _post_series(self, share: int, send: int, last: int, cause: int) -> int:
        """Send a message now. Subclasses may also send following ones up to *last*.

        Returns:
            Index of the next send after the posted ones.
        """
        self._post(share, send, cause)
        return send + 1

    def _post(self, share: int, send: int, cause: int) -> None:
        """Send a message now."""
        slot = self._new_slot(share, send, cause)
        self._count_sent(share, self._slots[slot * _SLOT + _CLASS])
        self._carry(slot)
        row = share * _SHARE
        if self._shapes[self._shares[row + _KIND] * _SHAPE + _IN_TURN]:
            self._shares[row + _SENDS] += 1
            if self._shares[row + _ARRIVALS] >= self._shares[row + _SENDS]:
                self._take_early(share)

    def _count_sent(self, share: int, size: int) -> None:
        """Count a message of a size class as posted."""
        row = share * _SHARE
        self._shares[row + _SENT] += self._size_bytes[size]
        if not self._shapes[self._shares[row + _KIND] * _SHAPE + _AWAITS]:
            self._shares[row + _LEFT] -= 1

    def _new_slot(self, share: int, send: int, cause: int) -> int:
        """Return a new row for a message that is posted now."""
        if self._free_slot != _NONE:
            slot = self._free_slot
            self._free_slot = self._slots[slot * _SLOT + _NEXT]
        else:
            slot = self._slots_used
            self._slots_used += 1
            self._make_room(self._slots_used)
        at = slot * _SLOT
        self._slots[at + _FROM] = share
        self._slots[at + _TO] = self._receiver(share, send)
        self._slots[at + _WHICH] = send
        self._slots[at + _CLASS] = self._class_of_send(share, send)
        self._slots[at + _POSTED] = self.now_ns
        self._slots[at + _LEFT_AT] = _NONE
        self._slots[at + _CAUSE] = cause
        self._slots[at + _MORE] = 0
        return slot

    def _make_room(self, slots: int) -> None:
        """Provide room for *slots* rows of messages."""
        if slots * _SLOT > len(self._slots):
            self._slots = grown(self._slots, slots * _SLOT)
            self._is_large = slots >= _MANY_SLOTS

    def _receiver(self, share: int, send: int) -> int:
        """Return the share that receives a message."""
        if self.is_folded:
            return share
        row = share * _SHARE
        shape = self._shares[row + _KIND] * _SHAPE
        peer = self._sends[send * _SEND + _PEER]
        if self._shapes[shape + _ROTATES]:
            nranks = self._shapes[shape + _NRANKS]
            peer += self._shares[row + _AT]
            if peer >= nranks:
                peer -= nranks
        return self._shares[row + _GROUP] + peer

    def _class_of_send(self, share: int, send: int) -> int:
        """Return the size class of a message of a share."""
        row = share * _SHARE
        shape = self._shares[row + _KIND] * _SHAPE
        size = self._sends[send * _SEND + _SIZE]
        if not self._shapes[shape + _ROTATES]:
            return size
        # Rotate the chunk within the chunks of its variant. It wraps at most once.
        chunks = self._shapes[shape + _CHUNKS]
        chunk = size + self._shares[row + _AT] * self._shapes[shape + _TURN]
        if chunk >= chunks:
            chunk -= chunks
        return self._chunk_sizes[self._sends[send * _SEND + _WAY] + chunk]

    def _carry(self, slot: int) -> None:
        """Deliver a message and then call ``_arrive``. Subclasses implement this."""
        raise NotImplementedError

    def link_bytes(self) -> list[int]:
        """Return the bytes that entered each link.  Subclasses implement this."""
        raise NotImplementedError

    def _look_ahead(self) -> None:
        """Prefetch the data of the next events. Subclasses may implement this."""

    def _happen(self, number: int) -> None:
        """Process an event of the network. Subclasses implement this."""
        raise NotImplementedError

    def _arrive(self, slot: int) -> None:
        """Record the arrival of a message, which completes it for the sender."""
        self.messages += 1
        at = slot * _SLOT
        sender = self._slots[at + _FROM]
        if self.record:
            self._write(slot)
        row = sender * _SHARE
        if self._shapes[self._shares[row + _KIND] * _SHAPE + _AWAITS]:
            self._shares[row + _LEFT] -= 1
            if self._shares[row + _LEFT] == 0:
                self._complete(sender)
        receiver = self._slots[at + _TO] * _SHARE
        if (
            self._shares[receiver + _STATE] == _GOING
            and self._shapes[self._shares[receiver + _KIND] * _SHAPE + _BATCH]
        ):
            self._counters[self._shares[receiver + _COUNTERS] + _COME] += 1
        if self._shapes[self._shares[receiver + _KIND] * _SHAPE + _IN_TURN]:
            place = self._shares[receiver + _ARRIVALS]
            self._shares[receiver + _ARRIVALS] = place + 1
            send = self._positions[self._position_row(sender) + _FIRST_SEND] + place
            self._slots[at + _WHICH] = send
            self._slots[at + _CLASS] = self._class_of_send(sender, send)
            if place >= self._shares[receiver + _SENDS]:
                self._slots[at + _NEXT] = self._shares[receiver + _EARLY]
                self._shares[receiver + _EARLY] = slot
                return
        taken_ns = self._size_taken[self._slots[at + _CLASS]]
        if taken_ns:
            self._coming.add(self.now_ns + taken_ns, slot * _KINDS + _TAKEN)
        else:
            self._take(slot)

    def _has_effects(self, send: int, size: int) -> bool:
        """Return whether an arrival does more than complete its shares."""
        return bool(
            self.record
            or self._sends[send * _SEND + _RELEASES]
            or self._size_taken[size]
        )

    def _count_arrival(
        self, sender: int, receiver: int, size: int, at_ns: int, order: int
    ) -> None:
        """Count an arrival without effects, whose time and order are known.

        Args:
            sender: Share that sent the message.
            receiver: Share that receives it.
            size: Size class.
            at_ns: Time of the arrival.
            order: Order among simultaneous events. The next order is reserved, too: if
                both shares end, the sender is first.
        """
        self.messages += 1
        if self._shapes[self._shares[sender * _SHARE + _KIND] * _SHAPE + _AWAITS]:
            self._expect(sender, at_ns, order)
        self._shares[receiver * _SHARE + _RECEIVED] += self._size_bytes[size]
        self._expect(receiver, at_ns, order + 1)

    def _expect(self, share: int, at_ns: int, order: int) -> None:
        """Count an outstanding message of a share that will arrive later."""
        row = share * _SHARE
        self._shares[row + _LEFT] -= 1
        if at_ns > self._shares[row + _LAST_NS] or (
            at_ns == self._shares[row + _LAST_NS]
            and order > self._shares[row + _LAST_ORDER]
        ):
            self._shares[row + _LAST_NS] = at_ns
            self._shares[row + _LAST_ORDER] = order
        if self._shares[row + _LEFT] == 0 and self._shares[row + _STATE] == _GOING:
            self._complete(share)

    def _take_early(self, share: int) -> None:
        """Start processing the earliest message that had no posted receive.

        The list contains these messages in reverse order.
        """
        row = share * _SHARE
        slot = self._shares[row + _EARLY]
        behind = _NONE
        while self._slots[slot * _SLOT + _NEXT] != _NONE:
            behind = slot
            slot = self._slots[slot * _SLOT + _NEXT]
        if behind == _NONE:
            self._shares[row + _EARLY] = _NONE
        else:
            self._slots[behind * _SLOT + _NEXT] = _NONE
        taken_ns = self._size_taken[self._slots[slot * _SLOT + _CLASS]]
        self._coming.add(self.now_ns + taken_ns, slot * _KINDS + _TAKEN)

    def _take(self, slot: int) -> None:
        share = self._slots[slot * _SLOT + _TO]
        row = share * _SHARE
        if self._shares[row + _STATE] == _GOING:
            self._receive(slot)
        else:
            self._slots[slot * _SLOT + _NEXT] = self._shares[row + _EARLY]
            self._shares[row + _EARLY] = slot

    def _receive(self, slot: int) -> None:
        """Release the sends that waited for a message, and free the message."""
        at = slot * _SLOT
        share = self._slots[at + _TO]
        sender = self._slots[at + _FROM]
        send = self._slots[at + _WHICH]
        row = share * _SHARE
        self._shares[row + _RECEIVED] += self._size_bytes[self._slots[at + _CLASS]]
        self._slots[at + _NEXT] = self._free_slot
        self._free_slot = slot
        place = self._position_row(share)
        first_send = self._positions[place + _FIRST_SEND]
        first_group = self._positions[place + _FIRST_GROUP]
        receive = (
            self._positions[place + _FIRST_RECEIVE]
            + self._sends[send * _SEND + _RECEIVE]
        )
        # The rank of the sender identifies the cause of a send.
        cause = CAUSE_MESSAGE + (self._shares[sender * _SHARE + _RANK] << 2)
        if self._shapes[self._shares[row + _KIND] * _SHAPE + _BATCH]:
            self._follow(share, first_send, cause)
            return
        for at in range(self._releases[receive], self._releases[receive + 1]):
            group = (first_group + self._dependents[at]) * _WAITERS
            if self._groups[group + _NEEDS] > 1:
                counter = self._shares[row + _COUNTERS] + self._groups[group + _COUNTER]
                self._counters[counter] -= 1
                if self._counters[counter]:
                    continue
            for member in range(
                self._groups[group + _MEMBER],
                self._groups[group + _WAITERS + _MEMBER],
            ):
                self._post(share, first_send + self._members[member], cause)
        self._shares[row + _LEFT] -= 1
        if self._shares[row + _LEFT] == 0:
            self._complete(share)

    def _follow(self, share: int, first_send: int, cause: int) -> None:
        """Send one message of the second batch for each processed message.

        This starts after the first batch from the other positions has arrived. The
        order of the sends does not depend on the senders of the processed messages.
        """
        row = share * _SHARE
        batch = self._shapes[self._shares[row + _KIND] * _SHAPE + _BATCH]
        counters = self._shares[row + _COUNTERS]
        self._shares[row + _LEFT] -= 1
        self._counters[counters + _CREDITS] += 1
        if self._counters[counters + _COME] >= batch:
            while (
                self._counters[counters + _CREDITS]
                and self._counters[counters + _BEHIND] < batch
            ):
                self._counters[counters + _CREDITS] -= 1
                following = first_send + batch + self._counters[counters + _BEHIND]
                self._counters[counters + _BEHIND] += 1
                self._post(share, following, cause)
        if self._shares[row + _LEFT] == 0:
            self._complete(share)

    # ---- records ---------------------------------------------------------------------

    def take_flows(self) -> array[int]:
        """Return the rows of flows that ended since the last call."""
        taken = array("q", memoryview(self._flows)[: self._flows_used])
        self._flows_used = 0
        return taken

    def flow_rows(self) -> int:
        """Return the number of rows that ``take_flows`` would return."""
        return self._flows_used // _FLOW

    def _write(self, slot: int) -> None:
        if self._flows_used + _FLOW > len(self._flows):
            self._flows = grown(self._flows, self._flows_used + _FLOW)
        row = self._flows_used
        self._flows_used += _FLOW
        at = slot * _SLOT
        share = self._slots[at + _FROM] * _SHARE
        send = self._slots[at + _WHICH] * _SEND
        cause = self._slots[at + _CAUSE]
        size = self._slots[at + _CLASS]
        self._flows[row] = self._shares[share + _ITERATION]
        self._flows[row + 1] = self._shares[share + _RANK]
        self._flows[row + 2] = self._shares[share + _ROW]
        self._flows[row + 3] = self._sends[send + _STEP]
        self._flows[row + 4] = self._sends[send + _CHANNEL]
        self._flows[row + 5] = self._shares[self._slots[at + _TO] * _SHARE + _RANK]
        self._flows[row + 6] = 0
        self._flows[row + 7] = self._size_bytes[size]
        self._flows[row + 8] = self._slots[at + _POSTED]
        self._flows[row + 9] = self._slots[at + _POSTED]
        self._flows[row + 10] = self._slots[at + _LEFT_AT]
        if self._slots[at + _LEFT_AT] == _NONE:  # the message crossed no link
            self._flows[row + 10] = self._slots[at + _POSTED]
        self._flows[row + 11] = self.now_ns
        self._flows[row + 12] = 0
        self._flows[row + 13] = self._size_packets[size]
        self._flows[row + 14] = 0
        self._flows[row + 15] = 0
        self._flows[row + 16] = 0
        self._flows[row + 17] = cause & 3
        self._flows[row + 18] = cause >> 2
        self._flows[row + 19] = (
            self._shares[share + _RELEASED] if cause == CAUSE_OPERATION else 0
        )
        for place in range(row + 20, row + _FLOW):
            self._flows[place] = _NONE

    # ---- events ----------------------------------------------------------------------

    def advance(self, now_ns: int) -> None:
        """Set the time to *now_ns*. No event may be due before that time."""
        self.now_ns = now_ns

    def _pause(self, messages: int) -> None:
        """Handle signals, and report the approximate number of arrived *messages*."""
        let_signals_in()
        if self.report is not None:
            self.report(messages)

    def run(self, until_ns: int, most_flows: int = 1 << 30) -> bool:
        """Process events until shares end, or the next event is after *until_ns*.

        The method also returns after some steps of a ring, so that the caller can
        report progress.  Shares that end at the same time are in ``done`` together.

        Args:
            until_ns: Time of the caller's next action.
            most_flows: Number of flow rows at which to return to the caller.

        Returns:
            Whether shares have ended, a ring has advanced or there are enough flow
            rows.

        Raises:
            RunFailed: If the virtual time exceeds its limit.
        """
        coming = self._coming
        self._is_settled = False
        self._caller_ns = until_ns
        while coming.count:
            at_ns = coming.first_ns()
            if self.done and at_ns > self.now_ns:
                return True
            if at_ns > until_ns:
                return bool(self.done)
            if self._flows_used >= most_flows * _FLOW:
                return True
            if at_ns > LAST_INSTANT_NS:
                raise RunFailed(
                    "simulation",
                    f"would take more than {LAST_INSTANT_NS // _YEAR_NS} years of "
                    "virtual time",
                    "raise the rates of links, or lower delays, gaps, starts and "
                    "compute.scale",
                )
            self.now_ns = at_ns
            self.events += 1
            self._work += 1
            if self._work >= EVENTS_PER_SIGNALS:
                self._work = 0
                self._pause(self.messages)
            if self._is_large:
                self._look_ahead()
            what = coming.take()
            kind = what & (_KINDS - 1)
            number = what >> _KIND_BITS
            if kind == _NETWORK:
                self._happen(number)
            elif kind == _TAKEN:
                self._take(number)
            elif kind == _ARRIVED:
                self._arrive(number)
            elif kind == _ENDED:
                self._end(number)
            elif kind == _STEPPED:
                self._pause(self.messages)
                self._step_ring(number)
                return True
            else:
                self._start(number)
        return bool(self.done)
