"""Fields of JSON documents that nobody vouches for, each with its path in errors.

The formats of MSCCL's family share names of collectives, and bounds.
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
"""The collectives' names in MSCCL and MSCCL++."""


_MOST_ITEMS = 1 << 17


def parse_object(text: bytes, *, source: str) -> Fields:
    """Return the JSON object that *text* is.

    Raises:
        ScheduleError: If it is none.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ScheduleError(source, f"is not JSON: {str(error)[:200]}") from None
    return Fields(value, source)


class Fields:
    """A JSON object at a place of a document.

    Args:
        value: What stands there.
        where: File and path.

    Raises:
        ScheduleError: If it is no object; its methods, if a field is not as asked for.
    """

    def __init__(self, value: object, where: str) -> None:
        if not isinstance(value, dict):
            raise ScheduleError(where, "is no JSON object")
        self._value: dict[str, Any] = value
        self.where = where

    def __contains__(self, name: str) -> bool:
        return name in self._value

    def fail(self, found: str, hint: str | None = None) -> NoReturn:
        """Refuse the object."""
        raise ScheduleError(self.where, found, hint)

    def whole(self, name: str, *, most: int, default: int | None = None) -> int:
        """Return a whole number from 0 to *most*."""
        return self._whole(name, self._value.get(name, default), most)

    def text(self, name: str, default: str | None = None) -> str:
        """Return a text."""
        value = self._value.get(name, default)
        if not isinstance(value, str):
            self.fail(f"{name} is {_shown(value)}, not text")
        return value

    def flag(self, name: str) -> bool:
        """Return a truth value, False where there is none."""
        value = self._value.get(name, False)
        if not isinstance(value, bool):
            self.fail(f"{name} is {_shown(value)}, not true or false")
        return value

    def wholes(self, name: str, *, most: int) -> list[int]:
        """Return a list of whole numbers, empty where there is none."""
        return [
            self._whole(f"{name}[{place}]", value, most)
            for place, value in enumerate(self._list(name))
        ]

    def objects(self, name: str) -> Iterator[Fields]:
        """Yield the objects of a list, none where there is none."""
        for place, value in enumerate(self._list(name)):
            yield Fields(value, f"{self.where}: {name}[{place}]")

    def _list(self, name: str) -> list[object]:
        value = self._value.get(name, [])
        if not isinstance(value, list) or len(value) > _MOST_ITEMS:
            self.fail(f"{name} is {_shown(value)}, not a list")
        return value

    def _whole(self, name: str, value: object, most: int) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            self.fail(f"{name} is {_shown(value)}, not a whole number")
        if not 0 <= value <= most:
            self.fail(f"{name} is {value}", f"from 0 to {most}")
        return value


def _shown(value: object) -> str:
    return "missing" if value is None else repr(value)[:40]
