"""The order of messages that several queue pairs of a port share."""

from __future__ import annotations

from typing import Any

__all__ = ["SendOrder"]


class SendOrder:
    """Order shared by queue pairs: the queue pair with the earliest message goes first.

    Attributes:
        lowest: Order of the queue pairs in the ring; undefined if the ring contains
            none of them.
        in_ring: Number of queue pairs with this `SendOrder` in the ring.
        behind: Queue pairs that may send, but whose messages have a higher order, as a
            heap of (order, turn, queue pair). An entry is valid only if its turn is the
            ``turn_behind`` of its queue pair.
    """

    __slots__ = ("behind", "in_ring", "lowest")

    def __init__(self) -> None:
        self.lowest = 0
        self.in_ring = 0
        self.behind: list[tuple[int, int, Any]] = []
