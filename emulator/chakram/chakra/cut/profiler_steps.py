"""Selection of the nodes in one step of the PyTorch profiler.

The profiler marks every step with a node ``ProfilerStep#N``. Nodes that start during a
step belong to it. Nothing else in a trace shows where an iteration ends: a repeating
structure can also be a layer or a micro-batch.

In host traces, ids ascend in the order in which the host started operations. So the
nodes with ids from one marker up to the next belong to the step of the first marker.
This holds without a profile, and even if kernels start later.
"""

from __future__ import annotations

from chakram.foundation.errors import TraceError
from chakram.trace.graph import TraceGraph
from chakram.trace.host_node_ids import STEP, host_id

_SHOWN = 8
_BY_NODES = "use --nodes FIRST..LAST to cut by node ids"


def is_step(name: str) -> bool:
    """Return whether a node with this name marks a step."""
    return STEP.fullmatch(name) is not None


def nodes_of_step(
    graph: TraceGraph, step: int, *, in_host_order: bool = False
) -> bytearray:
    """Return, by position, whether a node belongs to a step.

    A step ends when the next step starts. The last step ends with its marker, or at the
    end of a host trace.

    Args:
        graph: The trace of one rank.
        step: Number of the step, as the profiler counts it.
        in_host_order: Whether the trace was a host trace, so that ids determine steps.

    Raises:
        TraceError: If there are no markers, if this step has none, or if times are
            missing.
    """
    markers = _markers(graph)
    if step not in markers:
        shown = ", ".join(map(str, sorted(markers)[:_SHOWN]))
        more = ", ..." if len(markers) > _SHOWN else ""
        raise TraceError(
            graph.source,
            f"has no ProfilerStep#{step}",
            f"steps in this trace: {shown}{more}",
        )
    if in_host_order:
        return _by_ids(graph, markers, step)
    start_ns, end_ns = _window(graph, markers, step)
    communicates = set(graph.communication())
    inside = bytearray(len(graph))
    for position in range(len(graph)):
        node_start_ns = graph.start_ns(position)
        if node_start_ns:
            inside[position] = start_ns <= node_start_ns < end_ns
        elif position in communicates:
            raise TraceError(
                graph.locate(position),
                "has no recorded start, so its step is unknown",
                _BY_NODES,
            )
    return inside


def _by_ids(graph: TraceGraph, markers: dict[int, int], step: int) -> bytearray:
    """Return which nodes have ids from the step's marker up to the next marker."""
    first = graph.node_id(markers[step])
    others = map(graph.node_id, markers.values())
    last = min((each for each in others if each > first), default=None)
    ids = [host_id(graph.node_id(position)) for position in range(len(graph))]
    return bytearray(first <= each and (last is None or each < last) for each in ids)


def _markers(graph: TraceGraph) -> dict[int, int]:
    """Return the position of the marker of every step."""
    markers: dict[int, int] = {}
    for position in range(len(graph)):
        match = STEP.fullmatch(graph.name(position))
        if match is None:
            continue
        if int(match[1]) in markers:
            raise TraceError(
                graph.locate(position),
                "marks the same step again, so the start of the step is ambiguous",
                _BY_NODES,
            )
        markers[int(match[1])] = position
    if not markers:
        raise TraceError(
            graph.source,
            "has no ProfilerStep#N nodes, so the ends of iterations are unknown",
            f"{_BY_NODES}; a repeating structure may be layers instead of iterations",
        )
    return markers


def _window(graph: TraceGraph, markers: dict[int, int], step: int) -> tuple[int, int]:
    """Return the start and end of a step."""
    starts_ns = {}
    for number, position in markers.items():
        start_ns = graph.start_ns(position)
        if not start_ns:
            raise TraceError(
                graph.locate(position), "marks a step but has no start time", _BY_NODES
            )
        starts_ns[number] = start_ns
    start_ns = starts_ns[step]
    later = [each for each in starts_ns.values() if each > start_ns]
    end_ns = min(later, default=start_ns + graph.duration_ns(markers[step]))
    if end_ns <= start_ns:
        raise TraceError(
            graph.locate(markers[step]),
            "marks the last step but has no duration",
            _BY_NODES,
        )
    return start_ns, end_ns
