"""Which nodes belong to one step of PyTorch's profiler.

The profiler marks every step by a node ``ProfilerStep#N``; what starts while it lasts
is of that step.  Nothing else in a trace says where an iteration ends: structure that
repeats may as well be layers or micro-batches.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from chakram.foundation.errors import TraceError

if TYPE_CHECKING:
    from chakram.trace.graph import TraceGraph


_STEP = re.compile(r"ProfilerStep\s?#\s?([0-9]{1,18})")
_SHOWN = 8
_BY_NODES = "--nodes FIRST..LAST cuts by node ids"


def is_step(name: str) -> bool:
    """Say whether a node of this name marks a step."""
    return _STEP.fullmatch(name) is not None


def nodes_of_step(graph: TraceGraph, step: int) -> bytearray:
    """Return by position whether a node is of a step.

    A step lasts until the next one starts, and the last one as long as its marker says.

    Args:
        graph: The trace of one rank.
        step: Number of the step, as the profiler counts it.

    Raises:
        TraceError: If there are no such markers, not this one, or times are missing.
    """
    markers = _markers(graph)
    if step not in markers:
        shown = ", ".join(map(str, sorted(markers)[:_SHOWN]))
        more = ", ..." if len(markers) > _SHOWN else ""
        raise TraceError(
            graph.source, f"has no ProfilerStep#{step}", f"has {shown}{more}"
        )
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
                "has no recorded start, which says what step it is of",
                _BY_NODES,
            )
    return inside


def _markers(graph: TraceGraph) -> dict[int, int]:
    """Return the position of the marker of every step."""
    markers: dict[int, int] = {}
    for position in range(len(graph)):
        match = _STEP.fullmatch(graph.name(position))
        if match is None:
            continue
        if int(match[1]) in markers:
            raise TraceError(
                graph.locate(position),
                "marks a step for the second time, so it is not clear where it begins",
                _BY_NODES,
            )
        markers[int(match[1])] = position
    if not markers:
        raise TraceError(
            graph.source,
            "has no nodes ProfilerStep#N, so nothing says where an iteration ends",
            f"structure that repeats may as well be layers; {_BY_NODES}",
        )
    return markers


def _window(graph: TraceGraph, markers: dict[int, int], step: int) -> tuple[int, int]:
    """Return when a step starts and ends."""
    starts_ns = {}
    for number, position in markers.items():
        start_ns = graph.start_ns(position)
        if not start_ns:
            raise TraceError(
                graph.locate(position), "marks a step without its start", _BY_NODES
            )
        starts_ns[number] = start_ns
    start_ns = starts_ns[step]
    later = [each for each in starts_ns.values() if each > start_ns]
    end_ns = min(later, default=start_ns + graph.duration_ns(markers[step]))
    if end_ns <= start_ns:
        raise TraceError(
            graph.locate(markers[step]),
            "is the last step, and does not say how long it took",
            _BY_NODES,
        )
    return start_ns, end_ns
