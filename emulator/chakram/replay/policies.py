"""The ready queue's policies: which of several ready operations goes first.

Policies only choose among operations that are ready, so none can break a dependency.
They matter where operations compete: compute operations for a stream, and whatever
becomes ready at one and the same time for the first place at the port.

Source: the dependency-aware feeder of the Chakra paper, section 4.1, whose ready queue
goes by measured start time, by communication, or first in, first out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chakram.plan.plan import POLICIES
from chakram.program.operations import ComputeOperation

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from chakram.program.operations import Operation

__all__ = ["preferences"]

_LAST = 1 << 62


def preferences(policy: str, operations: Sequence[Operation]) -> list[int]:
    """Return by operation a number; of ready operations, lower ones go first.

    Those of one number go in the order in which they became ready.

    Raises:
        KeyError: If there is no such policy (see ``chakram.plan.plan.POLICIES``).
    """
    return _MAKERS[policy](operations)


def _fifo(operations: Sequence[Operation]) -> list[int]:
    return [0] * len(operations)


def _start_time(operations: Sequence[Operation]) -> list[int]:
    """Those that started first when the trace was recorded; unknown ones last."""
    return [
        _LAST if operation.start_ns is None else operation.start_ns
        for operation in operations
    ]


def _communication_first(operations: Sequence[Operation]) -> list[int]:
    """Communication; then computations, the fewer of them lie before communication."""
    distance = [
        _LAST if isinstance(operation, ComputeOperation) else 0
        for operation in operations
    ]
    reached = [index for index, each in enumerate(distance) if each == 0]
    for index in reached:  # grows meanwhile: breadth first, nearest ones first
        for dependency in operations[index].dependencies:
            if distance[dependency] == _LAST:
                distance[dependency] = distance[index] + 1
                reached.append(dependency)
    return distance


_MAKERS: dict[str, Callable[[Sequence[Operation]], list[int]]] = {
    "fifo": _fifo,
    "start_time": _start_time,
    "communication_first": _communication_first,
}
assert tuple(_MAKERS) == POLICIES
