"""An all-reduce over hubs. Each hub sums up a part, and sends the sum to all ranks.

With one hub, this is a parameter server: an incast of n - 1 whole buffers. With as many
hubs as ranks, it is a direct reduce_scatter followed by a direct all_gather.
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
    """All-reduce with the first *hubs* positions as hubs. Hub *c* sums chunk *c*."""

    name: str = "star"
    hubs: int = 1

    op: ClassVar[CollectiveOp] = CollectiveOp.ALL_REDUCE

    def unfit(self, nranks: int) -> str | None:
        """Return an error if there are more hubs than ranks, or None."""
        return f"it has {self.hubs} hubs" if self.hubs > nranks else None

    def nchunks(self, nranks: int) -> int:
        """Return the number of chunks: one for each hub."""
        return self.hubs

    def chunk_bytes(self, chunk: int, *, nranks: int, input_bytes: int) -> int:
        """Return the size of a chunk. Sizes differ by at most one byte."""
        return part_bytes(input_bytes, nparts=self.hubs, part=chunk)

    def sends(self, position: int, *, nranks: int, root: int) -> Iterator[Transfer]:
        """Yield the transfers of *position* to the hubs, and as a hub to all others."""
        for hub in range(self.hubs):
            if hub != position:
                yield Transfer(0, position, hub, hub, reduce=True)
        if position < self.hubs:
            for other in range(nranks):
                if other != position:
                    yield Transfer(1, position, other, position)

    def receives(self, position: int, *, nranks: int, root: int) -> Iterator[Transfer]:
        """Yield the transfers to *position* as a hub, and the sums of other hubs."""
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
