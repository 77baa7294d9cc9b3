"""Policies of the ready queue: which of several ready operations starts first.

A policy chooses only among ready operations, so it cannot violate a dependency. The
policy matters if compute operations compete for a stream, or if operations that become
ready at the same time compete for the port.

Source: the dependency-aware feeder of the Chakra paper, section 4.1. Its ready queue is
ordered by measured start time, by communication, or first in, first out.
"""

from __future__ import annotations

from collections.abc import Callable

from chakram.plan.plan import POLICIES
from chakram.program.columns import COMPUTE, OperationColumns
from chakram.trace.nullable_columns import NO_VALUE

_LAST = 1 << 62


def preferences(policy: str, columns: OperationColumns) -> list[int]:
    """Return the preference of each operation, which orders operations that are ready.

    Operations with lower values go first. Operations with equal values go in the order
    in which they became ready.

    Raises:
        KeyError: If the policy is unknown (see ``chakram.plan.plan.POLICIES``).
    """
    return _MAKERS[policy](columns)


def _fifo(columns: OperationColumns) -> list[int]:
    return [0] * len(columns)


def _start_time(columns: OperationColumns) -> list[int]:
    """Order by recorded start time. Operations without a recorded start come last."""
    if not columns.starts_ns:
        return [_LAST] * len(columns)
    return [_LAST if each == NO_VALUE else each for each in columns.starts_ns]


def _communication_first(columns: OperationColumns) -> list[int]:
    """Order communication first, then computations by distance to communication."""
    distance = [_LAST if kind == COMPUTE else 0 for kind in columns.kinds]
    reached = [index for index, each in enumerate(distance) if each == 0]
    for index in reached:  # a breadth-first search: the list grows during the loop
        for dependency in columns.dependencies_of(index):
            if distance[dependency] == _LAST:
                distance[dependency] = distance[index] + 1
                reached.append(dependency)
    return distance


_MAKERS: dict[str, Callable[[OperationColumns], list[int]]] = {
    "fifo": _fifo,
    "start_time": _start_time,
    "communication_first": _communication_first,
}
assert tuple(_MAKERS) == POLICIES
