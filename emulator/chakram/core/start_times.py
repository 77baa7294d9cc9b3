"""Recorded start times: whether a trace has them, and from when they count."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chakram.core.trace_node import NodeKind
from chakram.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from chakram.core.trace import TraceGraph

__all__ = ["check_starts", "first_start_ns"]


def check_starts(graphs: Mapping[int, TraceGraph]) -> list[str]:
    """Return what is odd in the recorded starts.

    Raises:
        TraceError: If a rank that does something has none.
    """
    without = 0
    for rank in sorted(graphs):
        graph = graphs[rank]
        busy = [
            position
            for position in range(len(graph))
            if graph.kind(position) != NodeKind.PASS
        ]
        unknown = [each for each in busy if graph.start_ns(each) is None]
        if unknown and len(unknown) == len(busy):
            raise TraceError(
                graph.source,
                f"rank {rank} has no recorded start times",
                "order: dependencies needs none",
            )
        without += len(unknown)
    if not without:
        return []
    return [
        f"{without} nodes have no recorded start time: they start at the beginning of "
        "each iteration"
    ]


def first_start_ns(graph: TraceGraph) -> int:
    """Return the earliest recorded start of a rank, 0 if it has none."""
    return min(
        (
            start_ns
            for position in range(len(graph))
            if (start_ns := graph.start_ns(position)) is not None
        ),
        default=0,
    )
