"""What is wrong or odd in a trace set, as readers and checks tell it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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
