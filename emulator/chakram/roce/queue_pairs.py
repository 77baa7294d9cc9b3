# cython: annotation_typing=False, language_level=3
# cython: wraparound=False, boundscheck=False
"""The queue pairs of a port, by QPN."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chakram.native.prefetch import prefetch_item, prefetch_place

if TYPE_CHECKING:
    from chakram.roce.queue_pair import QueuePair

__all__ = ["QueuePairs"]

_FIRST_BITS = 6
# Fibonacci hashing (D. Knuth, The Art of Computer Programming 3, 6.4) spreads QPNs
# evenly, both consecutive QPNs and QPNs with gaps of 64, as in plans.
_FACTOR = 0x9E37_79B9_7F4A_7C15
_WORD = 0xFFFF_FFFF_FFFF_FFFF


class QueuePairs:
    """Hash table of the queue pairs of a port, by QPN.

    A lookup takes two memory accesses, compared with four in a dictionary. The table
    uses open addressing: the place of a QPN, or a later place, refers to the queue
    pair. The key is the `qpn` attribute of the queue pair.
    """

    __slots__ = ("_added", "_mask", "_places", "_shift")

    def __init__(self) -> None:
        self._added: list[QueuePair] = []
        # At least half of the places are empty. The number of places is a power of two.
        self._places: list[QueuePair | None] = [None] * (1 << _FIRST_BITS)
        self._mask = (1 << _FIRST_BITS) - 1
        self._shift = 64 - _FIRST_BITS

    def add(self, queue_pair: QueuePair) -> None:
        """Add a queue pair.

        Raises:
            ValueError: If its QPN is already in use.
        """
        if self.find(queue_pair.qpn) is not None:
            raise ValueError(f"queue pair {queue_pair.qpn} already exists")
        self._added.append(queue_pair)
        if 2 * len(self._added) > len(self._places):
            self._mask = 2 * len(self._places) - 1
            self._shift -= 1
            self._places = [None] * (self._mask + 1)
            for each in self._added:
                self._put(each)
        else:
            self._put(queue_pair)

    def find(self, qpn: int) -> QueuePair | None:
        """Return the queue pair *qpn*, or None."""
        place = self._first_place(qpn)
        queue_pair = self._places[place]
        while queue_pair is not None and queue_pair.qpn != qpn:
            place = (place + 1) & self._mask
            queue_pair = self._places[place]
        return queue_pair

    def foresee(self, stage: int, qpn: int) -> None:
        """Prefetch the place of a QPN (stage 0), or probably its queue pair (1)."""
        if stage == 0:
            prefetch_place(self._places, self._first_place(qpn))
        else:
            prefetch_item(self._places, self._first_place(qpn), 6)

    def of(self, qpn: int) -> QueuePair:
        """Return the queue pair *qpn*.

        Raises:
            KeyError: If there is no such queue pair.
        """
        queue_pair = self.find(qpn)
        if queue_pair is None:
            raise KeyError(qpn)
        return queue_pair

    def all(self) -> tuple[QueuePair, ...]:
        """Return all queue pairs, in the order in which they were added."""
        return tuple(self._added)

    def _put(self, queue_pair: QueuePair) -> None:
        place = self._first_place(queue_pair.qpn)
        while self._places[place] is not None:
            place = (place + 1) & self._mask
        self._places[place] = queue_pair

    def _first_place(self, qpn: int) -> int:
        """Return the first place to search for *qpn*."""
        return ((qpn * _FACTOR) & _WORD) >> self._shift
