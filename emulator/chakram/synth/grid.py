"""Ranks on a grid of parallel dimensions, and the process groups along its lines."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Final

from chakram.collectives.groups import ProcessGroup

DIMENSIONS: Final = ("tp", "cp", "ep", "fsdp", "dp", "pp")
"""Tensor, context, expert, sharded data, data and pipeline parallelism, in the order in
which neighbours are given to them: that of Megatron-LM (tp-cp-ep-dp-pp)."""


class RankGrid:
    """Which position every rank has in every dimension.

    Args:
        degrees: Length of each dimension; what is not there is 1.
        order: All dimensions; ranks that differ by one are neighbours in the first.
    """

    def __init__(
        self, degrees: Mapping[str, int], order: Sequence[str] = DIMENSIONS
    ) -> None:
        if sorted(order) != sorted(DIMENSIONS):
            raise ValueError(f"{order} does not name each of {DIMENSIONS} once")
        self.degrees = {name: degrees.get(name, 1) for name in DIMENSIONS}
        self._strides: dict[str, int] = {}
        stride = 1
        for name in order:
            self._strides[name] = stride
            stride *= self.degrees[name]
        self.nranks = stride

    def position(self, rank: int, dimension: str) -> int:
        """Return where *rank* stands in one dimension, from 0."""
        return rank // self._strides[dimension] % self.degrees[dimension]

    def moved(self, rank: int, dimension: str, position: int) -> int:
        """Return the rank that differs from *rank* in one position only."""
        away = position - self.position(rank, dimension)
        return rank + away * self._strides[dimension]

    def members(self, rank: int, dimensions: Sequence[str]) -> tuple[int, ...]:
        """Return all ranks that differ from *rank* in *dimensions* only, ascending."""
        origin = rank
        for name in dimensions:
            origin = self.moved(origin, name, 0)
        steps = (
            range(0, self.degrees[name] * self._strides[name], self._strides[name])
            for name in dimensions
        )
        return tuple(sorted(origin + sum(away) for away in itertools.product(*steps)))


class GroupTable:
    """The process groups of a grid: ids from 1, a few purposes each along some lines.

    Groups of one rank have nothing to send and do not exist.

    Args:
        grid: The ranks.
        purposes: Dimensions by what a group is for; ids are given in that order.
        divided: By purpose what its groups are divided into instead: how many
            neighbours make a part, what the parts are for, and what the groups of all
            that have the same place in their parts are for.
    """

    def __init__(
        self,
        grid: RankGrid,
        purposes: Mapping[str, tuple[str, ...]],
        divided: Mapping[str, tuple[int, str, str]] | None = None,
    ) -> None:
        self.groups: list[ProcessGroup] = []
        self.purposes: dict[str, str] = {}
        """What a group is for, by its id."""
        self._name_of: dict[str, dict[int, str]] = {}
        for purpose, dimensions in purposes.items():
            named = self._name_of[purpose] = {}
            if math.prod(grid.degrees[name] for name in dimensions) == 1:
                continue
            for rank in range(grid.nranks):
                if rank in named:
                    continue
                members = grid.members(rank, dimensions)
                if divided is None or purpose not in divided:
                    self._add(purpose, members)
                    continue
                named.update(dict.fromkeys(members, ""))
                size, part, across = divided[purpose]
                for start in range(0, len(members), size):
                    self._add(part, members[start : start + size])
                for place in range(size):
                    self._add(across, members[place::size])
            if divided and purpose in divided:
                named.clear()

    def _add(self, purpose: str, members: tuple[int, ...]) -> None:
        if len(members) == 1:
            return
        name = str(len(self.groups) + 1)
        self.groups.append(ProcessGroup(name=name, ranks=members))
        self.purposes[name] = purpose
        named = self._name_of.setdefault(purpose, {})
        named.update(dict.fromkeys(members, name))

    def of(self, purpose: str, rank: int) -> str | None:
        """Return the id of *rank*'s group, None if it would be alone in it."""
        return self._name_of.get(purpose, {}).get(rank)
