# cython: language_level=3, annotation_typing=False
"""Readiness of operations: which may start, when they became ready, and why.

Completions may be reported out of order. An operation is ready at the latest completion
time of its dependencies. The dependency with that time released the operation.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["NOTHING", "Readiness"]

NOTHING = -1
"""Index that represents no operation."""

_NOTHING = NOTHING


class Readiness:
    """The dependencies of a program's operations, and the progress of one iteration.

    Args:
        dependencies: Dependencies of each operation.
        preference: Preference of each operation. Among operations that are ready at the
            same time, those with a lower value go first, then those earlier in the
            program. None: all values are equal.

    Attributes:
        left: Number of operations that are not done.
        end_ns: Latest completion time so far, initially the start.
        ready_ns: Time when each operation may start, as far as known.
        released_by: For each operation, the dependency that completed last, or the
            first of several in the program. ``NOTHING``: the start.
    """

    __slots__ = (
        "_counts",
        "_missing",
        "_operation_at",
        "_place_of",
        "_ready",
        "_roots",
        "_successors",
        "end_ns",
        "left",
        "ready_ns",
        "released_by",
    )

    def __init__(
        self,
        dependencies: Sequence[Sequence[int]],
        preference: Sequence[int] | None = None,
    ) -> None:
        self._counts = [len(each) for each in dependencies]
        # Ready operations are queued by their place in the order of preference.
        self._operation_at = list(range(len(dependencies)))
        if preference is not None:
            self._operation_at.sort(key=preference.__getitem__)
        self._place_of = [0] * len(dependencies)
        for place, index in enumerate(self._operation_at):
            self._place_of[index] = place
        self._roots = sorted(
            self._place_of[index] for index, each in enumerate(dependencies) if not each
        )
        self._successors: list[list[int]] = [[] for _ in dependencies]
        for index, each in enumerate(dependencies):
            for dependency in each:
                self._successors[dependency].append(index)
        self._missing: list[int] = []
        self._ready: list[int] = []
        self.left = 0
        self.end_ns = 0
        self.ready_ns: list[int] = []
        self.released_by: list[int] = []

    def another(self) -> Readiness:
        """Return the progress of another rank with the same dependencies.

        Both share the tables, which take 100 bytes per operation.
        """
        made = Readiness(())
        made._counts = self._counts
        made._operation_at = self._operation_at
        made._place_of = self._place_of
        made._roots = self._roots
        made._successors = self._successors
        return made

    def begin(self, start_ns: int) -> None:
        """Start an iteration: operations without dependencies are ready."""
        self._missing = list(self._counts)
        self._ready = list(self._roots)
        self.left = len(self._counts)
        self.end_ns = start_ns
        self.ready_ns = [start_ns] * self.left
        self.released_by = [_NOTHING] * self.left

    def take(self) -> int:
        """Remove and return the first ready operation, or ``NOTHING``."""
        if not self._ready:
            return _NOTHING
        return self._operation_at[heappop(self._ready)]

    def postpone(self, index: int, until_ns: int) -> None:
        """Record that an operation that was taken may not start before *until_ns*."""
        self.ready_ns[index] = until_ns
        self.released_by[index] = _NOTHING

    def done(self, index: int, done_ns: int, takes_no_time: bool = False) -> None:
        """Record that an operation was done at *done_ns*.

        If the operation *takes_no_time*, its dependents count as released by the
        operation that released it.
        """
        if done_ns > self.end_ns:
            self.end_ns = done_ns
        self.left -= 1
        missing = self._missing
        releaser = self.released_by[index] if takes_no_time else index
        for successor in self._successors[index]:
            known_ns = self.ready_ns[successor]
            known = self.released_by[successor]
            if done_ns > known_ns:
                self.ready_ns[successor] = done_ns
                self.released_by[successor] = releaser
            elif (
                done_ns == known_ns
                and releaser != _NOTHING
                and (known == _NOTHING or releaser < known)
            ):
                self.released_by[successor] = releaser
            missing[successor] -= 1
            if missing[successor] == 0:
                heappush(self._ready, self._place_of[successor])
