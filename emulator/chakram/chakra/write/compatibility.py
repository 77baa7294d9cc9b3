"""What of a trace that is written other readers cannot do, in sentences.

Source: ASTRA-sim 518bd51, built and run: one with ``comm_size`` that differs between
the ranks of a collective waits for ever, with exit code 0; it refuses barriers, and
rooted collectives but for a broadcast, for which it counts its duration.  It aborts at
nodes that neither compute nor communicate, and its roofline waits for ever at
computations without operations and sizes; Chakra 1.0.0's C++ feeder reads sizes as
uint64 only.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from chakram.chakra.et_codec import NodeType, decode_node
from chakram.collectives.ops import CollectiveOp
from chakram.foundation.errors import TraceError
from chakram.trace.node import NodeKind

if TYPE_CHECKING:
    from chakram.trace.graph import TraceGraph


_REFUSED = (
    CollectiveOp.BARRIER,
    CollectiveOp.REDUCE,
    CollectiveOp.GATHER,
    CollectiveOp.SCATTER,
)


_COMMUNICATES = (NodeType.COMM_COLL, NodeType.COMM_SEND, NodeType.COMM_RECV)
_SIMULATED = (NodeType.COMP, NodeType.MEM_LOAD, NodeType.MEM_STORE, *_COMMUNICATES)
_COSTS = frozenset({"num_ops", "tensor_size"})
_SIZES = frozenset({*_COSTS, "comm_size"})
_NEEDED = {
    NodeType.COMM_COLL: frozenset({"comm_type", "comm_size"}),
    NodeType.COMM_SEND: frozenset({"comm_dst", "comm_size", "comm_tag"}),
    NodeType.COMM_RECV: frozenset({"comm_src", "comm_size", "comm_tag"}),
}


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


class RecordsElsewhere:
    """Looks at records that are passed on as their producer wrote them."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def add(self, body: bytes) -> None:
        """Take note of what others cannot do of a node; what is none is passed over."""
        try:
            node = decode_node(body, "")
        except TraceError:
            return
        node_type = int(node.type)
        arms = {each.name: each.WhichOneof("value") for each in node.attr}
        odd_sizes = sum(
            arm != "uint64_val" for name, arm in arms.items() if name in _SIZES
        )
        self._counts["sizes that are no uint64: Chakra's C++ feeder reads a 0"] += (
            odd_sizes
        )
        if node_type not in _SIMULATED:
            self._counts[
                "nodes that neither compute nor communicate, at which ASTRA-sim aborts"
            ] += 1
        elif node_type == NodeType.COMP and not arms.keys() >= _COSTS:
            self._counts[
                "computations without num_ops or tensor_size, for which ASTRA-sim's "
                "roofline waits for ever"
            ] += 1
        elif not _NEEDED.get(NodeType(node_type), frozenset()) <= arms.keys():
            self._counts[
                "collectives and messages without type, size, peer or tag, at which "
                "ASTRA-sim aborts"
            ] += 1

    def sentences(self) -> list[str]:
        """Return what a reader of the set elsewhere should know."""
        told = [f"{count} {what}" for what, count in self._counts.items() if count]
        if told:
            told.append(
                "what others read is written by: chakram trace cut PATH OUT --ranks ..."
            )
        return told
