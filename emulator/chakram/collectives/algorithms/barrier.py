"""The dissemination barrier: ceil(log2 n) steps for any number of ranks.

In step s, every position notifies the position that is 2**s places ahead. The message
means that the sender has arrived, and so have all positions that have notified it,
directly or indirectly. Messages are empty.

Source: Hensgen, Finkel and Manber, Two algorithms for barrier synchronization, 1988.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from chakram.collectives.algorithms.base import Shifted
from chakram.collectives.algorithms.family import Family, plain
from chakram.collectives.ops import CollectiveOp
from chakram.collectives.schedule import Transfer


@dataclass(frozen=True, slots=True)
class DisseminationBarrier(Shifted):
    """A barrier with one empty chunk that represents the set of arrived positions."""

    name: ClassVar[str] = "dissemination"
    op: ClassVar[CollectiveOp] = CollectiveOp.BARRIER

    def nchunks(self, nranks: int) -> int:
        """Return 1."""
        return 1

    def chunk_bytes(self, chunk: int, *, nranks: int, input_bytes: int) -> int:
        """Return 0: a barrier moves no data, regardless of the size in the trace."""
        return 0

    def turns_by(self, nranks: int) -> int | None:
        """Return 1."""
        return 1

    def _message(self, step: int, src: int, dst: int, nranks: int) -> Transfer:
        return Transfer(step=step, src=src, dst=dst, chunk=0, reduce=True)


FAMILIES = (
    Family(
        "dissemination",
        CollectiveOp.BARRIER,
        plain(DisseminationBarrier),
        is_default=True,
    ),
)
