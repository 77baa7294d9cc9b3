"""What the formats of MSCCL's family share: names of collectives, bounds, buffers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chakram.collectives.algorithms.buffers import place_buffers
from chakram.collectives.ops import CollectiveOp
from chakram.errors import ScheduleError

if TYPE_CHECKING:
    from chakram.collectives.algorithms.buffers import Layout

__all__ = [
    "COLLECTIVES",
    "MAX_CHANNELS",
    "MAX_CHUNKS",
    "MAX_RANKS",
    "PARTED",
    "Buffers",
]

MAX_RANKS = 1024
MAX_CHUNKS = 1 << 16
MAX_CHANNELS = 1 << 10

COLLECTIVES = {
    "allreduce": CollectiveOp.ALL_REDUCE,
    "allgather": CollectiveOp.ALL_GATHER,
    "reduce_scatter": CollectiveOp.REDUCE_SCATTER,
    "reducescatter": CollectiveOp.REDUCE_SCATTER,
    "alltoall": CollectiveOp.ALL_TO_ALL,
    "broadcast": CollectiveOp.BROADCAST,
    "reduce": CollectiveOp.REDUCE,
}
"""The collectives' names in MSCCL and MSCCL++."""

PARTED = (
    CollectiveOp.ALL_GATHER,
    CollectiveOp.REDUCE_SCATTER,
    CollectiveOp.ALL_TO_ALL,
)
"""Collectives whose chunks are the same number for each rank."""


class Buffers:
    """Finds the slots of one rank's input (i), output (o) and scratch (s)."""

    def __init__(
        self,
        op: CollectiveOp,
        layout: Layout,
        *,
        rank: int,
        per_rank: int,
        nranks: int,
        in_place: bool,
    ) -> None:
        first = place_buffers(
            op, rank=rank, per_rank=per_rank, nranks=nranks, in_place=in_place
        )
        whole = nranks * per_rank if op in PARTED else per_rank
        self._ends = {
            "i": (first[0], per_rank if op == CollectiveOp.ALL_GATHER else whole),
            "o": (first[1], per_rank if op == CollectiveOp.REDUCE_SCATTER else whole),
            "s": (first[2], layout.slots[rank] - first[2]),
        }

    def row(self, place: tuple[str, int, int], where: str) -> range:
        """Return the slots that are (buffer, offset, how many) there.

        Raises:
            ScheduleError: If the buffer has not so many.
        """
        buffer, offset, count = place
        first, size = self._ends[buffer]
        if offset + count > size:
            raise ScheduleError(
                where,
                f"uses {buffer}[{offset}..{offset + count - 1}], and {buffer} has "
                f"{size} chunks",
            )
        return range(first + offset, first + offset + count)
