"""What a trace set holds, in numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from chakram.core.groups import WORLD
from chakram.core.trace import NodeKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from chakram.core.groups import ProcessGroup
    from chakram.core.trace import TraceGraph, TraceNode


@dataclass(frozen=True, slots=True, kw_only=True)
class CommunicationRow:
    """All nodes of one kind of communication in groups of one size, over all ranks.

    ``what`` is a collective, ``send`` or ``receive``; ``group_ranks`` is None for
    messages, and for groups that nothing defines.  ``groups`` counts different groups.
    """

    what: str
    group_ranks: int | None
    groups: int
    nodes: int
    min_bytes: int
    max_bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSummary:
    """What a trace set holds.

    Durations are those that the trace states; ``num_ops`` are floating-point ones.
    """

    nodes: int
    nodes_by_kind: Mapping[str, int]
    min_rank_nodes: int
    max_rank_nodes: int
    max_rank_duration_ns: int
    num_ops: int
    communication: tuple[CommunicationRow, ...]


def summarize(
    graphs: Mapping[int, TraceGraph], groups: Mapping[str, ProcessGroup]
) -> TraceSummary:
    """Return what the graphs of all ranks hold; largest traffic first."""
    by_kind = dict.fromkeys(NodeKind, 0)
    traffic: dict[tuple[str, int | None], tuple[set[str], list[int]]] = {}
    num_ops = 0
    durations_ns = []
    for graph in graphs.values():
        duration_ns = 0
        for node in graph.nodes():
            by_kind[node.kind] += 1
            duration_ns += node.duration_ns
            num_ops += node.num_ops
            if node.kind in (NodeKind.COLLECTIVE, NodeKind.SEND, NodeKind.RECEIVE):
                names, sizes = traffic.setdefault(_row_of(node, groups), (set(), []))
                names.add(node.group or WORLD)
                sizes.append(node.comm_bytes)
        durations_ns.append(duration_ns)
    rows = [
        CommunicationRow(
            what=what,
            group_ranks=group_ranks,
            groups=len(names),
            nodes=len(sizes),
            min_bytes=min(sizes),
            max_bytes=max(sizes),
            total_bytes=sum(sizes),
        )
        for (what, group_ranks), (names, sizes) in traffic.items()
    ]
    rows.sort(key=lambda row: (-row.total_bytes, row.what, row.group_ranks or 0))
    lengths = [len(graph) for graph in graphs.values()]
    return TraceSummary(
        nodes=sum(lengths),
        nodes_by_kind={kind.name.lower(): n for kind, n in by_kind.items() if n},
        min_rank_nodes=min(lengths),
        max_rank_nodes=max(lengths),
        max_rank_duration_ns=max(durations_ns),
        num_ops=num_ops,
        communication=tuple(rows),
    )


def _row_of(
    node: TraceNode, groups: Mapping[str, ProcessGroup]
) -> tuple[str, int | None]:
    if node.op is None:
        return node.kind.name.lower(), None
    group = groups.get(node.group or WORLD)
    return str(node.op), None if group is None else len(group.ranks)
