"""Process groups: ordered sets of ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple

from chakram.foundation.field_bounds import MAX_NAMES, AtMost, Name

WORLD = "world"
"""Name of the group of all ranks, if the trace does not name that group."""

POINT_TO_POINT = "p2p"
"""Group name of the queue pairs that carry point-to-point messages."""

ANY_OPERATION = "any"
"""Key of a list of process groups that applies to all operations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessGroup:
    """An ordered set of ranks that run collectives together.

    ``ranks`` keeps the order of its source. The position of a rank in ``ranks`` is its
    position in a ring.
    """

    name: Name
    ranks: Annotated[tuple[int, ...], AtMost(MAX_NAMES)]

    def __post_init__(self) -> None:
        if not self.ranks:
            raise ValueError(f"process group {self.name!r} has no ranks")
        if len(set(self.ranks)) != len(self.ranks):
            raise ValueError(f"process group {self.name!r} names a rank twice")
        if min(self.ranks) < 0:
            raise ValueError(f"process group {self.name!r} has a negative rank")

    def position(self, rank: int) -> int:
        """Return the position of *rank*, or raise ValueError if it is not a member."""
        if rank not in self:
            raise ValueError(f"rank {rank} is not in process group {self.name!r}")
        guess = self._guess(rank)
        return self.ranks.index(rank) if guess is None else guess

    def __contains__(self, rank: int) -> bool:
        """Return whether *rank* is a member."""
        return self._guess(rank) is not None or rank in self.ranks

    def lookup_cost(self, rank: int) -> int:
        """Return the number of members to which a lookup compares *rank*."""
        return len(self.ranks) if self._guess(rank) is None else 1

    def _guess(self, rank: int) -> int | None:
        """Return the position of *rank* if the group is a regular range, else None.

        Most groups are ranges. In groups of thousands of ranks, every rank makes this
        lookup, so the method avoids a linear search.
        """
        ranks = self.ranks
        if len(ranks) == 1 or rank == ranks[0]:
            return 0 if rank == ranks[0] else None
        guess = (rank - ranks[0]) // (ranks[1] - ranks[0])
        return guess if 0 < guess < len(ranks) and ranks[guess] == rank else None


def world_group(nranks: int) -> ProcessGroup:
    """Return the group of all ranks, ascending."""
    return ProcessGroup(name=WORLD, ranks=tuple(range(nranks)))


def ranks_text(ranks: Sequence[int], *, limit: int = 4) -> str:
    """Format ranks for display, such as ``0-3, 8`` or ``0, 4, ... 28``.

    Consecutive ranks become ranges. More than *limit* evenly spaced ranks are shown as
    the first two and the last. Other lists show *limit* parts and the number of
    remaining ranks.
    """
    if len(ranks) > limit:
        step = ranks[1] - ranks[0]
        if step > 1 and list(ranks) == list(range(ranks[0], ranks[-1] + 1, step)):
            return f"{ranks[0]}, {ranks[1]}, ... {ranks[-1]}"
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    parts = [
        f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run))
        for run in runs
    ]
    if len(parts) <= limit:
        return ", ".join(parts)
    shown = sum(len(run) for run in runs[:limit])
    return f"{', '.join(parts[:limit])} and {len(ranks) - shown} more"


class GroupDescription(NamedTuple):
    """A process group and its purpose."""

    group: ProcessGroup
    purpose: str
