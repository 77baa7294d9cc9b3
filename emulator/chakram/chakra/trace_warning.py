"""Warnings about a trace set, as readers and checks report them.

For each kind of warning, a log keeps the first occurrence and a count.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from enum import StrEnum

from chakram.foundation.errors import TraceError
from chakram.trace.graph import TraceGraph


class WarningKind(StrEnum):
    """Properties of a trace that can affect a replay."""

    NO_METADATA = "no-metadata"
    NO_NODES = "no-nodes"
    MISSING_CONTROL_DEPENDENCY = "missing-control-dependency"
    SELF_CONTROL_DEPENDENCY = "self-control-dependency"
    MISSING_DATA_DEPENDENCY = "missing-data-dependency"
    CONTROL_ONLY = "control-dependencies-only"
    COLLECTIVE_LABEL = "collective-label"
    UNKNOWN_NODE_TYPE = "unknown-node-type"
    NO_SIZE = "no-size"
    NO_PEER = "no-peer"
    SCALED_BYTES = "scaled-bytes"
    COLLECTIVE_BODY = "collective-body"
    ELEMENT_SIZES = "element-sizes"
    DIVIDED_SIZES = "divided-sizes"
    UNTYPED_COLLECTIVE = "untyped-collective"
    UNORDERED_KERNELS = "unordered-kernels"
    NO_TIMES = "no-times"
    PROFILE_LEFT_OUT = "profile-left-out"
    GROUP_OF_POINTER = "group-of-pointer"
    GROUP_INFERRED = "group-inferred"
    WAIT_INFERRED = "wait-inferred"
    WAIT_UNKNOWN = "wait-unknown"
    UNKNOWN_COMMUNICATION = "unknown-communication"
    ELEMENTS_AS_BYTES = "elements-as-bytes"
    GROUP_DIFFERS = "group-differs"


@dataclass(frozen=True, slots=True)
class TraceWarning:
    """One kind of warning or problem: its first occurrence and its count.

    Attributes:
        kind: Name of the rule that explains the warning.
        rank: The rank, or None if the warning is not about a single rank.
        where: The location, as text.
        found: Description of the finding.
        count: Number of occurrences of this kind in this rank.
        hint: What to do, if that differs from the rule's remedy.
    """

    kind: StrEnum
    rank: int | None
    where: str
    found: str
    count: int = 1
    hint: str | None = None


def warning_at(
    kind: StrEnum,
    graph: TraceGraph,
    position: int,
    found: str,
    count: int = 1,
    hint: str | None = None,
) -> TraceWarning:
    """Return a warning about a node."""
    return TraceWarning(kind, graph.rank, graph.locate(position), found, count, hint)


@dataclass(slots=True, eq=False, kw_only=True)
class WarningLog:
    """Log of the warnings about one rank's file.

    Args:
        rank: Rank whose file the warnings are about.
        uncorrected: Kinds that raise an error instead of being corrected.
    """

    rank: int
    uncorrected: Collection[WarningKind]
    _first: dict[WarningKind, TraceWarning] = field(init=False, default_factory=dict)
    _counts: dict[WarningKind, int] = field(init=False, default_factory=dict)

    def warn(
        self,
        kind: WarningKind,
        where: str,
        found: str,
        *,
        count: int = 1,
        hint: str | None = None,
    ) -> None:
        """Record *count* occurrences of a warning.

        Args:
            kind: Name of the rule that explains the warning.
            where: Location of the finding, as text.
            found: Description of the finding.
            count: Number of occurrences.
            hint: What to do, if that differs from the rule's remedy.
        """
        self._counts[kind] = self._counts.get(kind, 0) + count
        if kind not in self._first:
            self._first[kind] = TraceWarning(kind, self.rank, where, found, hint=hint)

    def correct(self, kind: WarningKind, where: str, found: str) -> None:
        """Record that the reader corrected a deviation in the trace.

        Raises:
            TraceError: If *kind* is in ``uncorrected``.
        """
        if kind in self.uncorrected:
            raise TraceError(
                where,
                found.partition(";")[0],
                f"to correct such nodes, remove {kind} from the uncorrected kinds",
            )
        self.warn(kind, where, found)

    def has(self, kind: WarningKind) -> bool:
        """Return whether the log has a warning of this kind."""
        return kind in self._counts

    def count(self, kind: WarningKind) -> None:
        """Count one more occurrence of a kind that is already in the log."""
        self._counts[kind] += 1

    def warnings(self) -> tuple[TraceWarning, ...]:
        """Return the first warning of each kind, with its count."""
        return tuple(
            first
            if self._counts[kind] == 1
            else replace(first, count=self._counts[kind])
            for kind, first in self._first.items()
        )
