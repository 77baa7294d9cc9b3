"""The ready queue's policies: which of several ready operations goes first.

Policies only choose among operations that are ready, so none can break a dependency.
They matter where operations compete: compute operations for a stream, and whatever
becomes ready at one and the same time for the first place at the port.

Source: the dependency-aware feeder of the Chakra paper, section 4.1, whose ready queue
goes by measured start time, by communication, or first in, first out.
"""

from __future__ import annotations

from collections.abc import Callable

from chakram.plan.plan import POLICIES
from chakram.program.columns import COMPUTE, OperationColumns
from chakram.trace.open_ended_columns import NO_VALUE

_LAST = 1 << 62


def preferences(policy: str, columns: OperationColumns) -> list[int]:
    """Return by operation a number; of ready operations, lower ones go first.

    Those of one number go in the order in which they became ready.

    Raises:
        KeyError: If there is no such policy (see ``chakram.plan.plan.POLICIES``).
    """
    return _MAKERS[policy](columns)


def _fifo(columns: OperationColumns) -> list[int]:
    return [0] * len(columns)


def _start_time(columns: OperationColumns) -> list[int]:
    """Those that started first when the trace was recorded; unknown ones last."""
    if not columns.starts_ns:
        return [_LAST] * len(columns)
    return [_LAST if each == NO_VALUE else each for each in columns.starts_ns]


def _communication_first(columns: OperationColumns) -> list[int]:
    """Communication; then computations, the fewer of them lie before communication."""
    distance = [_LAST if kind == COMPUTE else 0 for kind in columns.kinds]
    reached = [index for index, each in enumerate(distance) if each == 0]
    for index in reached:  # grows meanwhile: breadth first, nearest ones first
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
