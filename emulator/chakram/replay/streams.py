# cython: language_level=3, annotation_typing=False
"""The compute slots of a rank: one per stream, first come, first served."""

from __future__ import annotations

from collections import deque

__all__ = ["ComputeStreams"]


class ComputeStreams:
    """Which streams are busy, and what waits for them."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        # A stream is in it while it is busy.
        self._waiting: dict[int | None, deque[tuple[int, int]]] = {}

    def take(self, stream: int | None, index: int, ready_ns: int) -> bool:
        """Take *stream* for operation *index*; False: it has to wait, and is noted."""
        waiting = self._waiting.get(stream)
        if waiting is None:
            self._waiting[stream] = deque()
            return True
        waiting.append((index, ready_ns))
        return False

    def release(self, stream: int | None) -> tuple[int, int] | None:
        """End what runs on *stream*; return (index, ready time) of what has it now.

        None: it is free.
        """
        waiting = self._waiting[stream]
        if waiting:
            return waiting.popleft()
        del self._waiting[stream]
        return None
