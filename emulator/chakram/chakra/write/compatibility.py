"""What of a trace that is written other readers cannot do, in sentences.

Source: ASTRA-sim 518bd51, built and run: one with ``comm_size`` that differs between
the ranks of a collective waits for ever, with exit code 0; it refuses barriers, and
rooted collectives but for a broadcast, for which it counts its duration.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from chakram.collectives.ops import CollectiveOp
from chakram.trace.node import NodeKind

if TYPE_CHECKING:
    from chakram.trace.graph import TraceGraph

__all__ = ["Elsewhere"]

_REFUSED = (
    CollectiveOp.BARRIER,
    CollectiveOp.REDUCE,
    CollectiveOp.GATHER,
    CollectiveOp.SCATTER,
)


class Elsewhere:
    """Looks at the ranks of a set, one after the other."""

    def __init__(self) -> None:
        self._counts: Counter[CollectiveOp] = Counter()
        self._untagged = 0

    def add(self, graph: TraceGraph) -> None:
        """Take note of what others cannot do of a rank."""
        for position in graph.communication():
            if graph.kind(position) is not NodeKind.COLLECTIVE:
                self._untagged += graph.node(position).tag is None
                continue
            op = graph.op(position)
            if op is CollectiveOp.ALL_TO_ALL and graph.node(position).splits:
                op = CollectiveOp.ALL_TO_ALL_V
            if op is not None:
                self._counts[op] += 1

    def sentences(self) -> list[str]:
        """Return what a reader of the set elsewhere should know."""
        told = []
        uneven = self._counts[CollectiveOp.ALL_TO_ALL_V]
        if uneven:
            told.append(
                f"{uneven} nodes of uneven all-to-alls: sizes differ between ranks, "
                "for which ASTRA-sim waits for ever"
            )
        told += [
            f"{self._counts[op]} nodes of {op}, which ASTRA-sim refuses"
            for op in _REFUSED
            if self._counts[op]
        ]
        broadcasts = self._counts[CollectiveOp.BROADCAST]
        if broadcasts:
            told.append(
                f"{broadcasts} nodes of broadcast, for which ASTRA-sim counts the "
                "recorded duration, or 1 ns"
            )
        if self._untagged:
            told.append(
                f"{self._untagged} messages without tags, at which ASTRA-sim aborts"
            )
        return told
