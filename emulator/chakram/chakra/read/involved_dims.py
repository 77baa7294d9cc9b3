"""Collectives of some dimensions of the ranks: the attribute ``involved_dim``.

It has a truth value for each dimension of the job, the one in which neighbours differ
first.  All true means all ranks of the group.  Otherwise a collective is one of the
ranks of its group that share their places in all dimensions that are not involved:
of 2 x 4 ranks, the first dimension alone makes groups of 2 neighbours, the second
groups of every 2nd rank.  ASTRA-sim numbers ranks so, and takes dimensions beyond those
that there are for ones of one rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from chakram.chakra.read.groups import ranks_name
from chakram.collectives.groups import WORLD
from chakram.foundation.errors import TraceError, UnknownDimensions
from chakram.trace.replication import members_of

if TYPE_CHECKING:
    from chakram.chakra.et_codec import AttributeValue


_HINT = "e.g. a list of true and false, one for each dimension"

_LONGEST_EXAMPLE = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPart:
    """The ranks of a group that do a collective of some dimensions.

    Attributes:
        name: Its name in the graph.
        group: Name of the whole group; None: all ranks.
        ranks: All ranks of the job that share the places of the rank in the dimensions
            that are not involved, be they of the group or not.
        involved: The places of the dimensions that are involved.
    """

    name: str
    group: str | None
    ranks: tuple[int, ...]
    involved: tuple[int, ...]


def all_involved(flags: AttributeValue, where: str) -> bool:
    """Say whether ``involved_dim`` means all ranks of a group.

    Raises:
        TraceError: If it is something else than a list of truth values.
    """
    if not isinstance(flags, tuple) or any(flag not in (0, 1) for flag in flags):
        raise TraceError(where, f"involved_dim is {str(flags)[:40]}", _HINT)
    return all(flags)


def part_of_group(
    flags: Sequence[object],
    *,
    group: str | None,
    rank: int,
    dimensions: Sequence[int],
    nranks: int,
    where: str,
) -> GroupPart | None:
    """Return the part of a group that a collective covers; None: all of it.

    Args:
        flags: Its ``involved_dim``, of which not all are true.
        group: Name of its group; None: all ranks.
        rank: The rank whose collective it is.
        dimensions: How many ranks there are along each, neighbours first.
        nranks: Number of ranks of the set; 0: not known.
        where: Place of the collective.

    Raises:
        TraceError: If that cannot be told.
    """
    shown = ", ".join("true" if flag else "false" for flag in flags[:8])
    shown += ", ..." if len(flags) > 8 else ""
    if not dimensions:
        raise UnknownDimensions(
            where,
            f"is a collective of some dimensions only (involved_dim: {shown}), and "
            "traces do not say how ranks stand in dimensions",
            "say how many ranks each has, neighbours first: trace.dimensions, or "
            f"--dimensions{_example(nranks, len(flags))}",
        )
    if len(flags) < len(dimensions):
        raise UnknownDimensions(
            where,
            f"involved_dim has {len(flags)} values ({shown}), there are "
            f"{len(dimensions)} dimensions",
            "give as many dimensions as the trace was made for",
        )
    if rank >= prod(dimensions):
        raise TraceError(
            where,
            f"rank {rank} is none of the {prod(dimensions)} that the dimensions make",
            "their product must be the number of ranks",
        )
    shape, involved, stride = [], [], 1
    for place, size in enumerate(dimensions):
        if flags[place]:
            involved.append(place)
            shape.append((stride, size))
        stride *= size
    ranks = tuple(members_of(tuple(shape), rank))
    if len(ranks) == prod(dimensions):
        return None
    return GroupPart(
        name=ranks_name(group or WORLD, ranks),
        group=group,
        ranks=ranks,
        involved=tuple(involved),
    )


def _example(nranks: int, count: int, before: str = " ") -> str:
    """Return *count* dimensions that make all ranks, as text; none: it is empty."""
    sizes = [1] * count
    rest, factor = nranks, 2
    factors = []
    while rest > 1:
        # What is left without a factor up to its root is a prime.
        factor = rest if factor * factor > rest else factor
        while rest % factor == 0:
            factors.append(factor)
            rest //= factor
        factor += 1
    for each in reversed(factors):
        sizes[sizes.index(min(sizes))] *= each
    text = ",".join(map(str, sorted(sizes, reverse=True)))
    return f"{before}{text}" if nranks and len(text) < _LONGEST_EXAMPLE else ""


def check_dimensions(dimensions: Sequence[int], *, nranks: int, where: str) -> None:
    """Refuse dimensions that do not make the ranks of a set.

    Raises:
        TraceError: If there are some, and their product is not *nranks*.
    """
    if dimensions and prod(dimensions) != nranks:
        sizes = " x ".join(map(str, dimensions))
        raise TraceError(
            where,
            f"has {nranks} ranks; dimensions of {sizes} make {prod(dimensions)}",
            "their product must be the number of ranks"
            f"{_example(nranks, len(dimensions), before=', e.g. ')}",
        )
