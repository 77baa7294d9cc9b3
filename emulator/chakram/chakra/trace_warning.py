"""What is wrong or odd in a trace set, as readers and checks tell it.

What is odd in a file is told where it is met first, and counted.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from chakram.foundation.errors import TraceError

if TYPE_CHECKING:
    from chakram.chakra.read.reader_options import WarningKind
    from chakram.trace.graph import TraceGraph


@dataclass(frozen=True, slots=True)
class Remark:
    """Something of a kind: where it is first, what was found, and how often it is.

    Attributes:
        kind: Name of the rule that says what it means.
        rank: The rank, None where it belongs to no single one.
        where: The place, in words.
        found: What is there.
        count: How many of the kind there are in this rank.
        hint: What to do, where that is not what the rule says.
    """

    kind: StrEnum
    rank: int | None
    where: str
    found: str
    count: int = 1
    hint: str | None = None


def remark_at(
    kind: StrEnum,
    graph: TraceGraph,
    position: int,
    found: str,
    count: int = 1,
    hint: str | None = None,
) -> Remark:
    """Return a remark on a node."""
    return Remark(kind, graph.rank, graph.locate(position), found, count, hint)


class WarningLog:
    """What is odd in the file of one rank.

    Args:
        rank: The rank.
        uncorrected: What is refused instead of corrected.
    """

    def __init__(self, *, rank: int, uncorrected: Collection[WarningKind]) -> None:
        self._rank = rank
        self._uncorrected = uncorrected
        # The first of each kind, and how many there are.
        self._first: dict[WarningKind, Remark] = {}
        self._counts: dict[WarningKind, int] = {}

    def warn(
        self,
        kind: WarningKind,
        where: str,
        found: str,
        *,
        count: int = 1,
        hint: str | None = None,
    ) -> None:
        """Take note of something odd, *count* times the same.

        Args:
            kind: What it is.
            where: The place.
            found: What is there.
            count: How often.
            hint: What to do, where that is not what the rule says.
        """
        self._counts[kind] = self._counts.get(kind, 0) + count
        if kind not in self._first:
            self._first[kind] = Remark(kind, self._rank, where, found, hint=hint)

    def correct(self, kind: WarningKind, where: str, found: str) -> None:
        """Warn that something was corrected.

        Raises:
            TraceError: If it is not to be.
        """
        if kind in self._uncorrected:
            raise TraceError(
                where,
                found.partition(";")[0],
                f"such nodes are corrected unless {kind} is left uncorrected",
            )
        self.warn(kind, where, found)

    def has(self, kind: WarningKind) -> bool:
        """Tell whether anything of a kind was met."""
        return kind in self._counts

    def count(self, kind: WarningKind) -> None:
        """Count one more of a kind that was met before."""
        self._counts[kind] += 1

    def warnings(self) -> tuple[Remark, ...]:
        """Return the first of each kind, with how many there are."""
        return tuple(
            first
            if self._counts[kind] == 1
            else replace(first, count=self._counts[kind])
            for kind, first in self._first.items()
        )
