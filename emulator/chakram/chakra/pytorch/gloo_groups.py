"""Which process group an operation of gloo belongs to, by the thread that did it.

gloo writes no ``record_param_comms``, so a host trace names no group for its
operations.  Their profile tells it indirectly.  Every group has two threads of its own,
which are made when the group is, so that the numbers of threads ascend in the order of
the groups.  Whichever of the two is free takes the next operation, so one that never
worked is not seen.  And an all_to_all with n splits belongs to a group of n ranks.

Where these rules leave one assignment it is taken; where they leave several, none is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_THREADS_OF_A_GROUP = 2
_MOST_TRIES = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """One operation: its thread, and the number of its splits if it has any."""

    thread: int
    splits: int | None


def assign_groups(
    operations: Sequence[Done], groups: Sequence[tuple[str, int]]
) -> list[str] | None:
    """Return the group of every operation; None if the rules leave several, or none.

    Args:
        operations: In the order in which the host began them.
        groups: Name and number of ranks of the groups of this rank, in the order in
            which they were made.
    """
    by_thread: dict[int, list[int]] = {}
    for index, each in enumerate(operations):
        by_thread.setdefault(each.thread, []).append(index)
    search = _Search(
        [by_thread[thread] for thread in sorted(by_thread)],
        [each.splits for each in operations],
        [size for _, size in groups],
    )
    found = search.run()
    if found is None:
        return None
    names: dict[int, str] = {}
    for indices, group in found.items():
        for index in indices:
            names[index] = groups[group][0]
    return [names[index] for index in range(len(operations))]


class _Search:
    """Tries all ways to give neighbouring threads to groups, both ascending."""

    def __init__(
        self,
        threads: Sequence[Sequence[int]],
        splits: Sequence[int | None],
        sizes: Sequence[int],
    ) -> None:
        self._threads = threads
        self._splits = splits
        self._sizes = sizes
        self._tries = 0
        self._solutions: list[Mapping[tuple[int, ...], int]] = []

    def run(self) -> Mapping[tuple[int, ...], int] | None:
        """Return the only solution: groups by the operations of their threads."""
        self._extend(0, 0, {})
        return self._solutions[0] if len(self._solutions) == 1 else None

    def _extend(
        self, thread: int, group: int, so_far: dict[tuple[int, ...], int]
    ) -> None:
        self._tries += 1
        if len(self._solutions) > 1 or self._tries > _MOST_TRIES:
            return
        if thread == len(self._threads):
            self._solutions.append(dict(so_far))
            return
        for count in range(1, _THREADS_OF_A_GROUP + 1):
            taken = self._threads[thread : thread + count]
            if len(taken) < count:
                continue
            indices = tuple(sorted(index for each in taken for index in each))
            wanted = {self._splits[index] for index in indices} - {None}
            # What is left needs a group each for its threads.
            left = -(-(len(self._threads) - thread - count) // _THREADS_OF_A_GROUP)
            for choice in range(group, len(self._sizes) - left):
                if wanted <= {self._sizes[choice]}:
                    so_far[indices] = choice
                    self._extend(thread + count, choice + 1, so_far)
                    del so_far[indices]
