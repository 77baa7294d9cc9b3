"""Incompatibilities of written traces with other readers, as sentences.

Source: tests with a build of ASTRA-sim 518bd51.

* ASTRA-sim never completes a collective whose ``comm_size`` differs between ranks, yet
  its exit code is 0.
* ASTRA-sim refuses barriers and all rooted collectives except broadcast. A broadcast
  takes its recorded duration.
* ASTRA-sim aborts at nodes that neither compute nor communicate.
* ASTRA-sim's roofline model hangs at computations without operations and sizes.

Chakra 1.0.0's C++ feeder reads sizes as uint64 only.
"""

from __future__ import annotations

from collections import Counter

from chakram.chakra.et_codec import NodeType, decode_node
from chakram.collectives.ops import CollectiveOp
from chakram.foundation.errors import TraceError
from chakram.trace.graph import TraceGraph
from chakram.trace.node import NodeKind

_REFUSED = (
    CollectiveOp.BARRIER,
    CollectiveOp.REDUCE,
    CollectiveOp.GATHER,
    CollectiveOp.SCATTER,
)
_OF_OPS = {
    CollectiveOp.ALL_TO_ALL_V: "nodes of uneven all-to-alls: their sizes differ "
    "between ranks, so ASTRA-sim hangs",
    **{op: f"nodes of {op}, which ASTRA-sim refuses" for op in _REFUSED},
    CollectiveOp.BROADCAST: "nodes of broadcast: ASTRA-sim uses the recorded duration, "
    "or 1 ns",
}
"""Text that follows the number of nodes of a collective."""

_COMMUNICATES = (NodeType.COMM_COLL, NodeType.COMM_SEND, NodeType.COMM_RECV)
_SIMULATED = (NodeType.COMP, NodeType.MEM_LOAD, NodeType.MEM_STORE, *_COMMUNICATES)
_COSTS = frozenset({"num_ops", "tensor_size"})
_SIZES = frozenset({*_COSTS, "comm_size"})
_NEEDED = {
    NodeType.COMM_COLL: frozenset({"comm_type", "comm_size"}),
    NodeType.COMM_SEND: frozenset({"comm_dst", "comm_size", "comm_tag"}),
    NodeType.COMM_RECV: frozenset({"comm_src", "comm_size", "comm_tag"}),
}


class GraphCompatibility:
    """Collector of a set's incompatibilities with other readers, rank by rank."""

    def __init__(self) -> None:
        self._counts: Counter[CollectiveOp] = Counter()
        self._untagged = 0

    def add(self, graph: TraceGraph) -> None:
        """Collect the incompatibilities of one rank."""
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
        """Return the incompatibilities as sentences."""
        counts = [(self._counts[op], what) for op, what in _OF_OPS.items()]
        counts.append((self._untagged, "messages without tags, which abort ASTRA-sim"))
        return [f"{count} {what}" for count, what in counts if count]


class RecordCompatibility:
    """Collector of the incompatibilities of records that are copied unchanged."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def add(self, body: bytes) -> None:
        """Collect the incompatibilities of a node. Other records are ignored."""
        try:
            node = decode_node(body, "")
        except TraceError:
            return
        node_type = int(node.type)
        arms = {each.name: each.WhichOneof("value") for each in node.attr}
        odd_sizes = sum(
            arm != "uint64_val" for name, arm in arms.items() if name in _SIZES
        )
        self._counts[
            "sizes that are not uint64, which Chakra's C++ feeder reads as 0"
        ] += odd_sizes
        if node_type not in _SIMULATED:
            self._counts[
                "nodes that neither compute nor communicate, which abort ASTRA-sim"
            ] += 1
        elif node_type == NodeType.COMP and not arms.keys() >= _COSTS:
            self._counts[
                "computations without num_ops or tensor_size, for which ASTRA-sim's "
                "roofline model hangs"
            ] += 1
        elif not _NEEDED.get(NodeType(node_type), frozenset()) <= arms.keys():
            self._counts[
                "collectives and messages without type, size, peer or tag, which abort "
                "ASTRA-sim"
            ] += 1

    def sentences(self) -> list[str]:
        """Return the incompatibilities as sentences."""
        told = [f"{count} {what}" for what, count in self._counts.items() if count]
        if told:
            told.append(
                "to write files that other tools can read, use: chakram trace cut PATH "
                "OUT --ranks ..."
            )
        return told
