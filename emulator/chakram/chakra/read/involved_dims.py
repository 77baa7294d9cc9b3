"""Collectives over some dimensions of the ranks: the attribute ``involved_dim``.

The attribute has a boolean for each dimension of the job, innermost first: consecutive
ranks differ in the first dimension. If all values are true, the collective covers all
ranks of its group. Otherwise it covers the ranks of its group that have the same
coordinates in all dimensions that are false. With 2 x 4 ranks, the first dimension
alone gives groups of 2 neighbors, and the second gives groups of every 2nd rank.
ASTRA-sim numbers ranks in this way. It treats dimensions beyond the existing ones as
having one rank.
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


_HINT = "use a list of true and false, one value per dimension"

_LONGEST_EXAMPLE = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPart:
    """The ranks of a group that perform a collective over some dimensions.

    Attributes:
        name: Name of the part in the graph.
        group: Name of the whole group, or None for all ranks.
        ranks: All ranks of the job with the same coordinates in the dimensions that are
            not involved. They may be outside of the group.
        involved: The indices of the involved dimensions.
    """

    name: str
    group: str | None
    ranks: tuple[int, ...]
    involved: tuple[int, ...]


def all_involved(flags: AttributeValue, where: str) -> bool:
    """Return whether ``involved_dim`` means all ranks of a group.

    Raises:
        TraceError: If *flags* is not a list of booleans.
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
    """Return the part of a group that a collective covers, or None for the whole group.

    Args:
        flags: The ``involved_dim`` of the collective, with at least one false value.
        group: Name of the collective's group, or None for all ranks.
        rank: The rank that performs the collective.
        dimensions: Number of ranks along each dimension, innermost first.
        nranks: Number of ranks in the set, or 0 if unknown.
        where: Location of the collective.

    Raises:
        TraceError: If the part cannot be determined.
    """
    shown = ", ".join("true" if flag else "false" for flag in flags[:8])
    shown += ", ..." if len(flags) > 8 else ""
    if not dimensions:
        raise UnknownDimensions(
            where,
            f"is a collective of only some dimensions (involved_dim: {shown}), but "
            "traces do not contain the dimensions of the ranks",
            "set the number of ranks of each dimension, neighbors first: "
            f"trace.dimensions, or --dimensions{_example(nranks, len(flags))}",
        )
    if len(flags) < len(dimensions):
        raise UnknownDimensions(
            where,
            f"involved_dim has {len(flags)} values ({shown}), but there are "
            f"{len(dimensions)} dimensions",
            "use the number of dimensions that the trace was created for",
        )
    if rank >= prod(dimensions):
        raise TraceError(
            where,
            f"rank {rank} is not one of the {prod(dimensions)} ranks of the dimensions",
            "choose dimensions whose product is the number of ranks",
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
    """Return *count* dimensions with the product *nranks*, or an empty string."""
    sizes = [1] * count
    rest, factor = nranks, 2
    factors = []
    while rest > 1:
        # A remainder without a factor up to its square root is prime.
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
    """Refuse dimensions that do not match the number of ranks in a set.

    Raises:
        TraceError: If dimensions are given and their product is not *nranks*.
    """
    if dimensions and prod(dimensions) != nranks:
        sizes = " x ".join(map(str, dimensions))
        raise TraceError(
            where,
            f"has {nranks} ranks, but the dimensions {sizes} have {prod(dimensions)}",
            "choose dimensions whose product is the number of "
            f"ranks{_example(nranks, len(dimensions), before=', e.g. ')}",
        )
