"""Ranks that do the same work, each with its own groups and peers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class AlikeRanks:
    """Classes of ranks whose traces differ only in their groups and peers.

    A rank that is d above the first one of its class exchanges messages with the peers
    that are d above the peers of the first one.

    Attributes:
        nranks: Number of ranks of the job.
        firsts: First rank of each class.
        first_of: Function that returns the first rank of a rank's class.
        group_of: Function that returns the group that a rank uses where the first one
            of its class uses the given group.
    """

    nranks: int
    firsts: tuple[int, ...]
    first_of: Callable[[int], int]
    group_of: Callable[[str, int], str]
