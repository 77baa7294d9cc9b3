"""Orders of ranks round a ring: which position follows which one.

``ascending`` is 0, 1, 2 ...; ``descending`` goes the other way round; ``interleaved``
takes the even positions, then the odd ones; and any order can be written out, as
``0-2-1-3``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar

from chakram.collectives.algorithms.base import Parted

if TYPE_CHECKING:
    from chakram.collectives.ops import CollectiveOp

ASCENDING = "ascending"
DESCENDING = "descending"
INTERLEAVED = "interleaved"
NAMED_ORDERS = (ASCENDING, DESCENDING, INTERLEAVED)

RankOrder = str | tuple[int, ...]
"""The name of an order, or all positions of a group."""


@dataclass(frozen=True, slots=True)
class Ring:
    """Positions in a circle: ``places[i]`` is the i-th, ``index_of`` the inverse."""

    places: tuple[int, ...]
    index_of: tuple[int, ...]


@lru_cache(maxsize=256)
def ring_of(order: RankOrder, nranks: int) -> Ring:
    """Return the ring of *nranks* positions in an order that fits them."""
    if order == ASCENDING:
        places = tuple(range(nranks))
    elif order == DESCENDING:
        places = tuple(range(nranks - 1, -1, -1))
    elif order == INTERLEAVED:
        places = (*range(0, nranks, 2), *range(1, nranks, 2))
    else:
        places = tuple(int(place) for place in order)
    index_of = [0] * nranks
    for index, position in enumerate(places):
        index_of[position] = index
    return Ring(places=places, index_of=tuple(index_of))


def order_text(order: RankOrder) -> str:
    """Return how an order is written in the name of an algorithm."""
    return order if isinstance(order, str) else "-".join(map(str, order))


@dataclass(frozen=True, slots=True)
class OverRings(Parted):
    """An algorithm over rings that are channels.

    Attributes:
        name: Its canonical name, parameters included.
        channels: How many rings.
        chunks: Pieces of what a channel moves.
        orders: Rank order of each channel, over again if there are more channels.
    """

    name: str = "ring"
    channels: int = 1
    chunks: int = 1
    orders: tuple[RankOrder, ...] = (ASCENDING,)
    op: ClassVar[CollectiveOp]

    def unfit(self, nranks: int) -> str | None:
        """Return why an order that is written out does not fit the group."""
        for order in self.orders:
            if not isinstance(order, str) and len(order) != nranks:
                found = f"its order names {len(order)} positions"
                return f"{found}, and a group has {nranks} ranks"
        return None

    def ring(self, channel: int, nranks: int) -> Ring:
        """Return the ring of a channel."""
        return ring_of(self.orders[channel % len(self.orders)], nranks)
