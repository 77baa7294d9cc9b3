"""Output of ``chakram trace show --json``, as in docs/reference/trace-show.md."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from chakram.chakra.sets.trace_set import TraceSet
    from chakram.chakra.summary.summary import TraceSummary


_MATRIX_RANKS = 512
"""Limit on ranks for the matrix. A larger matrix would make up most of the document."""


def trace_document(
    traces: TraceSet, summary: TraceSummary, *, bytes_per_element: int | None
) -> dict[str, Any]:
    """Return the contents of a trace set as plain values.

    Args:
        traces: The trace set.
        summary: Summary of the trace set.
        bytes_per_element: Bytes of one unit of a stored size. None means one byte.
    """
    unit = bytes_per_element or 1
    traffic, largest = summary.traffic, summary.largest_pairs
    keys = ("src", "dst", "bytes")
    ranks = [rank.rank for rank in summary.per_rank]
    drawn = traffic.matrix is not None and len(ranks) <= _MATRIX_RANKS
    return {
        "name": traces.name,
        "producer": traces.producer,
        "schema": traces.schema,
        "digest": traces.digest,
        "ranks": traces.nranks,
        "bytes_per_element": unit,
        "groups": {name: group.ranks for name, group in traces.groups.items()},
        "group_purposes": dict(traces.purposes),
        "warnings": [asdict(warning) for warning in traces.warnings],
        "nodes": summary.nodes,
        "nodes_by_kind": dict(summary.nodes_by_kind),
        "per_rank": [asdict(rank) for rank in summary.per_rank],
        "communication": [
            {**asdict(row), "stored": row.total_bytes // unit}
            for row in summary.communication
        ],
        "group_traffic": [asdict(group) for group in summary.groups],
        "unused_groups": list(summary.unused_groups),
        "durations_ns": {
            kind: asdict(spread) for kind, spread in summary.durations.items()
        },
        "nodes_without_duration": dict(summary.without_duration),
        "dependencies": asdict(summary.dependencies),
        "messages": None if summary.messages is None else asdict(summary.messages),
        "sent_bytes": list(traffic.sent_bytes),
        "received_bytes": list(traffic.received_bytes),
        "unplaced_nodes": traffic.unplaced,
        "largest_pairs": largest
        and [dict(zip(keys, pair, strict=True)) for pair in largest.pairs],
        "matrix": [list(traffic.row(rank)) for rank in ranks] if drawn else None,
    }
