# cython: language_level=3, annotation_typing=False
"""The compute slots of a rank: one per stream, for one operation at a time."""

from __future__ import annotations

from heapq import heappop, heappush

__all__ = ["ComputeStreams"]


class ComputeStreams:
    """Which streams are busy, and what waits for them.

    Of what waits, the operation of the lowest preference goes first; of equal ones
    who came first.
    """

    __slots__ = ("_arrivals", "_waiting")

    def __init__(self) -> None:
        self._arrivals = 0
        # A stream is in it while it is busy: (preference, arrival, operation, ready).
        self._waiting: dict[int | None, list[tuple[int, int, int, int]]] = {}

    def take(
        self, stream: int | None, index: int, ready_ns: int, preference: int = 0
    ) -> bool:
        """Take *stream* for operation *index*; False: it has to wait, and is noted."""
        waiting = self._waiting.get(stream)
        if waiting is None:
            self._waiting[stream] = []
            return True
        self._arrivals += 1
        heappush(waiting, (preference, self._arrivals, index, ready_ns))
        return False

    def release(self, stream: int | None) -> tuple[int, int] | None:
        """End what runs on *stream*; return (index, ready time) of what has it now.

        None: it is free.
        """
        waiting = self._waiting[stream]
        if waiting:
            _, _, index, ready_ns = heappop(waiting)
            return index, ready_ns
        del self._waiting[stream]
        return None
