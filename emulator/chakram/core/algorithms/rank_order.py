"""Orders of ranks round a ring: which position follows which one.

``ascending`` is 0, 1, 2 ...; ``descending`` goes the other way round; ``interleaved``
takes the even positions, then the odd ones; and any order can be written out, as
``0-2-1-3``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

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


def unfit_order(order: RankOrder, nranks: int) -> str | None:
    """Return why an order does not fit a group of *nranks* ranks, None if it does."""
    if isinstance(order, str) or len(order) == nranks:
        return None
    return f"its order names {len(order)} positions, and a group has {nranks} ranks"
