"""The order of GPU kernels that PyTorch's converter loses.

A stream runs its kernels one after the other; but in converted traces no node depends
on a kernel: computation does not wait for communication, nor a kernel for the one
before it.  So each kernel is made to wait for the last one of its stream, in the order
of ids, which is that of launches.

Where the trace names no streams, kernels that compute are taken for one stream, and
those of each process group for one of their own, as PyTorch's NCCL back end has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from chakram.collectives.groups import WORLD
from chakram.trace.node import NodeKind

if TYPE_CHECKING:
    from chakram.trace.graph import TraceGraph

_Lane: TypeAlias = int | str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """A node that ran on a GPU: its position, and its stream if the trace names it."""

    position: int
    stream: int | None


def kernel_order(graph: TraceGraph, kernels: Sequence[Kernel]) -> dict[int, int]:
    """Return by position of a kernel that of the one before it in its stream.

    It is empty where a node depends on a kernel: then the trace has its own order.
    """
    dependencies, _ = graph.edges()
    if not {kernel.position for kernel in kernels}.isdisjoint(dependencies):
        return {}
    # Stream 0 is what the converter writes where it knows none.
    named = any(kernel.stream for kernel in kernels)
    before: dict[int, int] = {}
    last: dict[_Lane, int] = {}
    for kernel in sorted(kernels, key=lambda each: graph.node_id(each.position)):
        lane = kernel.stream if named else _assumed_lane(graph, kernel.position)
        if lane in last:
            before[kernel.position] = last[lane]
        last[lane] = kernel.position
    return before


def _assumed_lane(graph: TraceGraph, position: int) -> _Lane:
    if graph.kind(position) in (NodeKind.COLLECTIVE, NodeKind.SEND, NodeKind.RECEIVE):
        return graph.group(position) or WORLD
    return None
