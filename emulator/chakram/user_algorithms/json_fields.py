"""Access to fields of untrusted JSON documents. Errors contain a field's path.

This module also defines limits and collective names that MSCCL and MSCCL++ share.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NoReturn

from chakram.collectives.ops import CollectiveOp
from chakram.foundation.errors import ScheduleError

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
"""Names of collectives in MSCCL and MSCCL++."""


_MOST_ITEMS = 1 << 17


def parse_object(text: bytes, *, source: str) -> Fields:
    """Parse *text* as a JSON object.

    Raises:
        ScheduleError: If *text* is not a JSON object.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ScheduleError(
            source,
            f"is not JSON: {str(error)[:200]}",
            "check that the file is complete",
        ) from None
    return Fields(value, source)


class Fields:
    """A JSON object at a place in a document.

    Args:
        value: The value at that place.
        where: File and path.

    Raises:
        ScheduleError: If the value is not an object. The methods raise this error if a
            field has the wrong type or value.
    """

    def __init__(self, value: object, where: str) -> None:
        if not isinstance(value, dict):
            raise ScheduleError(
                where, "is not a JSON object", "check that this is an execution plan"
            )
        self._value: dict[str, Any] = value
        self.where = where

    def __contains__(self, name: str) -> bool:
        return name in self._value

    def fail(self, found: str, hint: str | None = None) -> NoReturn:
        """Raise an error about the object."""
        raise ScheduleError(self.where, found, hint)

    def whole(self, name: str, *, most: int, default: int | None = None) -> int:
        """Return the field *name*, an integer from 0 to *most*."""
        return self._whole(name, self._value.get(name, default), most)

    def text(self, name: str, default: str | None = None) -> str:
        """Return the field *name*, a string."""
        value = self._value.get(name, default)
        if not isinstance(value, str):
            self.fail(f"{name} is {_shown(value)}, but must be text")
        return value

    def flag(self, name: str) -> bool:
        """Return the boolean field *name*, or False if it is missing."""
        value = self._value.get(name, False)
        if not isinstance(value, bool):
            self.fail(f"{name} is {_shown(value)}, but must be true or false")
        return value

    def wholes(self, name: str, *, most: int) -> list[int]:
        """Return the field *name*, a list of integers. A missing list is empty."""
        return [
            self._whole(f"{name}[{place}]", value, most)
            for place, value in enumerate(self._list(name))
        ]

    def objects(self, name: str) -> Iterator[Fields]:
        """Yield the objects in the list *name*. A missing list is empty."""
        for place, value in enumerate(self._list(name)):
            yield Fields(value, f"{self.where}: {name}[{place}]")

    def _list(self, name: str) -> list[object]:
        value = self._value.get(name, [])
        if not isinstance(value, list) or len(value) > _MOST_ITEMS:
            self.fail(f"{name} is {_shown(value)}, but must be a list")
        return value

    def _whole(self, name: str, value: object, most: int) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            self.fail(f"{name} is {_shown(value)}, but must be a whole number")
        if not 0 <= value <= most:
            self.fail(f"{name} is {value}", f"use a number from 0 to {most}")
        return value


def _shown(value: object) -> str:
    return "missing" if value is None else repr(value)[:40]
