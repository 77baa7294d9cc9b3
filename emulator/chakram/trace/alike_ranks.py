"""Ranks that do the same work, each with its own groups and peers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class AlikeRanks:
    """Classes of ranks whose traces differ only in their groups and peers.

    If the number of a rank is d above that of the first rank of its class, its peers
    are also d above those of the first rank.

    Attributes:
        nranks: Number of ranks of the job.
        firsts: First rank of each class.
        first_of: Function that returns the first rank of a rank's class.
        group_of: Function that takes a group of a class's first rank and another rank
            of the class. It returns the group that this other rank uses instead.
    """

    nranks: int
    firsts: tuple[int, ...]
    first_of: Callable[[int], int]
    group_of: Callable[[str, int], str]
