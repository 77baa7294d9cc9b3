# cython: annotation_typing=False, language_level=3
"""Whose turn it is: the queue pairs of a port that may send now, one after the other.

They take turns, round and round.  Queue pairs may share a `SendOrder`: then, of those
that may send, only the ones whose next message has the lowest order are in the ring;
the others wait beside it until these are stopped or done.  So a rank that passes a
buffer down a tree sends it to its first child at the whole rate and then to the second,
instead of to both at half of it, and a pipeline flows.  Nobody loses by it but the
queue pairs of the same order: towards all others those in the ring are as many as there
are messages of one step.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

from chakram.roce.fifo import Fifo

if TYPE_CHECKING:
    from chakram.roce.queue_pair import QueuePair

__all__ = ["SendOrder", "Turns"]


class SendOrder:
    """Queue pairs of which the one with the earliest message goes first.

    Attributes:
        lowest: Order of those in the ring; means nothing while there is none.
        in_ring: How many there are.
        behind: Those that may send, but whose messages have a higher order: a heap of
            (order, turn, queue pair). An entry counts only if its queue pair has that
            ``turn_behind``.
    """

    __slots__ = ("behind", "in_ring", "lowest")

    def __init__(self) -> None:
        self.lowest = 0
        self.in_ring = 0
        self.behind: list[tuple[int, int, QueuePair]] = []


class Turns:
    """The ring of queue pairs that may send, and those that wait beside it.

    Attributes:
        ring: Queue pairs, first the one whose turn it is.
    """

    __slots__ = ("_turn", "ring")

    def __init__(self) -> None:
        self.ring = Fifo()
        self._turn = 0

    def enter(self, queue_pair: QueuePair) -> None:
        """Take in a queue pair that may send from now on."""
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
        """Let a queue pair go that may not send now."""
        queue_pair.is_in_ring = False
        order = queue_pair.send_order
        if queue_pair.turn_behind > 0:
            queue_pair.turn_behind = 0
            return
        if self.ring.first() is queue_pair:
            self.ring.take()
        else:
            self._take_out(queue_pair)
        # Nobody saves up a quantum, and nobody is rid of a debt by pausing.
        if queue_pair.deficit_bytes > 0:
            queue_pair.deficit_bytes = 0
        if order is not None:
            order.in_ring -= 1
            if order.in_ring == 0:
                self._call_up(order)

    def end_turn(self) -> None:
        """Let the next queue pair send; one that is alone goes on."""
        if self.ring.count > 1:
            self.ring.append(self.ring.take())

    def has_other_order(self, queue_pair: QueuePair) -> bool:
        """Tell whether the next message of one that is in has another order now."""
        return (
            queue_pair.send_order is not None
            and queue_pair.requester.sending_order() != queue_pair.order
        )

    def _take_out(self, queue_pair: QueuePair) -> None:
        """Take one out of the ring whose turn it is not."""
        ring = Fifo()
        for each in self.ring:
            if each is not queue_pair:
                ring.append(each)
        self.ring = ring

    def _set_aside(self, order: SendOrder) -> None:
        """Let those in the ring wait: somebody has an earlier message."""
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
        """Let one wait until it has the earliest message."""
        self._turn += 1
        queue_pair.turn_behind = self._turn
        heappush(order.behind, (queue_pair.order, self._turn, queue_pair))

    def _call_up(self, order: SendOrder) -> None:
        """Let those with the earliest messages into the ring."""
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
