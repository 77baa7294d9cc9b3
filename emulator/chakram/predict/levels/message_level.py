# cython: language_level=3, annotation_typing=False
# cython: wraparound=False, boundscheck=False, initializedcheck=False, cdivision=True
"""The message level: whole messages, stored and forwarded over FIFO links.

Every directed link serves one message at a time, in order of arrival, with an unlimited
queue. A message occupies a link as a whole and is queued as a whole at the next router.
The time of a message is therefore about its serialization delay times the number of
links on its path. This level has no packets, queue pairs, windows, acknowledgments,
ECN marks or losses.

Messages leave a link in the order in which they entered it, so only the first arrival
of each link is in the event queue. The queue never has more link events than links. The
last link of a path has no events for messages whose arrival has no effects
(``_has_effects``).
Messages that a rank posts together wait as one row in the queue of its host, so that an
all-to-all has about as many rows as hosts.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import accumulate, chain
from typing import TYPE_CHECKING

from chakram.foundation.errors import FabricError
from chakram.native.prefetch import prefetch_cell
from chakram.predict.levels import row_offsets
from chakram.predict.levels.level_network import LevelLink
from chakram.predict.levels.pending_messages import Traffic
from chakram.predict.levels.ring_steps import RingSteps
from chakram.predict.levels.row_offsets import grown

if TYPE_CHECKING:
    from chakram.predict.levels.level_network import LevelNetwork
    from chakram.predict.levels.message_times import LevelTimes

__all__ = ["MessageLevel"]

_NONE = row_offsets.NONE
_MASK = 0xFFFFFFFF
_PRIME = 0x9E3779B1
"""2**32 / golden ratio: a factor that spreads consecutive numbers over all bits."""

_ARRIVED = row_offsets.ARRIVED
_KINDS = row_offsets.KINDS
_KIND_BITS = row_offsets.KIND_BITS
_NETWORK = row_offsets.NETWORK
_IN_TURN = row_offsets.IN_TURN
_SHAPE = row_offsets.SHAPE
_WAITS = row_offsets.WAITS
_SEND = row_offsets.SEND
_KIND = row_offsets.KIND
_HOST = row_offsets.HOST
_LOCAL = row_offsets.LOCAL
_SERVER = row_offsets.SERVER
_SHARE = row_offsets.SHARE
_NEXT = row_offsets.NEXT
_FROM = row_offsets.FROM
_TO = row_offsets.TO
_WHICH = row_offsets.WHICH
_CLASS = row_offsets.CLASS
_ARRIVES = row_offsets.ARRIVES
_ORDER = row_offsets.ORDER
_POSTED = row_offsets.POSTED
_LEFT_AT = row_offsets.LEFT_AT
_CAUSE = row_offsets.CAUSE
_MORE = row_offsets.MORE
_SLOT = row_offsets.SLOT
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
_DOWN = row_offsets.DOWN
_WHERE = row_offsets.WHERE

_ENDED = row_offsets.ENDED
_STEPPED = row_offsets.STEPPED
_AT = row_offsets.AT
_GROUP = row_offsets.GROUP
_LEFT = row_offsets.LEFT
_SENT = row_offsets.SENT
_RECEIVED = row_offsets.RECEIVED
_RELEASES = row_offsets.RELEASES
_NRANKS = row_offsets.NRANKS
_FIRST_SEND = row_offsets.FIRST_SEND
_POSITION = row_offsets.POSITION
_PEER = row_offsets.PEER

_STEPPED_MESSAGES = 1 << 26
"""Number of ring messages between two reports, which take about a fifth of a second."""

# Parts of an event's data are prefetched by these numbers of events in advance.
_FAR = 12
_NEAR = 7
_NEXT_TO = 3

_LEAST_SERIES = 2
"""Minimum number of messages in a series that shares a row."""


class MessageLevel(Traffic):
    """Traffic over FIFO links.

    Args:
        network: Hosts, routers and links.
        times: Times of messages on links and hosts.
        seed: Seed with which routers choose among equal-cost links for each pair of
            hosts. None means that they always choose the first.
        record: Whether to write flow rows.
    """

    def __init__(
        self,
        network: LevelNetwork,
        times: LevelTimes,
        *,
        seed: int | None = None,
        record: bool = False,
    ) -> None:
        Traffic.__init__(self, start_ns=times.start_ns, record=record)
        self._network = network
        self._times = times
        self._is_shared = times.is_shared
        # Whether messages that a rank posts together share a row.
        self._in_series = times.is_shared
        self._chooses = seed is not None
        self._seed = (seed or 0) & _MASK
        self._routers = network.routers
        self._kind_of: dict[tuple[int | None, int, bool], int] = {}
        self._examples: list[LevelLink] = []
        self._class_of: dict[tuple[int, int], int] = {}
        self._classes: list[int] = []
        # The tables are by link type (see ``_add_link``), then by size class.
        self._room = 16
        self._hold_ns = array("q", bytes(8 * 16))
        self._reach_ns = array("q", bytes(8 * 16))
        self._wire = array("q", bytes(8 * 16))
        self._links = array("q", bytes(8 * _LINK))
        self._link_count = 0
        for link in network.links:
            self._add_link(link)
        self._hosts = array("q", bytes(8 * _WHERE * max(1, len(network.hosts))))
        for number, host in enumerate(network.hosts):
            row = number * _WHERE
            self._hosts[row + _ROUTER] = host.router
            self._hosts[row + _UP] = _NONE if host.up is None else host.up
            self._hosts[row + _DOWN] = _NONE if host.down is None else host.down
        # Whether hosts may be routers. Links to such hosts end at a router.
        self._is_routed_by_hosts = any(host.down is None for host in network.hosts)
        # For each destination router, the start of its rows in _hops. Each router has a
        # row with the index of its first next link and the number of next links.
        room = max(1, network.routers)
        self._hops_of = array("q", (_NONE for _ in range(room)))
        self._hops = array("q", bytes(8 * 64))
        self._hops_used = 0
        # For each router, the values of its latest row.
        self._lasts = array("q", bytes(16 * room))
        # Links that leave a router, and routers whose links arrive at it.
        arriving: list[list[int]] = [[] for _ in network.leaving]
        for router, links in enumerate(network.leaving):
            for each in links:
                arriving[self._links[each * _LINK + _END]].append(router)
        self._first_leaving, self._leaving = joined(network.leaving)
        self._first_arriving, self._arriving = joined(arriving)
        self._most_leaving = max(map(len, network.leaving), default=0)
        self._distances = array("q", bytes(8 * room))
        self._reached = array("q", bytes(8 * room))
        self._paths: dict[tuple[int, int, int], int] = {}
        # Rings that are simulated in steps, by the share of position 0.
        self._rings: dict[int, RingSteps] = {}
        # Messages on dedicated paths, by source, target and size class.
        self._crossed: dict[tuple[int, int, int], int] = {}

    def add_local_line(self, rate_bps: int | None) -> int:
        """Add a line for messages within a host and return its number.

        ``place`` takes the number as *local*.
        """
        number = self._link_count
        self._add_link(
            LevelLink(name="within a host", rate_bps=rate_bps, is_local=True)
        )
        self._fill()
        return number

    def link_bytes(self) -> list[int]:
        """Return the bytes that entered each link of the network, with headers."""
        carried = [
            self._links[number * _LINK + _CARRIED]
            for number in range(len(self._network.links))
        ]
        for (source, target, size), count in self._crossed.items():
            for link in self._network.path(source, target):
                carried[link] += count * self._wire[size]
        if self.is_folded:
            # The links of all hosts carry as much as the links of the simulated host.
            return [max(carried)] * len(carried)
        return carried

    def equal_cost(self) -> list[int]:
        """Return the equal-cost group of each link of the network, or ``NONE``.

        The links of a group are alternatives on shortest paths to a host. Each router
        numbers its groups from 0.
        """
        links = len(self._network.links)
        groups = array("q", (_NONE for _ in range(max(1, links))))
        counts = array("q", bytes(8 * max(1, self._routers)))
        for last in dict.fromkeys(host.router for host in self._network.hosts):
            self._add_groups_to(last, groups, counts)
        return list(groups)[:links]

    def _add_groups_to(self, last: int, groups: array[int], counts: array[int]) -> None:
        """Number the groups of links on paths to destination router *last*."""
        row = self._hops_of[last]
        if row == _NONE:
            row = self._add_hops(last)
        for router in range(self._routers):
            count = self._hops[row + 2 * router + 1]
            if count < 2:
                continue
            first = self._hops[row + 2 * router]
            if groups[self._hops[first]] != _NONE:
                continue
            for at in range(first, first + count):
                groups[self._hops[at]] = counts[router]
            counts[router] += 1

    # ---- times -----------------------------------------------------------------------

    def _size_class(self, size_bytes: int, reduced_bytes: int) -> int:
        key = (size_bytes, reduced_bytes)
        known = self._class_of.get(key)
        if known is None:
            known = self._class_of[key] = len(self._classes)
            self._classes.append(size_bytes)
            times = self._times
            self.set_size(
                known,
                size_bytes,
                times.packets(size_bytes),
                times.take_ns(size_bytes, reduced_bytes),
            )
            if len(self._classes) > self._room:
                self._room *= 2
                self._fill()
            else:
                self._fill_class(known)
        return known

    def _add_link(self, link: LevelLink) -> None:
        number = self._link_count
        self._link_count += 1
        if self._link_count * _LINK > len(self._links):
            self._links = grown(self._links, self._link_count * _LINK)
        key = (link.rate_bps, link.delay_ns, link.is_local)
        kind = self._kind_of.setdefault(key, len(self._kind_of))
        if kind == len(self._examples):
            self._examples.append(link)
            self._fill()
        row = number * _LINK
        self._links[row + _HEAD] = _NONE
        self._links[row + _TAIL] = _NONE
        self._links[row + _FREE] = 0
        self._links[row + _CARRIED] = 0
        self._links[row + _LATEST] = 0
        self._links[row + _CLASS_OF] = kind
        self._links[row + _END] = _NONE if link.to is None else link.to

    def _fill(self) -> None:
        """Rebuild the tables of times after one of them is full."""
        room = self._room * max(1, len(self._examples))
        self._hold_ns = array("q", bytes(8 * room))
        self._reach_ns = array("q", bytes(8 * room))
        self._wire = array("q", bytes(8 * self._room))
        for number in range(len(self._classes)):
            self._fill_class(number)

    def _fill_class(self, number: int) -> None:
        size_bytes = self._classes[number]
        self._wire[number] = self._times.wire_bytes(size_bytes)
        for kind, link in enumerate(self._examples):
            at = kind * self._room + number
            self._hold_ns[at] = self._times.hold_ns(link, size_bytes)
            self._reach_ns[at] = self._times.reach_ns(link, size_bytes)

    # ---- messages --------------------------------------------------------------------

    def _carry(self, slot: int) -> None:
        at = slot * _SLOT
        sender = self._slots[at + _FROM] * _SHARE
        source = self._shares[sender + _HOST]
        receiver = self._slots[at + _TO] * _SHARE
        target = self._shares[receiver + _HOST]
        server = self._shares[sender + _SERVER]
        if (source == target and not self.is_folded) or (
            server != _NONE and server == self._shares[receiver + _SERVER]
        ):
            line = self._shares[sender + _LOCAL]
            if line == _NONE:
                self._coming.add(self.now_ns, slot * _KINDS + _ARRIVED)
            else:
                self._enter(slot, line)
        else:
            self._cross(slot, source, target)

    def _cross(self, slot: int, source: int, target: int) -> None:
        """Send a message across the network. Subclasses override this."""
        if not self._is_shared:
            size = self._slots[slot * _SLOT + _CLASS]
            taken_ns = self._path_ns(source, target, size)
            self._coming.add(self.now_ns + taken_ns, slot * _KINDS + _ARRIVED)
        elif self._hosts[source * _WHERE + _UP] == _NONE:
            self._enter(
                slot, self._next_link(source, target, self._hosts[source * _WHERE])
            )
        else:
            self._enter(slot, self._hosts[source * _WHERE + _UP])

    def _path_ns(self, source: int, target: int, size: int) -> int:
        """Count a message on a dedicated path and return its time."""
        key = (source, target, size)
        known = self._paths.get(key)
        if known is None:
            links = [
                self._network.links[link] for link in self._network.path(source, target)
            ]
            known = self._times.path_ns(links, self._classes[size])
            self._paths[key] = known
        self._crossed[key] = self._crossed.get(key, 0) + 1
        return known

    def _next_link(self, source: int, target: int, router: int) -> int:
        """Return the link through which a router forwards messages to a host."""
        last = self._hosts[target * _WHERE + _ROUTER]
        if router == last:
            return self._hosts[target * _WHERE + _DOWN]
        row = self._hops_of[last]
        if row == _NONE:
            row = self._add_hops(last)
        first = self._hops[row + 2 * router]
        count = self._hops[row + 2 * router + 1]
        if count > 1 and self._chooses:
            mixed = self._seed
            mixed = ((mixed ^ source) * _PRIME) & _MASK
            mixed ^= mixed >> 15
            mixed = ((mixed ^ target) * _PRIME) & _MASK
            mixed ^= mixed >> 15
            mixed = ((mixed ^ router) * _PRIME) & _MASK
            mixed ^= mixed >> 15
            return self._hops[first + mixed % count]
        if count == 0:
            raise FabricError(
                "topology",
                f"there is no path from host {source} to host {target}",
                "put the ports on two connected hosts",
            )
        return self._hops[first]

    def path(self, source: int, target: int) -> list[int]:
        """Return the links from one host to another."""
        link = self._hosts[source * _WHERE + _UP]
        router = self._hosts[source * _WHERE + _ROUTER]
        if link == _NONE:
            link = self._next_link(source, target, router)
        links = [link]
        while True:
            router = self._links[link * _LINK + _END]
            if router == _NONE or (
                router == self._hosts[target * _WHERE + _ROUTER]
                and self._hosts[target * _WHERE + _DOWN] == _NONE
            ):
                return links
            link = self._next_link(source, target, router)
            links.append(link)

    def _add_hops(self, last: int) -> int:
        """Add the rows of destination router *last* and return the first."""
        self._measure_distances(last)
        row = self._hops_used
        self._hops_used += 2 * self._routers
        for router in range(self._routers):
            first = self._hops_used
            if first + self._most_leaving > len(self._hops):
                self._hops = grown(self._hops, first + self._most_leaving)
            count = 0
            distance = self._distances[router]
            if distance > 0:
                for at in range(
                    self._first_leaving[router], self._first_leaving[router + 1]
                ):
                    link = self._leaving[at]
                    end = self._links[link * _LINK + _END]
                    if self._distances[end] == distance - 1:
                        self._hops[first + count] = link
                        count += 1
            # The next links are often the same as for the previous destination.
            before = self._lasts[2 * router]
            is_new = self._lasts[2 * router + 1] != count
            for at in range(0 if is_new else count):
                if self._hops[before + at] != self._hops[first + at]:
                    is_new = True
            if is_new:
                self._hops_used += count
                self._lasts[2 * router] = first
                self._lasts[2 * router + 1] = count
            self._hops[row + 2 * router] = self._lasts[2 * router]
            self._hops[row + 2 * router + 1] = count
        self._hops_of[last] = row
        return row

    def _measure_distances(self, last: int) -> None:
        """Set the distances of all routers to router *last*, in links."""
        for router in range(self._routers):
            self._distances[router] = _NONE
        self._distances[last] = 0
        self._reached[0] = last
        count = 1
        at = 0
        while at < count:
            router = self._reached[at]
            at += 1
            for place in range(
                self._first_arriving[router], self._first_arriving[router + 1]
            ):
                before = self._arriving[place]
                if self._distances[before] == _NONE:
                    self._distances[before] = self._distances[router] + 1
                    self._reached[count] = before
                    count += 1

    # ---- rings -----------------------------------------------------------------------

    def _join_ring(self, share: int) -> None:
        """Begin a share of a ring."""
        first = self._shares[share * _SHARE + _GROUP]
        ring = self._rings.get(first)
        if ring is None:
            ring = self._rings[first] = self._ring(first)
        ring.begin(self._shares[share * _SHARE + _AT], self.now_ns)
        if ring.waiting == 0:
            self._coming.add(self.now_ns, first * _KINDS + _STEPPED)

    def _ring(self, first: int) -> RingSteps:
        """Return a new ring, and count its bytes on all links."""
        shape = self._shares[first * _SHARE + _KIND] * _SHAPE
        nranks = self._shapes[shape + _NRANKS]
        place = self._position_row(first)
        send = self._positions[place + _FIRST_SEND]
        count = self._positions[place + _POSITION + _FIRST_SEND] - send
        distance = self._sends[send * _SEND + _PEER]
        size = self._class_of_send(first, send)
        ring = RingSteps(nranks, count, distance)
        for position in range(nranks):
            receiver = first + (position + distance) % nranks
            path = []
            for link in self.path(
                self._shares[(first + position) * _SHARE + _HOST],
                self._shares[receiver * _SHARE + _HOST],
            ):
                row = link * _LINK
                time = self._links[row + _CLASS_OF] * self._room + size
                self._links[row + _CARRIED] += count * self._wire[size]
                path.append((self._hold_ns[time], self._reach_ns[time]))
            ring.set_path(position, path)
        return ring

    def _step_ring(self, first: int) -> None:
        """Take some steps of a ring. After the last step, schedule the share ends."""
        ring = self._rings[first]
        shape = self._shares[first * _SHARE + _KIND] * _SHAPE
        nranks = self._shapes[shape + _NRANKS]
        steps = ring.advance(_STEPPED_MESSAGES // nranks + 1)
        self.messages += steps * nranks
        size = self._class_of_send(
            first, self._positions[self._position_row(first) + _FIRST_SEND]
        )
        for share in range(first, first + nranks):
            row = share * _SHARE
            self._shares[row + _LEFT] -= 2 * steps
            self._shares[row + _SENT] += steps * self._size_bytes[size]
            self._shares[row + _RECEIVED] += steps * self._size_bytes[size]
            if ring.left == 0:
                self._coming.add(ring.end_ns(share - first), share * _KINDS + _ENDED)
        if ring.left == 0:
            del self._rings[first]
        else:
            self._coming.add(self.now_ns, first * _KINDS + _STEPPED)

    def _post_series(self, share: int, send: int, last: int, cause: int) -> int:
        """Send a message now, and following messages up to *last* on the same link.

        All of these messages get their place in the queue of the link, but only the
        first one gets a row now. Each other message gets a row when the previous
        message leaves the link.

        Returns:
            Index of the next send after the posted ones.
        """
        row = share * _SHARE
        host = self._shares[row + _HOST]
        link = self._hosts[host * _WHERE + _UP]
        end = send
        if (
            self._in_series
            and link != _NONE
            and not self.is_folded
            and not self._shapes[self._shares[row + _KIND] * _SHAPE + _IN_TURN]
        ):
            server = self._shares[row + _SERVER]
            while end < last and not self._sends[end * _SEND + _WAITS]:
                receiver = self._receiver(share, end) * _SHARE
                if self._shares[receiver + _HOST] == host or (
                    server != _NONE and self._shares[receiver + _SERVER] == server
                ):
                    break
                end += 1
        if end - send < _LEAST_SERIES:
            self._post(share, send, cause)
            return send + 1
        slot = self._new_slot(share, send, cause)
        self._slots[slot * _SLOT + _MORE] = end - send - 1
        self._enter(slot, link)
        self._count_sent(share, self._slots[slot * _SLOT + _CLASS])
        self._coming.reserve_orders(end - send - 1)
        row = link * _LINK
        for further in range(send + 1, end):
            size = self._class_of_send(share, further)
            self._count_sent(share, size)
            time = self._links[row + _CLASS_OF] * self._room + size
            arrives_ns = self._links[row + _FREE] + self._reach_ns[time]
            # Rounding must not reorder messages.
            if arrives_ns > self._links[row + _LATEST]:
                self._links[row + _LATEST] = arrives_ns
            self._links[row + _FREE] += self._hold_ns[time]
            self._links[row + _CARRIED] += self._wire[size]
        return end

    def _enter(self, slot: int, link: int) -> None:
        """Queue a message at a link."""
        row = link * _LINK
        at = slot * _SLOT
        size = self._slots[at + _CLASS]
        if (
            (
                self._links[row + _END] == _NONE
                or (
                    self._is_routed_by_hosts
                    and not self._forwards(
                        self._links[row + _END], self._slots[at + _TO]
                    )
                )
            )
            and not self.record
            and not self._sends[self._slots[at + _WHICH] * _SEND + _RELEASES]
            and not self._slots[at + _MORE]
            and not self._has_effects(self._slots[at + _WHICH], size)
        ):
            self._enter_last(link, self._slots[at + _FROM], self._slots[at + _TO], size)
            self._slots[at + _NEXT] = self._free_slot
            self._free_slot = slot
            return
        time = self._links[row + _CLASS_OF] * self._room + size
        begins_ns = self.now_ns
        if self._links[row + _FREE] > begins_ns:
            begins_ns = self._links[row + _FREE]
        self._links[row + _FREE] = begins_ns + self._hold_ns[time]
        self._links[row + _CARRIED] += self._wire[size]
        if self._slots[at + _LEFT_AT] == _NONE:
            self._slots[at + _LEFT_AT] = begins_ns
        arrives_ns = begins_ns + self._reach_ns[time]
        # Rounding must not reorder messages.
        if arrives_ns < self._links[row + _LATEST]:
            arrives_ns = self._links[row + _LATEST]
        self._slots[at + _NEXT] = _NONE
        tail = self._links[row + _TAIL]
        self._links[row + _TAIL] = slot
        if tail == _NONE and not self._slots[at + _MORE]:
            self._links[row + _HEAD] = slot
            self._coming.add(arrives_ns, link * _KINDS)
        else:
            order = self._coming.next_order()
            self._slots[at + _ORDER] = order
            if tail == _NONE:
                self._links[row + _HEAD] = slot
                self._coming.add_at(arrives_ns, order, link * _KINDS)
            else:
                self._slots[tail * _SLOT + _NEXT] = slot
        self._slots[at + _ARRIVES] = arrives_ns
        self._links[row + _LATEST] = arrives_ns

    def _forwards(self, router: int, receiver: int) -> bool:
        """Return False if the router is the receiver's host, and True otherwise."""
        host = self._shares[receiver * _SHARE + _HOST] * _WHERE
        return bool(
            self._hosts[host + _DOWN] != _NONE or self._hosts[host + _ROUTER] != router
        )

    def _enter_last(self, link: int, sender: int, receiver: int, size: int) -> None:
        """Queue a message without effects at the last link of its path."""
        row = link * _LINK
        time = self._links[row + _CLASS_OF] * self._room + size
        begins_ns = self.now_ns
        if self._links[row + _FREE] > begins_ns:
            begins_ns = self._links[row + _FREE]
        self._links[row + _FREE] = begins_ns + self._hold_ns[time]
        self._links[row + _CARRIED] += self._wire[size]
        arrives_ns = begins_ns + self._reach_ns[time]
        # Rounding must not reorder messages.
        if arrives_ns < self._links[row + _LATEST]:
            arrives_ns = self._links[row + _LATEST]
        self._links[row + _LATEST] = arrives_ns
        order = self._coming.next_order()
        self._coming.reserve_orders(1)
        self._count_arrival(sender, receiver, size, arrives_ns, order)

    def _follow_up(self, slot: int, link: int) -> int:
        """Return a row for the next message of a series, which replaces *slot*."""
        at = slot * _SLOT
        row = link * _LINK
        following = self._new_slot(
            self._slots[at + _FROM],
            self._slots[at + _WHICH],
            self._slots[at + _CAUSE],
        )
        to = following * _SLOT
        for field in range(_SLOT):
            self._slots[to + field] = self._slots[at + field]
        self._turn_to_next(following, link)
        self._slots[at + _MORE] = 0
        if self._links[row + _TAIL] == slot:
            self._links[row + _TAIL] = following
        return following

    def _turn_to_next(self, slot: int, link: int) -> None:
        """Replace the message in a row by the next message of its series."""
        at = slot * _SLOT
        kind = self._links[link * _LINK + _CLASS_OF] * self._room
        share = self._slots[at + _FROM]
        send = self._slots[at + _WHICH] + 1
        size = self._class_of_send(share, send)
        left_ns = (
            self._slots[at + _LEFT_AT] + self._hold_ns[kind + self._slots[at + _CLASS]]
        )
        arrives_ns = left_ns + self._reach_ns[kind + size]
        self._slots[at + _TO] = self._receiver(share, send)
        self._slots[at + _WHICH] = send
        self._slots[at + _CLASS] = size
        self._slots[at + _LEFT_AT] = left_ns
        # Rounding must not reorder messages.
        if arrives_ns > self._slots[at + _ARRIVES]:
            self._slots[at + _ARRIVES] = arrives_ns
        self._slots[at + _ORDER] += 1
        self._slots[at + _MORE] -= 1

    def _look_ahead(self) -> None:
        """Prefetch the rows of the next events' links and messages."""
        if not self._in_series:
            return  # no events belong to links
        what = self._coming.ahead(_FAR)
        if what >= 0:
            prefetch_cell(self._links, (what >> _KIND_BITS) * _LINK)
        what = self._coming.ahead(_NEAR)
        if what >= 0 and what & (_KINDS - 1) == _NETWORK:
            slot = self._links[(what >> _KIND_BITS) * _LINK + _HEAD]
            if slot != _NONE:
                prefetch_cell(self._slots, slot * _SLOT)
                prefetch_cell(self._slots, slot * _SLOT + _SLOT - 1)
        what = self._coming.ahead(_NEXT_TO)
        if what >= 0 and what & (_KINDS - 1) == _NETWORK:
            slot = self._links[(what >> _KIND_BITS) * _LINK + _HEAD]
            if slot != _NONE:
                slot *= _SLOT
                prefetch_cell(self._shares, self._slots[slot + _FROM] * _SHARE + _HOST)
                prefetch_cell(self._shares, self._slots[slot + _TO] * _SHARE + _HOST)
                # If there is no next message, this prefetches nothing useful.
                prefetch_cell(self._slots, self._slots[slot + _NEXT] * _SLOT + _ARRIVES)

    def _happen(self, number: int) -> None:
        """Remove the first message from a link and forward it."""
        row = number * _LINK
        slot = self._links[row + _HEAD]
        at = slot * _SLOT
        sender = self._slots[at + _FROM]
        receiver = self._slots[at + _TO]
        router = self._links[row + _END]
        link = _NONE
        if router != _NONE and (
            not self._is_routed_by_hosts or self._forwards(router, receiver)
        ):
            link = self._next_link(
                self._shares[sender * _SHARE + _HOST],
                self._shares[receiver * _SHARE + _HOST],
                router,
            )
        following = self._slots[at + _NEXT]
        if self._slots[at + _MORE]:
            size = self._slots[at + _CLASS]
            if (
                link != _NONE
                and self._links[link * _LINK + _END] == _NONE
                and not self._has_effects(self._slots[at + _WHICH], size)
            ):
                self._turn_to_next(slot, number)
                self._coming.add_at(
                    self._slots[at + _ARRIVES],
                    self._slots[at + _ORDER],
                    number * _KINDS,
                )
                self._enter_last(link, sender, receiver, size)
                return
            following = self._follow_up(slot, number)
        self._links[row + _HEAD] = following
        if following == _NONE:
            self._links[row + _TAIL] = _NONE
        else:
            self._coming.add_at(
                self._slots[following * _SLOT + _ARRIVES],
                self._slots[following * _SLOT + _ORDER],
                number * _KINDS,
            )
        if link == _NONE:
            self._arrive(slot)
        else:
            self._enter(slot, link)


def joined(lists: Sequence[Sequence[int]]) -> tuple[array[int], array[int]]:
    """Return the start of each list in the concatenation, and the concatenation."""
    # Compiled code accepts no empty arrays.
    first = array("q", (0, *accumulate(map(len, lists)), 0))
    return first, array("q", (*chain.from_iterable(lists), 0))
