"""An all-reduce over hubs, each of which adds up a part and sends everybody the sum.

With one hub that is a parameter server, an incast of n - 1 whole buffers; with as many
hubs as ranks it is a direct reduce_scatter and a direct all_gather.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from chakram.collectives.algorithms.base import Scheduled
from chakram.collectives.algorithms.family import Family, whole
from chakram.collectives.ops import CollectiveOp
from chakram.collectives.schedule import Transfer, part_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class StarAllReduce(Scheduled):
    """Chunk *c* is what position *c* adds up; *hubs* positions are hubs."""

    name: str = "star"
    hubs: int = 1

    op: ClassVar[CollectiveOp] = CollectiveOp.ALL_REDUCE

    def unfit(self, nranks: int) -> str | None:
        """Return why there cannot be so many hubs."""
        return f"it has {self.hubs} hubs" if self.hubs > nranks else None

    def nchunks(self, nranks: int) -> int:
        """Return the number of chunks: one for each hub."""
        return self.hubs

    def chunk_bytes(self, chunk: int, *, nranks: int, input_bytes: int) -> int:
        """Return the size of one chunk; they differ by at most one byte."""
        return part_bytes(input_bytes, nparts=self.hubs, part=chunk)

    def sends(self, position: int, *, nranks: int, root: int) -> Iterator[Transfer]:
        """Yield what *position* sends to the hubs, and what it sends as one of them."""
        for hub in range(self.hubs):
            if hub != position:
                yield Transfer(0, position, hub, hub, reduce=True)
        if position < self.hubs:
            for other in range(nranks):
                if other != position:
                    yield Transfer(1, position, other, position)

    def receives(self, position: int, *, nranks: int, root: int) -> Iterator[Transfer]:
        """Yield what comes to *position* as a hub, and the sums of the other hubs."""
        if position < self.hubs:
            for other in range(nranks):
                if other != position:
                    yield Transfer(0, other, position, position, reduce=True)
        for hub in range(self.hubs):
            if hub != position:
                yield Transfer(1, hub, position, hub)


FAMILIES = (
    Family(
        "star",
        CollectiveOp.ALL_REDUCE,
        StarAllReduce,
        (whole("hubs", 1, 1024),),
    ),
)
