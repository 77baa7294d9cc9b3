"""Columns, and results of functions, that ranks of one job share."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from hashlib import blake2b
from typing import TypeVar

from chakram.trace.graph import SHAPE, TraceGraph

_OTHERS = ("op_types", "file_offsets", "durations_ns", "starts_ns", "peers")

_T = TypeVar("_T")


class SharedColumns:
    """Replaces equal columns of graphs with the same objects.

    Most ranks of a large job do the same work, so sharing saves most of the memory.
    """

    def __init__(self) -> None:
        self._firsts: dict[bytes, TraceGraph] = {}
        self._others: dict[bytes, bytearray | array[int]] = {}

    def share(self, graph: TraceGraph) -> None:
        """Replace columns of *graph* that equal those of an earlier graph."""
        first = self._firsts.setdefault(graph.shape(), graph)
        columns = graph.columns
        for name in ("names", *SHAPE):
            setattr(columns, name, getattr(first.columns, name))
        graph.targets, graph.target_ends = first.targets, first.target_ends
        for name in _OTHERS:
            column = getattr(columns, name)
            if column:
                key = blake2b(column, digest_size=16, person=name[:16].encode())
                same = self._others.setdefault(key.digest(), column)
                setattr(columns, name, same)


def once_per_shape(function: Callable[[TraceGraph], _T]) -> Callable[[TraceGraph], _T]:
    """Return a function that calls *function* only once per graph shape."""
    return _once(function, TraceGraph.shape)


def once_per_work(function: Callable[[TraceGraph], _T]) -> Callable[[TraceGraph], _T]:
    """Return a function that calls *function* only once per graph digest."""
    return _once(function, TraceGraph.digest)


def _once(
    function: Callable[[TraceGraph], _T], key_of: Callable[[TraceGraph], bytes]
) -> Callable[[TraceGraph], _T]:
    known: dict[bytes, _T] = {}

    def of(graph: TraceGraph) -> _T:
        key = key_of(graph)
        if key not in known:
            known[key] = function(graph)
        return known[key]

    return of
