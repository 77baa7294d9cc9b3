"""Choice of the ranks whose operations a large simulation records.

A run directory has a record for every operation of every rank, which takes too much
space for tens of thousands of ranks. Large simulations therefore record only some
ranks, in full.  These are whole sets of ranks that exchange messages or are in small
groups together, such as the stages of a pipeline.
"""

from __future__ import annotations

from collections.abc import Sequence

from chakram.foundation.grouping import grouped
from chakram.program.operations import RankProgram

MOST_RANKS = 4_096
"""Maximum number of ranks at which a simulation records all ranks."""

_WANTED = 512
"""Number of ranks that large simulations record, if sets of related ranks fit."""

_SMALL_GROUPS = (64, 32, 16, 8, 4, 2)
"""Limits on group size. Ranks of a group are related if it has at most this many
members.

The first limit for which no set of related ranks exceeds ``_WANTED`` applies."""


def recorded_ranks(programs: Sequence[RankProgram]) -> frozenset[int] | None:
    """Return the indices of the programs to record, or None for all.

    Args:
        programs: The programs of all ranks.
    """
    if len(programs) <= MOST_RANKS:
        return None
    sets = [[place] for place in range(len(programs))]
    for members in _SMALL_GROUPS:
        related = _related(programs, members)
        if max(map(len, related)) <= _WANTED:
            sets = related
            break
    count = max(1, _WANTED // max(map(len, sets)))
    return frozenset(
        place for index in range(count) for place in sets[index * len(sets) // count]
    )


def _related(programs: Sequence[RankProgram], members: int) -> list[list[int]]:
    """Return the sets of programs with related ranks, in order of their first program.

    Related ranks exchange messages, or are in a group of at most *members* ranks.
    """
    place_of = {(each.job, each.rank): place for place, each in enumerate(programs)}
    parents = list(range(len(programs)))

    def root(number: int) -> int:
        while parents[number] != number:
            parents[number] = parents[parents[number]]
            number = parents[number]
        return number

    for place, program in enumerate(programs):
        related = list(program.peers)
        related += [
            group.ranks[0] for group in program.groups if len(group.ranks) <= members
        ]
        for rank in related:
            other = place_of.get((program.job, rank))
            if other is not None:
                first, last = sorted((root(place), root(other)))
                parents[last] = first
    sets = grouped((root(place), place) for place in range(len(programs)))
    return list(sets.values())
