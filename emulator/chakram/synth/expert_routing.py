"""Routing of tokens to experts, by a skewed distribution or as recorded.

A *dispatch* is one all-to-all that takes tokens to their experts. Dispatches are
counted from 0, by micro batch or step, then by layer. A *law* (``Routing.law``) is a
distribution: it defines the popularity of every expert in a dispatch. All ranks of the
group have the same mix of tokens, so each sends the same number to an expert. Numbers
are rounded by the largest-remainder method. Their sum is the tokens of a rank times
top_k. The experts of a token are all different, so a rank sends each expert at most all
of its tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from random import Random

    from chakram.synth.settings.base import Routing

_WEIGHT_UNIT = 2**60


def popularity(
    law: Routing, *, experts: int, nranks: int, dispatch: int, random: Random
) -> list[float]:
    """Return the fraction of all choices that each expert gets. The fractions sum to 1.

    Args:
        law: The distribution.
        experts: Number of experts per layer. They are evenly divided among the ranks,
            in order.
        nranks: Number of ranks among which the experts are divided.
        dispatch: Number of the dispatch.
        random: Source of random numbers for ``log_normal``.
    """
    per_rank = experts // nranks
    hot: range | None = None
    match law.law:
        case "hot_expert":
            hot = range(law.target, law.target + 1)
        case "hot_rank":
            hot = range(law.target * per_rank, (law.target + 1) * per_rank)
        case "rotating":
            now = (law.target + dispatch // law.period) % experts
            hot = range(now, now + 1)
        case "burst" if dispatch % law.period < law.length:
            hot = range(law.target, law.target + 1)
        case "zero_rank":
            idle = range(law.target * per_rank, (law.target + 1) * per_rank)
            rest = experts - len(idle)
            return [0.0 if each in idle else 1 / rest for each in range(experts)]
        case "log_normal":
            drawn = [math.exp(law.sigma * random.gauss()) for _ in range(experts)]
            return [each / sum(drawn) for each in drawn]
    if hot is None or len(hot) == experts:
        return [1 / experts] * experts
    cold = experts - len(hot)
    return [
        law.share / len(hot) if each in hot else (1 - law.share) / cold
        for each in range(experts)
    ]


def apportion(total: int, weights: Sequence[float], *, cap: int) -> list[int]:
    """Return integers whose sum is *total*, proportional to *weights* up to *cap*.

    If a part exceeds *cap*, the excess goes to the other parts by weight. A part with
    weight 0 gets nothing. Rounding favors the largest remainders, then the first parts.

    Raises:
        ValueError: If the parts cannot sum to *total*.
    """
    # Integers are exact: no remainder is lost, and every machine gets the same result.
    parts = {
        index: max(1, int(weight * _WEIGHT_UNIT))
        for index, weight in enumerate(weights)
        if weight > 0
    }
    if cap * len(parts) < total:
        raise ValueError(f"{len(parts)} parts of at most {cap} cannot hold {total}")
    result = [0] * len(weights)
    left = total
    while full := [i for i in parts if left * parts[i] > cap * sum(parts.values())]:
        for index in full:
            result[index] = cap
            left -= cap
            del parts[index]
    whole = sum(parts.values())
    for index in parts:
        result[index] = left * parts[index] // whole
    rest = left - sum(result[index] for index in parts)
    by_remainder = sorted(parts, key=lambda index: -(left * parts[index] % whole))
    for index in by_remainder[:rest]:
        result[index] += 1
    return result


def part_sums(numbers: Sequence[int], size: int) -> list[int]:
    """Return the sums of consecutive parts of *size* numbers."""
    firsts = range(0, len(numbers), size)
    return [sum(numbers[first : first + size]) for first in firsts]


class Router(Protocol):
    """The bytes that ranks of an expert-parallel group send to each other."""

    def sent(self, dispatch: int, position: int) -> tuple[int, ...] | None:
        """Return bytes from *position* to each rank, or None if all are equal."""

    def received(self, dispatch: int, position: int) -> tuple[int, ...] | None:
        """Return bytes to *position* from each rank, or None if all are equal."""


@dataclass(slots=True, eq=False)
class LawRouter:
    """Router of tokens by a skewed distribution.

    Args:
        law: The distribution.
        experts: Number of experts per layer.
        nranks: Number of ranks among which the experts are divided.
        tokens: Number of tokens that a rank sends to experts.
        top_k: Number of experts per token.
        token_bytes: Bytes per token.
        random_of: Function that returns the random number generator for a name. Equal
            names give equal generators.
    """

    law: Routing
    _: KW_ONLY
    experts: int
    nranks: int
    tokens: int
    top_k: int
    token_bytes: int
    random_of: Callable[[str], Random]
    _rows: dict[int, tuple[int, ...]] = field(init=False, default_factory=dict)

    def bins(self, dispatch: int) -> list[int]:
        """Return the number of tokens that a rank sends to every expert."""
        weights = popularity(
            self.law,
            experts=self.experts,
            nranks=self.nranks,
            dispatch=dispatch,
            random=self.random_of(f"routing {dispatch}"),
        )
        return apportion(self.tokens * self.top_k, weights, cap=self.tokens)

    def sent(self, dispatch: int, position: int) -> tuple[int, ...] | None:
        """Return bytes from any position to each rank, or None if all are equal."""
        if self.law.law == "balanced" or self.nranks == 1:
            return None
        return self._row(dispatch)

    def received(self, dispatch: int, position: int) -> tuple[int, ...] | None:
        """Return bytes to *position* from each rank, or None if all are equal."""
        row = self.sent(dispatch, position)
        return None if row is None else (row[position],) * self.nranks

    def to_nodes(
        self, dispatch: int, ranks_per_node: int, limit: int
    ) -> tuple[int, ...]:
        """Return the bytes that any rank sends to each node.

        A node gets each token only once.

        Args:
            dispatch: Number of the dispatch.
            ranks_per_node: Number of neighbors that share a node.
            limit: Maximum number of nodes per token.
        """
        row = self._row(dispatch)
        copies = [each // self.token_bytes for each in part_sums(row, ranks_per_node)]
        able = sum(1 for each in copies if each)
        total = min(self.tokens * min(limit, able), sum(copies))
        found = apportion(total, copies, cap=self.tokens)
        return tuple(
            min(each, copy) * self.token_bytes
            for each, copy in zip(found, copies, strict=True)
        )

    def _row(self, dispatch: int) -> tuple[int, ...]:
        row = self._rows.get(dispatch)
        if row is None:
            bins = part_sums(self.bins(dispatch), self.experts // self.nranks)
            row = self._rows[dispatch] = tuple(each * self.token_bytes for each in bins)
        return row


class RecordedRouter:
    """Router that repeats the recorded dispatches in a cycle.

    Args:
        matrices: Bytes of every dispatch, by source and destination.
    """

    def __init__(self, matrices: Sequence[Sequence[Sequence[int]]]) -> None:
        self._matrices = matrices

    def sent(self, dispatch: int, position: int) -> tuple[int, ...] | None:
        """Return bytes from the rank at *position* to each rank."""
        return tuple(self._matrices[dispatch % len(self._matrices)][position])

    def received(self, dispatch: int, position: int) -> tuple[int, ...] | None:
        """Return bytes to the rank at *position* from each rank."""
        matrix = self._matrices[dispatch % len(self._matrices)]
        return tuple(row[position] for row in matrix)
