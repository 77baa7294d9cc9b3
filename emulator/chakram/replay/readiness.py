# cython: language_level=3, annotation_typing=False
# cython: wraparound=False, boundscheck=False, initializedcheck=False
"""Readiness of operations: which may start, when they became ready, and why.

Completions may be reported out of order. An operation is ready at the latest completion
time of its dependencies. The dependency with that time released the operation.
"""

from __future__ import annotations

from array import array
from heapq import heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["NOTHING", "Readiness"]

NOTHING = -1
"""Index that represents no operation."""

_NOTHING = NOTHING
_NO_NUMBERS = array("i", (0,))
_NO_TIMES = array("q", (0,))


class Readiness:
    """The dependencies of a program's operations, and the progress of one iteration.

    Args:
        dependencies: Dependencies of each operation.
        preference: Preference of each operation. Among operations that are ready at the
            same time, those with a lower value go first, then those earlier in the
            program. None: all values are equal.

    Attributes:
        left: Number of operations that are not done.
        end_ns: Latest completion time so far, initially the start of the iteration.
        ready_ns: Time when each operation may start, as far as known.
        released_by: For each operation, the dependency that completed last. If several
            dependencies completed last, the first of them in the program. ``NOTHING``:
            the start of the iteration.
    """

    __slots__ = (
        "_count",
        "_counts",
        "_first_successor",
        "_has_room",
        "_missing",
        "_next_root",
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
        count = len(dependencies)
        self._count = count
        # Arrays have a spare entry, because compiled code does not accept empty arrays.
        self._counts = array("i", (*map(len, dependencies), 0))
        # Ready operations are queued by their place in the order of preference.
        order = list(range(count))
        if preference is not None:
            order.sort(key=preference.__getitem__)
        self._operation_at = array("i", (*order, 0))
        self._place_of = array("i", bytes(4 * (count + 1)))
        for place, index in enumerate(order):
            self._place_of[index] = place
        self._roots = sorted(
            self._place_of[index] for index, each in enumerate(dependencies) if not each
        )
        successors: list[list[int]] = [[] for _ in dependencies]
        for index, each in enumerate(dependencies):
            for dependency in each:
                successors[dependency].append(index)
        self._first_successor = array("i", bytes(4 * (count + 1)))
        for index, each in enumerate(successors):
            self._first_successor[index + 1] = self._first_successor[index] + len(each)
        self._successors = array("i", (*(at for each in successors for at in each), 0))
        # Places of ready operations that are not roots, as a heap. Roots are taken from
        # their list in order.
        self._ready: list[int] = []
        self._next_root = count
        self.left = 0
        self.end_ns = 0
        self._has_room = False
        self._missing = _NO_NUMBERS
        self.ready_ns = _NO_TIMES
        self.released_by = _NO_NUMBERS

    def another(self) -> Readiness:
        """Create the readiness of another rank with the same dependencies.

        Both objects share the tables.
        """
        made = Readiness(())
        made._count = self._count
        made._counts = self._counts
        made._operation_at = self._operation_at
        made._place_of = self._place_of
        made._roots = self._roots
        made._next_root = self._count
        made._first_successor = self._first_successor
        made._successors = self._successors
        return made

    def begin(self, start_ns: int) -> None:
        """Start an iteration: operations without dependencies are ready."""
        count = self._count
        if not self._has_room:
            self._has_room = True
            self._missing = array("i", bytes(4 * (count + 1)))
            self.ready_ns = array("q", bytes(8 * (count + 1)))
            self.released_by = array("i", bytes(4 * (count + 1)))
        for index in range(count):
            self._missing[index] = self._counts[index]
            self.ready_ns[index] = start_ns
            self.released_by[index] = _NOTHING
        self._next_root = 0
        self.left = count
        self.end_ns = start_ns

    def take(self) -> int:
        """Remove and return the first ready operation, or ``NOTHING``."""
        if self._next_root < len(self._roots):
            place = self._roots[self._next_root]
            if not self._ready or place < self._ready[0]:
                self._next_root += 1
                return self._operation_at[place]
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
        releaser = self.released_by[index] if takes_no_time else index
        for at in range(self._first_successor[index], self._first_successor[index + 1]):
            successor = self._successors[at]
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
            self._missing[successor] -= 1
            if self._missing[successor] == 0:
                heappush(self._ready, self._place_of[successor])
