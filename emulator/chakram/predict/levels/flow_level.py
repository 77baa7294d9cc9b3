# cython: language_level=3, annotation_typing=False
# cython: wraparound=False, boundscheck=False, initializedcheck=False, cdivision=True
"""The flow level: messages in flight share links fairly.

Every message has a rate, and the rates are max-min fair: no rate can increase without a
decrease of an equal or lower rate. Progressive filling computes the rates. The link
with the smallest share per message fixes the rates of its messages. These rates are
subtracted from the capacities of the other links, and so on (Bertsekas and Gallager,
Data Networks, 6.5.2). A message arrives after its last byte has left, plus the
propagation delay of its path.

Rates are recomputed when messages begin and end, but only after a minimum interval. The
interval is the fraction *batch* of a message's time. If a message ends, this is the
total time of that message. If a message begins, it is the time that the message would
take alone. Until the interval is over, rates do not change, and messages that begin or
end wait.

A message may therefore start late and end late, each by at most about this fraction of
its time. This happens only if other messages began or ended shortly before. With a
*batch* of 0, rates are always exact.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from chakram.predict.levels import row_offsets
from chakram.predict.levels.message_level import MessageLevel
from chakram.predict.levels.row_offsets import grown

if TYPE_CHECKING:
    from chakram.predict.levels.level_network import LevelNetwork
    from chakram.predict.levels.message_times import LevelTimes

__all__ = ["FlowLevel"]

_NONE = row_offsets.NONE
_KINDS = row_offsets.KINDS
_ARRIVED = row_offsets.ARRIVED
_SLOT = row_offsets.SLOT
_CLASS = row_offsets.CLASS
_POSTED = row_offsets.POSTED
_LEFT_AT = row_offsets.LEFT_AT
_LINK = row_offsets.LINK
_END = row_offsets.END
_CARRIED = row_offsets.CARRIED
_ROUTER = row_offsets.ROUTER
_UP = row_offsets.UP
_DOWN = row_offsets.DOWN
_WHERE = row_offsets.WHERE

_SHARES = 1 << 40
"""Event number of a rate computation, greater than all link numbers."""

_BITS_PER_BYTE_NS = 8e9
_NOTHING_BYTES = 1e-6
_NEVER = 1 << 62
_LEAST_PART = 1e-12


def _wide(old: array[float], needed: int) -> array[float]:
    """Return a larger copy of *old*: see ``grown``."""
    new = array("d", bytes(8 * max(2 * len(old), needed)))
    memoryview(new)[: len(old)] = memoryview(old)
    return new


class FlowLevel(MessageLevel):
    """Traffic that shares links with max-min fairness.

    Args:
        network: Hosts, routers and links.
        times: Bytes of messages on the wire, and times at hosts.
        batch: Fraction of a message's time for which rates may be outdated.
        seed: Seed with which routers choose among equal-cost links for each pair of
            hosts. None means that they always choose the first.
        record: Whether to write flow rows.
    """

    def __init__(
        self,
        network: LevelNetwork,
        times: LevelTimes,
        *,
        batch: float,
        seed: int | None = None,
        record: bool = False,
    ) -> None:
        MessageLevel.__init__(self, network, times, seed=seed, record=record)
        self._in_series = False
        self._batch = batch
        self._due_ns = _NEVER
        self._settled_ns = -_NEVER
        self._most_links = network.longest_path()
        count = max(1, len(network.links))
        # Bytes per nanosecond; 0 means no limit.
        rates = [(link.rate_bps or 0) / _BITS_PER_BYTE_NS for link in network.links]
        self._capacity = array("d", rates or [0.0])
        delays_ns = [link.delay_ns for link in network.links]
        self._delay_ns = array("q", delays_ns or [0])
        self._left = array("d", bytes(8 * count))
        self._using = array("q", bytes(8 * count))
        self._first = array("q", bytes(8 * (count + 1)))
        self._heap_share = array("d", bytes(8 * (count + 1)))
        self._heap_link = array("q", bytes(8 * (count + 1)))
        self._users = array("q", bytes(8))
        # For each message, its links, its remaining bytes, and its rate.
        self._way = array("q", bytes(8 * self._most_links))
        self._remaining = array("d", bytes(8))
        self._rate = array("d", bytes(8))
        self._under_way = array("q", bytes(8))
        self._count = 0

    def rates(self) -> list[float]:
        """Return the rates of the messages in flight, in bytes per nanosecond."""
        return [self._rate[self._under_way[index]] for index in range(self._count)]

    def ways(self) -> list[list[int]]:
        """Return the links of each message in flight, in the order of ``rates``."""
        return [
            [
                self._way[self._under_way[index] * self._most_links + hop]
                for hop in range(self._most_links)
                if self._way[self._under_way[index] * self._most_links + hop] != _NONE
            ]
            for index in range(self._count)
        ]

    # ---- messages --------------------------------------------------------------------

    def _cross(self, slot: int, source: int, target: int) -> None:
        """Start sending a message over the links of its path."""
        at = slot * _SLOT
        if (slot + 1) * self._most_links > len(self._way):
            self._way = grown(self._way, (slot + 1) * self._most_links)
        if slot >= len(self._remaining):
            self._remaining = _wide(self._remaining, slot + 1)
            self._rate = _wide(self._rate, slot + 1)
        size = self._slots[at + _CLASS]
        base = slot * self._most_links
        hops = 0
        slowest = 0.0
        delay_ns = 0
        link = self._hosts[source * _WHERE + _UP]
        router = self._hosts[source * _WHERE + _ROUTER]
        if link == _NONE:
            link = self._next_link(source, target, router)
        while True:
            self._way[base + hops] = link
            hops += 1
            self._links[link * _LINK + _CARRIED] += self._wire[size]
            delay_ns += self._delay_ns[link]
            if self._capacity[link] > 0.0 and (
                slowest == 0.0 or self._capacity[link] < slowest
            ):
                slowest = self._capacity[link]
            router = self._links[link * _LINK + _END]
            if router == _NONE or (
                router == self._hosts[target * _WHERE + _ROUTER]
                and self._hosts[target * _WHERE + _DOWN] == _NONE
            ):
                break
            link = self._next_link(source, target, router)
        while hops < self._most_links:
            self._way[base + hops] = _NONE
            hops += 1
        self._slots[at + _LEFT_AT] = self.now_ns
        if slowest == 0.0:
            self._coming.add(self.now_ns + delay_ns, slot * _KINDS + _ARRIVED)
            return
        self._remaining[slot] = self._wire[size]
        self._rate[slot] = 0.0
        if self._count >= len(self._under_way):
            self._under_way = grown(self._under_way, self._count + 1)
        self._under_way[self._count] = slot
        self._count += 1
        at_ns = self._settled_ns + int(self._batch * (self._wire[size] / slowest))
        self._settle_by(at_ns if at_ns > self.now_ns else self.now_ns)

    def _settle_by(self, at_ns: int) -> None:
        """Schedule a rate computation at *at_ns* or earlier."""
        if at_ns < self._due_ns:
            self._due_ns = at_ns
            self._coming.add(at_ns, _SHARES * _KINDS)

    def _happen(self, number: int) -> None:
        if number < _SHARES:
            MessageLevel._happen(self, number)
            return
        if self._due_ns == self.now_ns:
            self._due_ns = _NEVER
            self._settle()

    def _settle(self) -> None:
        """Complete finished messages, update rates and schedule the next update."""
        elapsed_ns = self.now_ns - self._settled_ns
        self._settled_ns = self.now_ns
        kept = 0
        for index in range(self._count):
            slot = self._under_way[index]
            left = self._remaining[slot] - self._rate[slot] * elapsed_ns
            # The remaining bytes are a rounding error. They would take under a
            # millionth of a nanosecond.
            if self._rate[slot] > 0.0 and left <= _NOTHING_BYTES * self._rate[slot]:
                delay_ns = 0
                base = slot * self._most_links
                for hop in range(self._most_links):
                    if self._way[base + hop] != _NONE:
                        delay_ns += self._delay_ns[self._way[base + hop]]
                self._coming.add(self.now_ns + delay_ns, slot * _KINDS + _ARRIVED)
            else:
                self._remaining[slot] = left
                self._under_way[kept] = slot
                kept += 1
        self._count = kept
        if kept == 0:
            self._settled_ns = -_NEVER  # the next message starts immediately
            return
        self._fill_rates()
        first_ns = -1.0
        took_ns = 0.0
        for index in range(self._count):
            slot = self._under_way[index]
            needed_ns = self._remaining[slot] / self._rate[slot]
            if first_ns < 0.0 or needed_ns < first_ns:
                first_ns = needed_ns
                took_ns = self.now_ns - self._slots[slot * _SLOT + _POSTED]
        if first_ns < self._batch * (took_ns + first_ns):
            first_ns = self._batch * (took_ns + first_ns)
        wait_ns = int(first_ns)
        if wait_ns < first_ns:
            wait_ns += 1
        self._settle_by(self.now_ns + (wait_ns if wait_ns > 0 else 1))

    # ---- fair shares -----------------------------------------------------------------

    def _fill_rates(self) -> None:
        """Compute the max-min fair rates of all messages in flight."""
        links = len(self._capacity)
        self._work += links + self._count
        for link in range(links):
            self._left[link] = self._capacity[link]
            self._using[link] = 0
        total = 0
        for index in range(self._count):
            slot = self._under_way[index]
            self._rate[slot] = -1.0
            base = slot * self._most_links
            for hop in range(self._most_links):
                link = self._way[base + hop]
                if link != _NONE and self._capacity[link] > 0.0:
                    self._using[link] += 1
                    total += 1
        if total > len(self._users):
            self._users = grown(self._users, total)
        place = 0
        for link in range(links):
            self._first[link] = place
            place += self._using[link]
        self._first[links] = place
        for index in range(self._count):
            slot = self._under_way[index]
            base = slot * self._most_links
            for hop in range(self._most_links):
                link = self._way[base + hop]
                if link != _NONE and self._capacity[link] > 0.0:
                    self._users[self._first[link]] = slot
                    self._first[link] += 1
        used = 0
        for link in range(links):
            self._first[link] -= self._using[link]
            if self._using[link]:
                self._raise(used, self._left[link] / self._using[link], link)
                used += 1
        # The share of a link never shrinks during filling. A stale heap key is
        # therefore a lower bound.
        while used:
            link = self._heap_link[0]
            if self._using[link]:
                share = self._left[link] / self._using[link]
                if share <= 0.0:  # rounding error
                    share = self._capacity[link] * _LEAST_PART
                if share > self._heap_share[0]:
                    self._sink(used, share, link)
                    continue
            else:
                share = 0.0
            used -= 1
            if used:
                self._sink(used, self._heap_share[used], self._heap_link[used])
            if not self._using[link]:
                continue
            place = self._first[link]
            end = self._first[link + 1] if link + 1 < links else total
            while place < end:
                slot = self._users[place]
                place += 1
                if self._rate[slot] >= 0.0:
                    continue
                self._rate[slot] = share
                base = slot * self._most_links
                for hop in range(self._most_links):
                    other = self._way[base + hop]
                    if other != _NONE and self._capacity[other] > 0.0:
                        self._left[other] -= share
                        self._using[other] -= 1

    def _raise(self, place: int, share: float, link: int) -> None:
        """Add a link to a heap that contains *place* links."""
        while place:
            above = (place - 1) >> 1
            if self._heap_share[above] <= share:
                break
            self._heap_share[place] = self._heap_share[above]
            self._heap_link[place] = self._heap_link[above]
            place = above
        self._heap_share[place] = share
        self._heap_link[place] = link

    def _sink(self, used: int, share: float, link: int) -> None:
        """Replace the first link of a heap that contains *used* links."""
        place = 0
        below = 1
        while below < used:
            if (
                below + 1 < used
                and self._heap_share[below + 1] < self._heap_share[below]
            ):
                below += 1
            if share <= self._heap_share[below]:
                break
            self._heap_share[place] = self._heap_share[below]
            self._heap_link[place] = self._heap_link[below]
            place = below
            below = 2 * place + 1
        self._heap_share[place] = share
        self._heap_link[place] = link
