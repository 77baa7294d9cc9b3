# cython: annotation_typing=False, language_level=3
"""Round robin over the queue pairs of a port that may send now.

Queue pairs may share a `SendOrder`. In that case, the ring contains only queue pairs
whose next message has the lowest order. The other queue pairs wait until those in the
ring are blocked or done.

For example, a rank in a tree sends a buffer to its first child at the full rate, and
then to the second. A pipeline down the tree thus never stalls. Without a `SendOrder`,
the rank would send to both children at half the rate.

Only queue pairs that share the `SendOrder` are delayed. Other queue pairs compete only
with those members of the group that are in the ring.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

from chakram.roce.fifo import Fifo

if TYPE_CHECKING:
    from chakram.roce.queue_pair import QueuePair
    from chakram.roce.send_order import SendOrder

__all__ = ["Turns"]


class Turns:
    """Ring of queue pairs that may send, and the queue pairs that wait outside it.

    Attributes:
        ring: Queue pairs in the ring. The first queue pair sends now.
    """

    __slots__ = ("_turn", "ring")

    def __init__(self) -> None:
        self.ring = Fifo()
        self._turn = 0

    def enter(self, queue_pair: QueuePair) -> None:
        """Add a queue pair that may send from now on."""
        queue_pair.is_in_ring = True
        order = queue_pair.send_order
        if order is None:
            self.ring.append(queue_pair)
            return
        mine = queue_pair.requester.sending_order()
        queue_pair.order = mine
        if order.in_ring > 0 and mine > order.lowest:
            self._put_behind(queue_pair, order)
            return
        if order.in_ring > 0 and mine < order.lowest:
            self._set_aside(order)
        order.lowest = mine
        order.in_ring += 1
        self.ring.append(queue_pair)

    def leave(self, queue_pair: QueuePair) -> None:
        """Remove a queue pair that may not send now."""
        queue_pair.is_in_ring = False
        order = queue_pair.send_order
        if queue_pair.turn_behind > 0:
            queue_pair.turn_behind = 0
            return
        if self.ring.first() is queue_pair:
            self.ring.take()
        else:
            self._take_out(queue_pair)
        # A pause discards the rest of a quantum, but keeps a debt.
        if queue_pair.deficit_bytes > 0:
            queue_pair.deficit_bytes = 0
        if order is not None:
            order.in_ring -= 1
            if order.in_ring == 0:
                self._call_up(order)

    def end_turn(self) -> None:
        """Let the next queue pair send, or the same one if it is the only one."""
        if self.ring.count > 1:
            self.ring.append(self.ring.take())

    def has_other_order(self, queue_pair: QueuePair) -> bool:
        """Return whether the order of a queue pair's next message has changed."""
        return (
            queue_pair.send_order is not None
            and queue_pair.requester.sending_order() != queue_pair.order
        )

    def _take_out(self, queue_pair: QueuePair) -> None:
        """Remove a queue pair that is not the first from the ring."""
        ring = Fifo()
        for each in self.ring:
            if each is not queue_pair:
                ring.append(each)
        self.ring = ring

    def _set_aside(self, order: SendOrder) -> None:
        """Move the queue pairs of *order* out of the ring for an earlier message."""
        ring = Fifo()
        for queue_pair in self.ring:
            if queue_pair.send_order is order:
                if queue_pair.deficit_bytes > 0:
                    queue_pair.deficit_bytes = 0
                self._put_behind(queue_pair, order)
            else:
                ring.append(queue_pair)
        self.ring = ring
        order.in_ring = 0

    def _put_behind(self, queue_pair: QueuePair, order: SendOrder) -> None:
        """Make a queue pair wait until it has the earliest message."""
        self._turn += 1
        queue_pair.turn_behind = self._turn
        heappush(order.behind, (queue_pair.order, self._turn, queue_pair))

    def _call_up(self, order: SendOrder) -> None:
        """Move the queue pairs with the earliest messages into the ring."""
        behind = order.behind
        while behind:
            lowest, turn, queue_pair = behind[0]
            if turn == queue_pair.turn_behind:
                if order.in_ring > 0 and lowest > order.lowest:
                    return
                order.lowest = lowest
                order.in_ring += 1
                queue_pair.turn_behind = 0
                self.ring.append(queue_pair)
            heappop(behind)
