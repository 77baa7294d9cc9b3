"""Names of GPU kernels, and their order, which PyTorch's converter loses.

A stream runs its kernels one after another. But in converted traces, no node depends on
a kernel: computation does not depend on communication, and kernels do not depend on
previous kernels. Therefore each kernel gets a dependency on the previous kernel of its
stream, in the order of ids, which is the launch order.

If the trace names no streams, Chakram assumes that all compute kernels share one
stream. The kernels of each process group have a separate stream, as in PyTorch's NCCL
back end.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from chakram.collectives.groups import WORLD
from chakram.trace.node import NodeKind

if TYPE_CHECKING:
    from chakram.trace.graph import TraceGraph

NCCL_KERNEL: Final = re.compile(r"nccl\w*Kernel")
"""Pattern of the names of NCCL's kernels.

Examples are ``ncclKernel_...`` in old versions, ``ncclDevKernel_...``, and
``ncclSymDevKernel_...`` for symmetric memory.
"""

_Lane: TypeAlias = int | str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """A node that ran on a GPU: its position, and its stream if the trace names it."""

    position: int
    stream: int | None


def kernel_order(graph: TraceGraph, kernels: Sequence[Kernel]) -> dict[int, int]:
    """Map each kernel's position to that of the previous kernel in its stream.

    The result is empty if any node depends on a kernel: such a trace is already
    ordered.
    """
    dependencies, _ = graph.edges()
    if not {kernel.position for kernel in kernels}.isdisjoint(dependencies):
        return {}
    # The converter writes stream 0 if it does not know the stream.
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
