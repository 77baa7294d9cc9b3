"""The dissemination barrier: ceil(log2 n) steps for any number of ranks.

In step s every position tells the one 2**s further that it, and all that it heard of,
have arrived.  Messages are empty.

Source: Hensgen, Finkel and Manber, Two algorithms for barrier synchronization, 1988.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from chakram.collectives.algorithms.base import Scheduled
from chakram.collectives.algorithms.family import Family, plain
from chakram.collectives.ops import CollectiveOp
from chakram.collectives.schedule import Transfer

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class DisseminationBarrier(Scheduled):
    """One empty chunk stands for the news of who has arrived."""

    name: ClassVar[str] = "dissemination"
    op: ClassVar[CollectiveOp] = CollectiveOp.BARRIER

    def nchunks(self, nranks: int) -> int:
        """Return 1."""
        return 1

    def chunk_bytes(self, chunk: int, *, nranks: int, input_bytes: int) -> int:
        """Return 0: a barrier moves no data, whatever the trace says of its size."""
        return 0

    def sends(self, position: int, *, nranks: int, root: int) -> Iterator[Transfer]:
        """Yield one transfer per step, to twice the distance each time."""
        for step in range((nranks - 1).bit_length()):
            yield Transfer(
                step=step,
                src=position,
                dst=(position + (1 << step)) % nranks,
                chunk=0,
                reduce=True,
            )

    def receives(self, position: int, *, nranks: int, root: int) -> Iterator[Transfer]:
        """Yield one transfer per step, from twice the distance each time."""
        for step in range((nranks - 1).bit_length()):
            yield Transfer(
                step=step,
                src=(position - (1 << step)) % nranks,
                dst=position,
                chunk=0,
                reduce=True,
            )


FAMILIES = (
    Family(
        "dissemination",
        CollectiveOp.BARRIER,
        plain(DisseminationBarrier),
        is_default=True,
    ),
)
