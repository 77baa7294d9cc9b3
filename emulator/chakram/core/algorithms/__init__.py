"""Collective algorithms: from an operation to a schedule of transfers. Pure.

Every algorithm here passes ``chakram.core.schedule_check`` for every number of ranks
and every root.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chakram.core.algorithms.barrier import DisseminationBarrier
from chakram.core.algorithms.direct import (
    DirectAllGather,
    DirectAllToAll,
    DirectGather,
    DirectReduceScatter,
    DirectScatter,
    DirectSendReceive,
)
from chakram.core.algorithms.ring import (
    RingAllGather,
    RingAllReduce,
    RingReduceScatter,
)
from chakram.core.algorithms.tree import TreeAllReduce, TreeBroadcast, TreeReduce
from chakram.core.collectives import CollectiveOp
from chakram.errors import ScheduleError

if TYPE_CHECKING:
    from chakram.core.schedule import Algorithm

__all__ = ["AUTO", "algorithm", "algorithm_names", "default_algorithm"]

AUTO = "auto"
"""Stands for the default algorithm of an operation."""

# The first one of an operation is its default.
_ALGORITHMS: tuple[Algorithm, ...] = (
    RingAllReduce(),
    TreeAllReduce(),
    RingAllGather(),
    DirectAllGather(),
    RingReduceScatter(),
    DirectReduceScatter(),
    DirectAllToAll(),
    TreeBroadcast(),
    TreeReduce(),
    DirectGather(),
    DirectScatter(),
    DirectSendReceive(),
    DisseminationBarrier(),
)

_BY_OP: dict[CollectiveOp, dict[str, Algorithm]] = {
    op: {each.name: each for each in _ALGORITHMS if each.op == op}
    for op in CollectiveOp
}


def algorithm(op: CollectiveOp, name: str) -> Algorithm:
    """Return the algorithm called *name*, or the default one for ``auto``.

    Raises:
        ScheduleError: If *op* has no such algorithm; it names those there are.
    """
    choices = _BY_OP[op]
    if name == AUTO:
        return choices[default_algorithm(op)]
    try:
        return choices[name]
    except KeyError:
        raise ScheduleError(
            f"collectives.{op}",
            f"there is no algorithm {name!r}",
            f"choose from {', '.join([AUTO, *choices])}",
        ) from None


def algorithm_names(op: CollectiveOp) -> tuple[str, ...]:
    """Return the names of all algorithms of *op*, the default one first."""
    return tuple(_BY_OP[op])


def default_algorithm(op: CollectiveOp) -> str:
    """Return the name that ``auto`` stands for."""
    return next(iter(_BY_OP[op]))
