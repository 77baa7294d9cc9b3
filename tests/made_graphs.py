"""Builders of small traces: one call per node, one list per rank."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from chakram.collectives.ops import CollectiveOp
from chakram.trace.builder import TraceGraphBuilder
from chakram.trace.node import NodeKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from chakram.collectives.split_sizes import Splits
    from chakram.trace.graph import TraceGraph

__all__ = ["collective", "compute", "job", "label", "receive", "send", "trace"]

Row = dict[str, Any]
"""Arguments of ``TraceGraphBuilder.add``."""


def collective(
    node_id: int,
    op: CollectiveOp = CollectiveOp.ALL_REDUCE,
    *,
    size: int = 1024,
    group: str | None = None,
    after: Iterable[int] = (),
    name: str = "",
    root: int | None = None,
    splits: Splits | None = None,
    start_ns: int | None = None,
) -> Row:
    """Return a collective; *after* are the ids of what it depends on."""
    return {
        "node_id": node_id,
        "kind": NodeKind.COLLECTIVE,
        "name": name or f"{op}-{node_id}",
        "op": op,
        "comm_bytes": size,
        "group": group,
        "dependencies": tuple(after),
        "root": root,
        "splits": splits,
        "start_ns": start_ns,
    }


def send(
    node_id: int,
    peer: int | None,
    *,
    size: int = 64,
    tag: int | None = None,
    after: Iterable[int] = (),
) -> Row:
    """Return a message to *peer*."""
    return {
        "node_id": node_id,
        "kind": NodeKind.SEND,
        "name": f"send-{node_id}",
        "comm_bytes": size,
        "peer": peer,
        "tag": tag,
        "dependencies": tuple(after),
    }


def receive(
    node_id: int,
    peer: int | None,
    *,
    size: int = 64,
    tag: int | None = None,
    after: Iterable[int] = (),
) -> Row:
    """Return a message from *peer*."""
    return {
        **send(node_id, peer, size=size, tag=tag, after=after),
        "kind": NodeKind.RECEIVE,
        "name": f"receive-{node_id}",
    }


def compute(node_id: int, *, after: Iterable[int] = (), **more: int) -> Row:
    """Return a computation; *more* is ``duration_ns``, ``num_ops`` and the like."""
    return {
        "node_id": node_id,
        "kind": NodeKind.COMPUTE,
        "name": f"compute-{node_id}",
        "dependencies": tuple(after),
        **more,
    }


def label(node_id: int, *, after: Iterable[int] = ()) -> Row:
    """Return a node that does nothing."""
    return {
        "node_id": node_id,
        "kind": NodeKind.PASS,
        "name": f"label-{node_id}",
        "dependencies": tuple(after),
    }


def trace(rank: int, rows: Iterable[Row]) -> TraceGraph:
    """Return the trace of one rank."""
    builder = TraceGraphBuilder(rank=rank, source=f"t.{rank}.et")
    for row in rows:
        builder.add(**row)
    return builder.build()


def job(*ranks: Sequence[Row]) -> dict[int, TraceGraph]:
    """Return the traces of a job, one list of nodes per rank."""
    return {rank: trace(rank, rows) for rank, rows in enumerate(ranks)}
