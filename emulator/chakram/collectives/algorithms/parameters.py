"""Algorithm names with parameters, such as ``ring(channels=2,chunks=4)``.

A name is a family, followed by the non-default parameters in parentheses. The canonical
text lists them in the family's order. Plans, records and experiment files identify
algorithms by this text, so the parser is strict.

A rank order defines the sequence of positions in a ring:

- ``ascending`` is 0, 1, 2 ...
- ``descending`` is the reverse
- ``interleaved`` is the even positions, then the odd ones
- an explicit order lists all positions, such as ``0-2-1-3``
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from chakram.collectives.algorithms.base import Parted
from chakram.collectives.ops import CollectiveOp
from chakram.foundation.errors import ScheduleError

ASCENDING = "ascending"
DESCENDING = "descending"
INTERLEAVED = "interleaved"
NAMED_ORDERS = (ASCENDING, DESCENDING, INTERLEAVED)

RankOrder = str | tuple[int, ...]
"""The name of an order, or an explicit sequence of all positions."""


@dataclass(frozen=True, slots=True)
class Ring:
    """A ring: ``places[i]`` is the i-th position, and ``index_of`` is the inverse."""

    places: tuple[int, ...]
    index_of: tuple[int, ...]


@lru_cache(maxsize=256)
def ring_of(order: RankOrder, nranks: int) -> Ring:
    """Return the ring of *nranks* positions in *order*, which must fit that size."""
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
    """Return a rank order as it appears in an algorithm name."""
    return order if isinstance(order, str) else "-".join(map(str, order))


@dataclass(frozen=True, slots=True)
class OverRings(Parted):
    """Base of algorithms over rings, with one channel per ring.

    Attributes:
        name: Canonical name, including parameters.
        channels: Number of rings.
        chunks: Number of pieces of the data that a channel moves.
        orders: Rank order of each channel. The orders repeat if there are more
            channels.
    """

    name: str = "ring"
    channels: int = 1
    chunks: int = 1
    orders: tuple[RankOrder, ...] = (ASCENDING,)
    op: ClassVar[CollectiveOp]

    def unfit(self, nranks: int) -> str | None:
        """Return why an explicit order does not fit the group, or None if all fit."""
        for order in self.orders:
            if not isinstance(order, str) and len(order) != nranks:
                found = f"its order names {len(order)} positions"
                return f"{found}, but a group has {nranks} ranks"
        return None

    def ring(self, channel: int, nranks: int) -> Ring:
        """Return the ring of a channel."""
        return ring_of(self.orders[channel % len(self.orders)], nranks)


MAX_TEXT = 1 << 16
"""Maximum characters of a name; an explicit order of 10,000 ranks fits."""

_FORM = re.compile(r"([a-z][a-z0-9_]*)(?:\(([^()]*)\))?")
_DIGITS = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeParameter:
    """An integer parameter from 1 to *most*."""

    name: str
    default: int
    most: int

    def parse(self, text: str) -> int:
        """Parse the number in *text*.

        Raises:
            ValueError: If *text* is invalid. The error message states the valid values.
        """
        if not _DIGITS.fullmatch(text) or not 1 <= int(text) <= self.most:
            raise ValueError(f"a whole number from 1 to {self.most}")
        return int(text)

    def text(self, value: int) -> str:
        """Return *value* as it appears in an algorithm name."""
        return str(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class OrdersParameter:
    """Rank orders for up to *most* channels, one each, such as ``ascending/0-2-1``."""

    name: str
    default: tuple[RankOrder, ...]
    most: int

    def parse(self, text: str) -> tuple[RankOrder, ...]:
        """Parse the named or explicit orders in *text*.

        Raises:
            ValueError: If *text* is invalid. The error message states the valid values.
        """
        parts = text.split("/")
        if len(parts) > self.most:
            raise ValueError(f"at most {self.most} orders")
        return tuple(_order(part) for part in parts)

    def text(self, value: tuple[RankOrder, ...]) -> str:
        """Return *value* as it appears in an algorithm name."""
        return "/".join(map(order_text, value))


Parameter = WholeParameter | OrdersParameter
Value = int | tuple[RankOrder, ...]


def _order(text: str) -> RankOrder:
    if text in NAMED_ORDERS:
        return text
    numbers = text.split("-")
    if all(_DIGITS.fullmatch(number) for number in numbers):
        places = tuple(map(int, numbers))
        if sorted(places) == list(range(len(places))):
            return places
    raise ValueError(
        f"{', '.join(NAMED_ORDERS)}, or every position of the group once, e.g. 0-2-1-3"
    )


def split_name(text: str, *, where: str) -> tuple[str, dict[str, str]]:
    """Split an algorithm name into its family and unparsed parameters.

    Raises:
        ScheduleError: If *text* is malformed. The error reports *where* as its
            location.
    """
    form = _FORM.fullmatch(text) if len(text) <= MAX_TEXT else None
    if form is None:
        raise ScheduleError(
            where,
            f"{text[:60]!r} is not the name of an algorithm",
            "use e.g. ring or ring(channels=2,chunks=4)",
        )
    family, inside = form.groups()
    parameters: dict[str, str] = {}
    for item in [] if inside is None else inside.split(","):
        name, equals, value = item.partition("=")
        if not equals or not name or not value:
            raise ScheduleError(
                where,
                f"{item[:60]!r} is not a parameter of {family}",
                "use e.g. ring(channels=2,chunks=4)",
            )
        if name in parameters:
            raise ScheduleError(
                where, f"{family} has {name} twice", f"write {name} once"
            )
        parameters[name] = value
    return family, parameters


def read_values(
    family: str, given: Mapping[str, str], known: tuple[Parameter, ...], *, where: str
) -> dict[str, Value]:
    """Return the values of all parameters of a family, defaults included.

    Raises:
        ScheduleError: If the family has no such parameter, or a value is invalid.
    """
    names = [parameter.name for parameter in known]
    for name in given:
        if name not in names:
            raise ScheduleError(
                where,
                f"{family} has no parameter {name[:60]!r}",
                f"choose from {', '.join(names)}" if names else f"write {family} alone",
            )
    values: dict[str, Value] = {}
    for parameter in known:
        if parameter.name not in given:
            values[parameter.name] = parameter.default
            continue
        text = given[parameter.name]
        try:
            values[parameter.name] = parameter.parse(text)
        except ValueError as error:
            raise ScheduleError(
                where, f"{family}: {parameter.name} is {text[:60]!r}", f"use {error}"
            ) from None
    return values


def canonical_name(
    family: str, values: Mapping[str, Value], known: tuple[Parameter, ...]
) -> str:
    """Return the canonical name of a family with these values."""
    # Each value has the type of its parameter, which the type checker cannot infer.
    inside = ",".join(
        f"{parameter.name}={parameter.text(values[parameter.name])}"  # type: ignore[arg-type]
        for parameter in known
        if values[parameter.name] != parameter.default
    )
    return f"{family}({inside})" if inside else family
