"""Ranks on a grid of parallel dimensions, with process groups along dimensions."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from chakram.collectives.groups import ProcessGroup

DIMENSIONS: Final = ("tp", "cp", "ep", "fsdp", "dp", "pp")
"""Tensor, context, expert, sharded data, data and pipeline parallelism. Neighboring
ranks differ in the first dimension. The order is that of Megatron-LM (tp-cp-ep-dp-pp).
"""


class RankGrid:
    """The position of every rank in every dimension.

    Args:
        degrees: Length of each dimension. The default is 1.
        order: All dimensions. Consecutive ranks are neighbors in the first dimension.
    """

    def __init__(
        self, degrees: Mapping[str, int], order: Sequence[str] = DIMENSIONS
    ) -> None:
        if sorted(order) != sorted(DIMENSIONS):
            raise ValueError(f"{order} must name each of {DIMENSIONS} once")
        self.degrees = {name: degrees.get(name, 1) for name in DIMENSIONS}
        self._strides: dict[str, int] = {}
        stride = 1
        for name in order:
            self._strides[name] = stride
            stride *= self.degrees[name]
        self.nranks = stride

    def position(self, rank: int, dimension: str) -> int:
        """Return the position of *rank* in one dimension, from 0."""
        return rank // self._strides[dimension] % self.degrees[dimension]

    def moved(self, rank: int, dimension: str, position: int) -> int:
        """Return the rank that differs from *rank* only in this position."""
        away = position - self.position(rank, dimension)
        return rank + away * self._strides[dimension]

    def members(self, rank: int, dimensions: Sequence[str]) -> tuple[int, ...]:
        """Return all ranks that differ from *rank* only in *dimensions*, ascending."""
        origin = rank
        for name in dimensions:
            origin = self.moved(origin, name, 0)
        steps = (
            range(0, self.degrees[name] * self._strides[name], self._strides[name])
            for name in dimensions
        )
        return tuple(sorted(origin + sum(away) for away in itertools.product(*steps)))


class GroupTable:
    """Process groups of a grid, by purpose. Their IDs start at 1.

    Groups of one rank send nothing and are omitted.

    Args:
        grid: The ranks.
        purposes: Dimensions by purpose of a group. IDs are assigned in this order.
        divided: By purpose, the division of its groups into parts: (number of neighbors
            in a part, purpose of the parts, purpose of the groups across parts). A
            group across parts has the ranks with the same place in each part.
    """

    def __init__(
        self,
        grid: RankGrid,
        purposes: Mapping[str, tuple[str, ...]],
        divided: Mapping[str, tuple[int, str, str]] = MappingProxyType({}),
    ) -> None:
        self.groups: list[ProcessGroup] = []
        self.purposes: dict[str, str] = {}
        """Purpose of each group, by its ID."""
        self._name_of: defaultdict[str, dict[int, str]] = defaultdict(dict)
        for purpose, dimensions in purposes.items():
            if math.prod(grid.degrees[name] for name in dimensions) == 1:
                continue
            seen: set[int] = set()
            for rank in range(grid.nranks):
                if rank in seen:
                    continue
                members = grid.members(rank, dimensions)
                seen.update(members)
                if purpose not in divided:
                    self.add(purpose, members)
                    continue
                size, part, across = divided[purpose]
                for start in range(0, len(members), size):
                    self.add(part, members[start : start + size])
                for place in range(size):
                    self.add(across, members[place::size])

    def add(self, purpose: str, members: tuple[int, ...]) -> None:
        """Add a group with the next ID, unless it has one rank."""
        if len(members) == 1:
            return
        name = str(len(self.groups) + 1)
        self.groups.append(ProcessGroup(name=name, ranks=members))
        self.purposes[name] = purpose
        self._name_of[purpose].update(dict.fromkeys(members, name))

    def named(self, purpose: str, rank: int) -> str:
        """Return the ID of *rank*'s group, which must have several ranks."""
        return self._name_of[purpose][rank]

    def of(self, purpose: str, rank: int) -> str | None:
        """Return the ID of *rank*'s group, or None if the group would have one rank."""
        return self._name_of.get(purpose, {}).get(rank)
