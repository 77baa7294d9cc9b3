"""Algorithm families: name, collective, parameters and constructor.

Each algorithm module in this folder, and each plug-in, has a tuple ``FAMILIES``. Other
parts of Chakram use nothing else from these modules.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from chakram.collectives.algorithms.parameters import (
    ASCENDING,
    OrdersParameter,
    Parameter,
    WholeParameter,
)
from chakram.collectives.ops import CollectiveOp
from chakram.collectives.schedule import Algorithm
from chakram.foundation.errors import ScheduleError

MAX_CHANNELS = 32
MAX_CHUNKS = 256


@dataclass(frozen=True, slots=True)
class Family:
    """An algorithm of one collective before its parameters are set.

    Attributes:
        name: Name in experiments and plans, without parameters.
        op: The collective.
        make: Constructor. It takes the canonical name and all parameter values as
            keywords. If a family has no parameters, all instances are equal.
        parameters: Configurable parameters, in the order of the canonical name.
        is_default: Whether this algorithm is the default of the collective if the size
            is unknown.
    """

    name: str
    op: CollectiveOp
    make: Callable[..., Algorithm]
    parameters: tuple[Parameter, ...] = ()
    is_default: bool = False


def whole(name: str, default: int, most: int) -> WholeParameter:
    """Return a parameter that is an integer from 1 to *most*."""
    return WholeParameter(name=name, default=default, most=most)


def plain(kind: Callable[[], Algorithm]) -> Callable[..., Algorithm]:
    """Return a constructor for an algorithm with a fixed name and no parameters."""

    def make(*, name: str) -> Algorithm:
        return kind()

    return make


def over_rings(kind: Callable[..., Algorithm]) -> Callable[..., Algorithm]:
    """Return a constructor for an algorithm over several rings, each with an order."""

    def make(*, name: str, channels: int, chunks: int, order: Any) -> Algorithm:
        if CHANNELS.default < channels < len(order):
            raise ScheduleError(
                f"algorithm {name[:60]}",
                f"has {len(order)} orders for {channels} channels",
                "remove channels: every order has one",
            )
        return kind(
            name=name,
            channels=max(channels, len(order)),
            chunks=chunks,
            orders=order,
        )

    return make


def straight(kind: Callable[..., Algorithm]) -> Callable[..., Algorithm]:
    """Return a constructor for the all_to_all_v variant of an all_to_all algorithm.

    Use it only if messages go directly from source to destination. A position that
    forwards data of other pairs lacks the sizes of that data.
    """

    def make(*, name: str) -> Algorithm:
        return kind(op=CollectiveOp.ALL_TO_ALL_V)

    return make


CHANNELS = whole("channels", 1, MAX_CHANNELS)
CHUNKS = whole("chunks", 1, MAX_CHUNKS)
ORDER = OrdersParameter(name="order", default=(ASCENDING,), most=MAX_CHANNELS)
