"""Which expert gets how many tokens: laws of skew, and what was recorded.

A *dispatch* is one all-to-all that takes tokens to their experts; dispatches are
counted from 0, by micro batch or step, then by layer.  A law says how popular every
expert is in a dispatch.  Every rank of the group has tokens of the same mix, so that
each sends an expert the same number; largest remainders make the numbers whole, and
their sum is what the tokens of a rank make: tokens x top_k.  A token goes to different
experts, so that no expert gets more of a rank than that has tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from random import Random

    from chakram.synth.settings.base import Routing

_WEIGHT_UNIT = 2**60


def popularity(
    law: Routing, *, experts: int, nranks: int, dispatch: int, random: Random
) -> list[float]:
    """Return how large a part of all choices each expert gets; their sum is 1.

    Args:
        law: The law.
        experts: Experts of a layer, as many on each rank, in order.
        nranks: Ranks over which they are spread.
        dispatch: Number of the dispatch.
        random: For ``log_normal``.
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
    """Return whole numbers whose sum is *total*, as near to *weights* as *cap* lets.

    What a part cannot take beyond *cap* goes to the others by their weights; a weight
    of 0 gets nothing.  Remainders go to the largest, then to the first.

    Raises:
        ValueError: If the parts cannot take as much.
    """
    # Integers keep it exact: no remainder is lost, and every machine repeats alike.
    parts = {
        index: max(1, int(weight * _WEIGHT_UNIT))
        for index, weight in enumerate(weights)
        if weight > 0
    }
    if cap * len(parts) < total:
        raise ValueError(f"{len(parts)} parts of at most {cap} cannot take {total}")
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


class Router(Protocol):
    """Says what the ranks of an expert-parallel group send one another."""

    def sent(self, dispatch: int, position: int) -> tuple[int, ...] | None:
        """Return bytes from the rank at *position* to each; None: all alike."""

    def received(self, dispatch: int, position: int) -> tuple[int, ...] | None:
        """Return bytes to the rank at *position* from each; None: all alike."""


class LawRouter:
    """Routes by a law of skew.

    Args:
        law: The law.
        experts: Experts of a layer.
        nranks: Ranks over which they are spread.
        tokens: Tokens that a rank sends off.
        top_k: Experts of a token.
        token_bytes: Bytes of a token.
        random_of: Gives a generator of random numbers, the same for the same name.
    """

    def __init__(
        self,
        law: Routing,
        *,
        experts: int,
        nranks: int,
        tokens: int,
        top_k: int,
        token_bytes: int,
        random_of: Callable[[str], Random],
    ) -> None:
        self._law = law
        self._experts = experts
        self._nranks = nranks
        self._tokens = tokens
        self._top_k = top_k
        self._token_bytes = token_bytes
        self._random_of = random_of
        self._rows: dict[int, tuple[int, ...]] = {}

    def bins(self, dispatch: int) -> list[int]:
        """Return how many tokens a rank sends to every expert."""
        weights = popularity(
            self._law,
            experts=self._experts,
            nranks=self._nranks,
            dispatch=dispatch,
            random=self._random_of(f"routing {dispatch}"),
        )
        return apportion(self._tokens * self._top_k, weights, cap=self._tokens)

    def sent(self, dispatch: int, position: int) -> tuple[int, ...] | None:
        """Return bytes from a rank to each; None: all alike."""
        if self._law.law == "balanced" or self._nranks == 1:
            return None
        return self._row(dispatch)

    def received(self, dispatch: int, position: int) -> tuple[int, ...] | None:
        """Return bytes to the rank at *position* from each; None: all alike."""
        if self._law.law == "balanced" or self._nranks == 1:
            return None
        return (self._row(dispatch)[position],) * self._nranks

    def to_nodes(
        self, dispatch: int, ranks_per_node: int, limit: int
    ) -> tuple[int, ...]:
        """Return bytes from any rank to each node, where a node gets a token once.

        Args:
            dispatch: Number of the dispatch.
            ranks_per_node: Neighbours that share a node.
            limit: Nodes of a token at most.
        """
        row = self._row(dispatch)
        copies = [
            sum(row[first : first + ranks_per_node]) // self._token_bytes
            for first in range(0, self._nranks, ranks_per_node)
        ]
        able = sum(1 for each in copies if each)
        total = min(self._tokens * min(limit, able), sum(copies))
        found = apportion(total, copies, cap=self._tokens)
        return tuple(
            min(each, copy) * self._token_bytes
            for each, copy in zip(found, copies, strict=True)
        )

    def _row(self, dispatch: int) -> tuple[int, ...]:
        row = self._rows.get(dispatch)
        if row is None:
            bins, per_rank = self.bins(dispatch), self._experts // self._nranks
            row = tuple(
                sum(bins[first : first + per_rank]) * self._token_bytes
                for first in range(0, self._experts, per_rank)
            )
            self._rows[dispatch] = row
        return row


class RecordedRouter:
    """Routes as was recorded; after the last dispatch the first comes again.

    Args:
        matrices: Of every dispatch, bytes by source and destination.
    """

    def __init__(self, matrices: Sequence[Sequence[Sequence[int]]]) -> None:
        self._matrices = matrices

    def sent(self, dispatch: int, position: int) -> tuple[int, ...] | None:
        """Return bytes from the rank at *position* to each."""
        return tuple(self._matrices[dispatch % len(self._matrices)][position])

    def received(self, dispatch: int, position: int) -> tuple[int, ...] | None:
        """Return bytes to the rank at *position* from each."""
        matrix = self._matrices[dispatch % len(self._matrices)]
        return tuple(row[position] for row in matrix)
