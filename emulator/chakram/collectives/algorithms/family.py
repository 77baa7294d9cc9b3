"""What an algorithm says of itself: name, collective, parameters, how it is made.

A module of this folder, or a plug-in, has a tuple ``FAMILIES`` of these; that is all
that the rest of Chakram asks for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from chakram.collectives.algorithms.parameters import (
    ASCENDING,
    OrdersParameter,
    Parameter,
    WholeParameter,
)
from chakram.collectives.ops import CollectiveOp

if TYPE_CHECKING:
    from chakram.collectives.schedule import Algorithm


MAX_CHANNELS = 32
MAX_CHUNKS = 256


@dataclass(frozen=True, slots=True)
class Family:
    """One algorithm of one collective, its parameters open.

    Attributes:
        name: As experiments and plans have it, without parameters.
        op: The collective.
        make: Takes the canonical name and the values of all parameters, by keyword;
            without any the instance is always the same.
        parameters: What can be set of it, in the order of the canonical name.
        is_default: Whether it stands for the collective where no size is known.
    """

    name: str
    op: CollectiveOp
    make: Callable[..., Algorithm]
    parameters: tuple[Parameter, ...] = ()
    is_default: bool = False


def whole(name: str, default: int, most: int) -> WholeParameter:
    """Return a parameter that is a whole number from 1 to *most*."""
    return WholeParameter(name=name, default=default, most=most)


def plain(kind: Callable[[], Algorithm]) -> Callable[..., Algorithm]:
    """Return what makes an algorithm that knows its name and has no parameters."""

    def make(*, name: str) -> Algorithm:
        return kind()

    return make


def over_rings(kind: Callable[..., Algorithm]) -> Callable[..., Algorithm]:
    """Return what makes an algorithm of several rings, with an order for each."""

    def make(*, name: str, channels: int, chunks: int, order: Any) -> Algorithm:
        # An order for every channel makes channels of them.
        return kind(
            name=name,
            channels=max(channels, len(order)),
            chunks=chunks,
            orders=order,
        )

    return make


def straight(kind: Callable[..., Algorithm]) -> Callable[..., Algorithm]:
    """Return what makes the uneven form of an algorithm for all_to_all.

    Only of those whose messages go straight from source to destination: who passes on
    what is not its own does not know how long it is.
    """

    def make(*, name: str) -> Algorithm:
        return kind(op=CollectiveOp.ALL_TO_ALL_V)

    return make


CHANNELS = whole("channels", 1, MAX_CHANNELS)
CHUNKS = whole("chunks", 1, MAX_CHUNKS)
ORDER = OrdersParameter(name="order", default=(ASCENDING,), most=MAX_CHANNELS)
