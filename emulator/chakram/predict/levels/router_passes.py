# cython: language_level=3, annotation_typing=False
# cython: wraparound=False, boundscheck=False, initializedcheck=False, cdivision=True
"""Compute direct exchanges between all positions router by router, without events.

If all positions have begun before the first message reaches a router, and nothing else
is in flight, passes over the routers compute the exchange. At each router, a pass
merges the arriving messages in order of time and lets each one enter its next link.
Up-down routing orders the links: when a link passes messages on, all links before it
are empty. Other exchanges use events.

Simultaneous events happen in the order in which their messages entered their links. If
the messages entered at the same time, their order on the previous links decides, and
finally the order in which their senders began. A message therefore has a record of its
times at all routers, latest first (``chakram.predict.levels.record_streams``). The
ascending order of the records is the order of the events.

When the first share ends, other messages may begin. All messages that are in flight at
that time get rows and events. A first pass determines this time, and a second pass
stops there.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from chakram.predict.levels import row_offsets
from chakram.predict.levels.message_level import MessageLevel
from chakram.predict.levels.pending_messages import Traffic
from chakram.predict.levels.record_streams import MOST_TIMES, RecordStreams

if TYPE_CHECKING:
    from chakram.predict.levels.level_network import LevelNetwork
    from chakram.predict.levels.message_times import LevelTimes

__all__ = ["RouterPasses"]

_NONE = row_offsets.NONE
_KINDS = row_offsets.KINDS
_KIND_BITS = row_offsets.KIND_BITS
_STEPPED = row_offsets.STEPPED
_KIND = row_offsets.KIND
_GROUP = row_offsets.GROUP
_HOST = row_offsets.HOST
_LEFT = row_offsets.LEFT
_SERVER = row_offsets.SERVER
_RECEIVED = row_offsets.RECEIVED
_LAST_NS = row_offsets.LAST_NS
_LAST_ORDER = row_offsets.LAST_ORDER
_SHARE = row_offsets.SHARE
_NEXT = row_offsets.NEXT
_FROM = row_offsets.FROM
_MORE = row_offsets.MORE
_ARRIVES = row_offsets.ARRIVES
_ORDER = row_offsets.ORDER
_LEFT_AT = row_offsets.LEFT_AT
_SLOT = row_offsets.SLOT
_NRANKS = row_offsets.NRANKS
_ROTATES = row_offsets.ROTATES
_PLACE = row_offsets.PLACE
_AWAITS = row_offsets.AWAITS
_BATCH = row_offsets.BATCH
_IN_TURN = row_offsets.IN_TURN
_SHAPE = row_offsets.SHAPE
_FIRST_SEND = row_offsets.FIRST_SEND
_POSITION = row_offsets.POSITION
_WAITS = row_offsets.WAITS
_PEER = row_offsets.PEER
_WAY = row_offsets.WAY
_SEND = row_offsets.SEND
_HEAD = row_offsets.HEAD
_TAIL = row_offsets.TAIL
_FREE = row_offsets.FREE
_CARRIED = row_offsets.CARRIED
_CLASS_OF = row_offsets.CLASS_OF
_END = row_offsets.END
_LATEST = row_offsets.LATEST
_LINK = row_offsets.LINK
_ROUTER = row_offsets.ROUTER
_UP = row_offsets.UP
_WHERE = row_offsets.WHERE

_LEAST_MESSAGES = 1_000
"""Minimum number of messages for which passes are faster than events."""

_MASK = (1 << 32) - 1
_LOW = (1 << 16) - 1
_MOST = (1 << 32) - 2
"""Latest time of a record, in ns after the first position began."""

# Fields of a link during a pass: the time at which it is free, its latest arrival, and
# its bytes.
_FREE_AT = 0
_LATEST_AT = 1
_BYTES = 2
_PASSED = 3

# Arrivals at a position: the time and record of the last arrival, and the number of
# arrivals. These fields exist first for the messages that the position sends, then for
# the messages that it receives. The last field is the number of received bytes.
_OWN = 0
_COUNT = 4
_OTHER = 5
_SUM = 10
_ARRIVALS = 11


class RouterPasses(MessageLevel):
    """Traffic over FIFO links, in passes over routers where this is exact.

    Args:
        network: Hosts, routers and links.
        times: Times of messages on links and hosts.
        seed: Seed of the choice among equal-cost links, as in ``MessageLevel``.

    Attributes:
        passed: Number of exchanges that were computed in passes.
    """

    def __init__(
        self, network: LevelNetwork, times: LevelTimes, *, seed: int | None = None
    ) -> None:
        MessageLevel.__init__(self, network, times, seed=seed)
        self.passed = 0
        # For each exchange that some positions have begun, by the share of position 0:
        # when each position began, and the position.
        self._begins: dict[int, list[tuple[int, int]]] = {}
        self._first = 0
        # Time at which the first position began.
        self._base_ns = 0
        # Positions in the order in which they began.
        self._position_at = array("q", bytes(8))
        self._is_direct: dict[int, bool] = {}
        # The level of a link is the maximum distance of its end to a destination.
        # Levels descend along a path.
        self._level_of = array("q", bytes(8))
        # For each stage, the level of the links whose messages it merges, its router,
        # the level of the router's next stage, and the number of the router's previous
        # stage.
        self._stages: list[tuple[int, int, int, int]] = []
        self._entering: list[list[int]] = []
        self._streams = RecordStreams(1, 1)
        self._links_at = array("q", bytes(8))
        self._arrivals = array("Q", bytes(8))
        self._host_at = array("q", bytes(8))
        self._nranks = 0
        self._size = _NONE
        self._first_send = 0
        self._last_entry = 0

    # ---- choice ----------------------------------------------------------------------

    def _start(self, share: int) -> None:
        """Send the messages of a share. When all positions have begun, try passes."""
        Traffic._start(self, share)
        first = self._shares[share * _SHARE + _GROUP]
        if self._may_pass(first):
            begins = self._begins.setdefault(first, [])
            begins.append((self.now_ns, share - first))
            shape = self._shares[first * _SHARE + _KIND] * _SHAPE
            if len(begins) == self._shapes[shape + _NRANKS]:
                self._coming.add(self.now_ns, first * _KINDS + _STEPPED)

    def _step_ring(self, first: int) -> None:
        """Compute an exchange if nothing else is in flight.

        All positions of the exchange have begun.
        """
        if self.is_stepped:
            MessageLevel._step_ring(self, first)
            return
        begins = self._begins.pop(first)
        self._first = first
        self._nranks = len(begins)
        self._base_ns = begins[0][0]
        self._position_at = array("q", (position for _, position in begins))
        # The messages of a position share one row, so each position has one event.
        if self._coming.count == self._nranks and self._prepare():
            self._pass_all()
        self._streams = RecordStreams(1, 1)

    def _may_pass(self, first: int) -> bool:
        """Return whether passes may compute a collective."""
        if self.record or self.is_folded or not self._is_shared:
            return False
        shape = self._shares[first * _SHARE + _KIND]
        known = self._is_direct.get(shape)
        if known is None:
            known = self._is_direct[shape] = self._is_exchange(shape)
        return known

    def _is_exchange(self, shape: int) -> bool:
        """Return whether all positions send to all others and arrivals have no effects.

        Exchanges of few messages use events, which are faster.
        """
        row = shape * _SHAPE
        nranks = self._shapes[row + _NRANKS]
        place = self._shapes[row + _PLACE] * _POSITION
        first = self._positions[place + _FIRST_SEND]
        messages = nranks * (nranks - 1)
        return bool(
            max(_LEAST_MESSAGES, self._link_count) <= messages
            and nranks <= _LOW
            and self._shapes[row + _ROTATES]
            and self._shapes[row + _AWAITS]
            and not self._shapes[row + _BATCH]
            and not self._shapes[row + _IN_TURN]
            and self._positions[place + _POSITION + _FIRST_SEND] - first == nranks - 1
            and all(
                self._sends[send * _SEND + _PEER] == send - first + 1
                and not self._sends[send * _SEND + _WAITS]
                and not self._has_effects(
                    send, self._chunk_sizes[self._sends[send * _SEND + _WAY]]
                )
                for send in range(first, first + nranks - 1)
            )
        )

    # ---- order of links --------------------------------------------------------------

    def _set_stages(self) -> None:
        """Set the levels of links, and the stages of routers in processing order."""
        self._level_of = array("q", (_NONE for _ in range(self._link_count)))
        lasts = sorted({self._hosts[at] for at in range(0, len(self._hosts), _WHERE)})
        for last in lasts:
            self._raise_levels(last, lasts)
        self._entering = [[] for _ in range(self._routers)]
        for at in range(self._first_leaving[self._routers]):
            link = self._leaving[at]
            if self._level_of[link] != _NONE:
                self._entering[self._links[link * _LINK + _END]].append(link)
        levels = [{self._level_of[link] for link in each} for each in self._entering]
        for last in lasts:
            levels[last].add(self._routers)
        stages = [
            (level, router, max((each for each in known if each < level), default=-2))
            for router, known in enumerate(levels)
            for level in known
        ]
        before: dict[int, int] = {}
        for number, stage in enumerate(sorted(stages, reverse=True)):
            router = stage[1]
            self._stages.append((*stage, before.get(router, _NONE)))
            before[router] = number

    def _raise_levels(self, last: int, firsts: list[int]) -> None:
        """Raise the levels of all links on paths from routers to router *last*."""
        self._measure_distances(last)
        count = sum(self._distances[router] != _NONE for router in range(self._routers))
        is_used = bytearray(self._routers)
        for router in firsts:
            is_used[router] = 1
        # Routers are reached in the order of their distance. Router *last* has no next
        # link.
        for place in range(count - 1, 0, -1):
            router = self._reached[place]
            if not is_used[router]:
                continue
            distance = self._distances[router] - 1
            for at in range(
                self._first_leaving[router], self._first_leaving[router + 1]
            ):
                link = self._leaving[at]
                end = self._links[link * _LINK + _END]
                if self._distances[end] == distance:
                    is_used[end] = 1
                    if self._level_of[link] < distance:
                        self._level_of[link] = distance

    # ---- passes ----------------------------------------------------------------------

    def _prepare(self) -> bool:
        """Allocate memory. Return False if the exchange must use events."""
        nranks = self._nranks
        self._host_at = array("q", bytes(8 * nranks))
        hosts, routers = set(), set()
        for position in range(nranks):
            row = (self._first + position) * _SHARE
            host = self._shares[row + _HOST]
            if (
                self._shares[row + _SERVER] != _NONE
                or self._hosts[host * _WHERE + _UP] == _NONE
            ):
                return False
            link = self._hosts[host * _WHERE + _UP] * _LINK
            slot = self._links[link + _HEAD]
            if (
                slot == _NONE
                or self._links[link + _TAIL] != slot
                or self._slots[slot * _SLOT + _FROM] != self._first + position
                or self._slots[slot * _SLOT + _MORE] != nranks - 2
            ):
                # Messages have left their first link, or other messages wait there.
                return False
            hosts.add(host)
            routers.add(self._hosts[host * _WHERE + _ROUTER])
            self._host_at[position] = host
        # If there is only one router, messages cross two links, and events are as fast.
        if len(hosts) < nranks or len(routers) == 1:
            return False
        if not self._stages:
            self._set_stages()
        shape = self._shares[self._first * _SHARE + _KIND]
        place = self._shapes[shape * _SHAPE + _PLACE] * _POSITION
        self._first_send = self._positions[place + _FIRST_SEND]
        self._size = _NONE
        if self.is_alike(shape):
            sizes = {self._class_at(0, each) for each in range(1, nranks)}
            self._size = sizes.pop() if len(sizes) == 1 else _NONE
        holds_ns = [
            self._hold_ns[kind * self._room + size]
            for kind in range(len(self._examples))
            for size in range(len(self._classes))
        ]
        if (
            max(self._level_of) + 2 > MOST_TIMES
            or min(holds_ns) == 0
            or min(holds_ns) * (nranks - 1) > self._caller_ns - self.now_ns
        ):
            return False
        try:
            self._streams = RecordStreams(
                self._link_count + len(self._stages), nranks * (nranks - 1)
            )
        except OSError:  # there is too little memory
            return False
        self._links_at = array("q", bytes(8 * _PASSED * self._link_count))
        self._arrivals = array("Q", bytes(8 * _ARRIVALS * nranks))
        return True

    def _class_at(self, position: int, distance: int) -> int:
        """Return the size class of a position's message to its peer at a distance."""
        if self._size != _NONE:
            return self._size
        return self._class_of_send(
            self._first + position, self._first_send + distance - 1
        )

    def _pass_all(self) -> None:
        """Compute an exchange until a share ends, if this is possible."""
        if not self._pass(_MOST):
            return
        ends = [
            max(self._arrivals[at + _OWN], self._arrivals[at + _OTHER])
            for at in range(0, self._nranks * _ARRIVALS, _ARRIVALS)
        ]
        end = max(ends) if self.is_alone else min(ends)
        if end > self._caller_ns - self._base_ns:
            return
        if self._last_entry > end:
            self._pass(end)
        self._commit()
        self.passed += 1

    def _pass(self, until: int) -> bool:
        """Pass over all routers up to a time. Return False if this is impossible."""
        self._last_entry = 0
        self._streams.clear()
        for at in range(len(self._arrivals)):
            self._arrivals[at] = 0
        for link in range(self._link_count):
            row = link * _LINK
            at = link * _PASSED
            self._links_at[at + _FREE_AT] = self._links[row + _FREE] - self._base_ns
            self._links_at[at + _LATEST_AT] = self._links[row + _LATEST] - self._base_ns
            self._links_at[at + _BYTES] = 0
        senders: list[list[int]] = [[] for _ in range(self._routers)]
        for turn in range(self._nranks):
            host = self._host_at[self._position_at[turn]] * _WHERE
            senders[self._hosts[host + _ROUTER]].append(turn)
        messages = self._nranks * (self._nranks - 1)
        # For the report, assume that a second pass takes as long as the first.
        passes = 1 if self.is_alone else 2
        earlier = 0 if until == _MOST else len(self._stages)
        for number, (level, router, below, before) in enumerate(self._stages):
            done = messages * (earlier + number) // (passes * len(self._stages))
            self._pause(self.messages + done)
            if level == self._routers:
                for turn in senders[router]:
                    if not self._send_all(turn):
                        return False
            else:
                for link in self._entering[router]:
                    if self._level_of[link] == level:
                        self._streams.join(link)
            if before != _NONE:
                self._streams.join(self._link_count + before)
            if not self._pass_router(number, level, router, below, until):
                return False
        return True

    def _send_all(self, turn: int) -> bool:
        """Let all messages of a position enter their first link.

        The messages are in the queue as one row, which has the times of the first one.
        """
        position = self._position_at[turn]
        link = self._hosts[self._host_at[position] * _WHERE + _UP]
        at = self._links[link * _LINK + _HEAD] * _SLOT
        row = link * _PASSED
        self._links_at[row + _FREE_AT] = self._slots[at + _LEFT_AT] - self._base_ns
        self._links_at[row + _LATEST_AT] = self._slots[at + _ARRIVES] - self._base_ns
        for distance in range(1, self._nranks):
            arrives = self._entered(link, 0, self._class_at(position, distance))
            if arrives > _MOST:
                return False
            self._streams.append(link, arrives << 32, 0, turn << 16 | distance)
        self._streams.join(link)
        # These bytes were counted when the share started.
        self._links_at[row + _BYTES] = 0
        return True

    def _entered(self, link: int, begins: int, size: int) -> int:
        """Let a message enter a link, and return its arrival time."""
        time = self._links[link * _LINK + _CLASS_OF] * self._room + size
        row = link * _PASSED
        if self._links_at[row + _FREE_AT] > begins:
            begins = self._links_at[row + _FREE_AT]
        self._links_at[row + _FREE_AT] = begins + self._hold_ns[time]
        self._links_at[row + _BYTES] += self._wire[size]
        arrives = begins + self._reach_ns[time]
        # Rounding must not reorder messages.
        if arrives < self._links_at[row + _LATEST_AT]:
            return self._links_at[row + _LATEST_AT]
        self._links_at[row + _LATEST_AT] = arrives
        return arrives

    def _pass_router(
        self, number: int, level: int, router: int, below: int, until: int
    ) -> bool:
        """Let all messages of a stage enter their next links.

        Messages for links that belong to a later stage go to an intermediate stream.
        """
        streams = self._streams
        streams.merge()
        while streams.one >> 32 <= until:
            position = self._position_at[(streams.three & _MASK) >> 16]
            distance = streams.three & _LOW
            peer = position + distance
            if peer >= self._nranks:
                peer -= self._nranks
            link = self._next_link(self._host_at[position], self._host_at[peer], router)
            if self._level_of[link] < below:
                streams.append(
                    self._link_count + number, streams.one, streams.two, streams.three
                )
            else:
                entry = streams.one >> 32
                if entry > self._last_entry:
                    self._last_entry = entry
                size = self._class_at(position, distance)
                arrives = self._entered(link, entry, size)
                if arrives > _MOST or self._level_of[link] >= level:
                    return False
                if self._links[link * _LINK + _END] == _NONE:
                    self._count(position, peer, size, arrives)
                else:
                    streams.append(
                        link,
                        arrives << 32 | entry,
                        (streams.one & _MASK) << 32 | streams.two >> 32,
                        (streams.two & _MASK) << 32 | streams.three & _MASK,
                    )
            streams.advance()
        streams.stop()
        return True

    def _count(self, position: int, peer: int, size: int, arrives: int) -> None:
        """Count the arrival of the first message of the merge at its receiver."""
        self._count_at(position * _ARRIVALS + _OWN, arrives)
        self._count_at(peer * _ARRIVALS + _OTHER, arrives)
        self._arrivals[peer * _ARRIVALS + _SUM] += self._size_bytes[size]

    def _count_at(self, at: int, arrives: int) -> None:
        streams = self._streams
        self._arrivals[at + _COUNT] += 1
        if arrives < self._arrivals[at]:
            return
        if arrives == self._arrivals[at]:
            # The message that entered its last link later counts if two are
            # simultaneous.
            if streams.one != self._arrivals[at + 1]:
                is_later = streams.one > self._arrivals[at + 1]
            elif streams.two != self._arrivals[at + 2]:
                is_later = streams.two > self._arrivals[at + 2]
            else:
                is_later = streams.three > self._arrivals[at + 3]
            if not is_later:
                return
        self._arrivals[at] = arrives
        self._arrivals[at + 1] = streams.one
        self._arrivals[at + 2] = streams.two
        self._arrivals[at + 3] = streams.three

    # ---- end of the passes -----------------------------------------------------------

    def _commit(self) -> None:
        """Continue with events for messages in flight and for the ends of shares."""
        self._skip_passed()
        for link in range(self._link_count):
            row = link * _LINK
            at = link * _PASSED
            if self._links_at[at + _BYTES]:
                self._links[row + _FREE] = self._base_ns + self._links_at[at + _FREE_AT]
                self._links[row + _LATEST] = (
                    self._base_ns + self._links_at[at + _LATEST_AT]
                )
                self._links[row + _CARRIED] += self._links_at[at + _BYTES]
        self._end_shares()
        self._queue_rest()

    def _skip_passed(self) -> None:
        """Remove the messages that have passed their first link from its queue."""
        links = []
        while self._coming.count:
            links.append(self._coming.take() >> _KIND_BITS)
        for link in links:
            row = link * _LINK
            slot = self._links[row + _HEAD]
            at = slot * _SLOT
            rest = self._streams.count(link)
            if rest == 0:
                self._links[row + _HEAD] = _NONE
                self._links[row + _TAIL] = _NONE
                self._slots[at + _NEXT] = self._free_slot
                self._free_slot = slot
                continue
            for _ in range(self._nranks - 1 - rest):
                self._turn_to_next(slot, link)
            self._coming.add_at(
                self._slots[at + _ARRIVES], self._slots[at + _ORDER], link * _KINDS
            )

    def _end_shares(self) -> None:
        """Count the arrivals at all shares, and end shares without further messages."""
        order_of = dict.fromkeys(
            sorted(
                tuple(self._arrivals[at + 1 : at + _COUNT])
                for row in range(0, len(self._arrivals), _ARRIVALS)
                for at in (row + _OWN, row + _OTHER)
            ),
            0,
        )
        for record in order_of:
            order_of[record] = self._coming.next_order()
            self._coming.reserve_orders(1)
        for position in range(self._nranks):
            share = self._first + position
            row = share * _SHARE
            lasts = []
            for place in (_OWN, _OTHER):
                at = position * _ARRIVALS + place
                self._shares[row + _LEFT] -= self._arrivals[at + _COUNT]
                # If both shares of a message end, the sender is first.
                order = order_of[tuple(self._arrivals[at + 1 : at + _COUNT])]
                lasts.append((self._arrivals[at], order + (place == _OTHER)))
            self.messages += self._arrivals[at + _COUNT]
            self._shares[row + _RECEIVED] += self._arrivals[at + _SUM - _OTHER]
            last, order = max(lasts)
            self._shares[row + _LAST_NS] = self._base_ns + last
            self._shares[row + _LAST_ORDER] = order
            if self._shares[row + _LEFT] == 0:
                self._complete(share)

    def _queue_rest(self) -> None:
        """Create rows and events for messages in flight, in the order of link entry."""
        streams = self._streams
        rest = 0
        for link in range(self._link_count):
            if self._level_of[link] != _NONE:
                streams.join(link)
                rest += streams.count(link)
        self._make_room(self._slots_used + rest)
        streams.merge(True)
        for _ in range(rest):
            position = self._position_at[streams.three >> 16]
            send = self._first_send + (streams.three & _LOW) - 1
            at = self._new_slot(self._first + position, send, 0) * _SLOT
            self._slots[at + _ARRIVES] = self._base_ns + streams.latest()
            self._slots[at + _ORDER] = self._coming.next_order()
            self._slots[at + _LEFT_AT] = self.now_ns
            self._slots[at + _NEXT] = _NONE
            link = streams.stream()
            row = link * _LINK
            tail = self._links[row + _TAIL]
            self._links[row + _TAIL] = at // _SLOT
            if tail == _NONE:
                self._links[row + _HEAD] = at // _SLOT
                self._coming.add_at(
                    self._slots[at + _ARRIVES], self._slots[at + _ORDER], link * _KINDS
                )
            else:
                self._slots[tail * _SLOT + _NEXT] = at // _SLOT
            streams.advance()
