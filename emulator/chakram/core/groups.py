"""Process groups: ordered sets of ranks."""

from __future__ import annotations

from dataclasses import dataclass

WORLD = "world"
"""Name of the group of all ranks of a job, where the trace gives it none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessGroup:
    """An ordered set of ranks that run collectives together.

    ``ranks`` keeps the order of its source: the position of a rank in it is its
    position in a ring.
    """

    name: str
    ranks: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.ranks:
            raise ValueError(f"process group {self.name!r} has no ranks")
        if len(set(self.ranks)) != len(self.ranks):
            raise ValueError(f"process group {self.name!r} names a rank twice")
        if min(self.ranks) < 0:
            raise ValueError(f"process group {self.name!r} has a negative rank")

    def position(self, rank: int) -> int:
        """Return the position of *rank*; ValueError if it is not a member."""
        if rank not in self.ranks:
            raise ValueError(f"rank {rank} is not in process group {self.name!r}")
        return self.ranks.index(rank)


def world_group(nranks: int) -> ProcessGroup:
    """Return the group of all ranks, ascending."""
    return ProcessGroup(name=WORLD, ranks=tuple(range(nranks)))
