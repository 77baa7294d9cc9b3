# cython: language_level=3, annotation_typing=False
"""The compute streams of a rank, each of which runs one operation at a time."""

from __future__ import annotations

from heapq import heappop, heappush

__all__ = ["ComputeStreams"]


class ComputeStreams:
    """The busy streams and the operations that wait for them.

    The waiting operation with the lowest preference value goes first. Among operations
    with equal values, the one that has waited longest goes first.
    """

    __slots__ = ("_arrivals", "_waiting")

    def __init__(self) -> None:
        self._arrivals = 0
        # Waiting operations of each busy stream: (preference, arrival, operation, ready
        # time).
        self._waiting: dict[int | None, list[tuple[int, int, int, int]]] = {}

    def take(
        self, stream: int | None, index: int, ready_ns: int, preference: int = 0
    ) -> bool:
        """Take *stream* for operation *index*, or queue the operation for the stream.

        Return False if the operation was queued because the stream is busy.
        """
        waiting = self._waiting.get(stream)
        if waiting is None:
            self._waiting[stream] = []
            return True
        self._arrivals += 1
        heappush(waiting, (preference, self._arrivals, index, ready_ns))
        return False

    def release(self, stream: int | None) -> tuple[int, int] | None:
        """End an operation on *stream*. Return (index, ready time) of the next one.

        Return None if no operation waits. The stream is then free.
        """
        waiting = self._waiting[stream]
        if waiting:
            _, _, index, ready_ns = heappop(waiting)
            return index, ready_ns
        del self._waiting[stream]
        return None
