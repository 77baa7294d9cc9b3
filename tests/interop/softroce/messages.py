"""The messages of an exchange, determined by a seed on both sides.

Host and guest both read this file, so it needs nothing but the standard library.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any

LARGEST_BYTES = 1 << 20
_SHIFTS = 1 << 16


@dataclass(frozen=True)
class Message:
    """One message: ``number`` in its queue pair, size, and its place in memory.

    ``has_immediate``: whether its number is sent as immediate data.
    """

    number: int
    size_bytes: int
    has_immediate: bool
    offset: int

    def contents(self) -> bytes:
        """Return the payload: a part of one random text, another for each number."""
        start = self.number * 7919 % _SHIFTS
        return _text()[start : start + self.size_bytes]


def make_messages(seed: str, count: int, largest_bytes: int) -> list[Message]:
    """Return *count* > 1 messages of 1 to *largest_bytes*, each in its own place.

    Every order of magnitude is as likely as any other; both ends of the range occur,
    and where there are enough so do messages without a byte, with immediate data and
    without. The last has immediate data, so that it tells of all before it.
    """
    random = Random(seed)
    made = []
    offset = 0
    for number in range(count):
        size_bytes = int(math.exp(random.uniform(0, math.log(largest_bytes))))
        has_immediate = random.random() < 0.5
        if number == count // 2:
            size_bytes = largest_bytes
        elif number == 0:
            size_bytes = 1
        elif number in (1, 2):
            size_bytes = 0
            has_immediate = number == 1
        has_immediate |= number == count - 1
        made.append(Message(number, size_bytes, has_immediate, offset))
        offset += size_bytes
    return made


def messages_of(recipe: dict[str, Any]) -> list[Message]:
    """Return the messages of a recipe: the arguments above; a count of 0: none."""
    return make_messages(**recipe) if recipe["count"] else []


def total_bytes(messages: list[Message]) -> int:
    """Return the size of the memory that holds them all."""
    return sum(message.size_bytes for message in messages)


@cache
def _text() -> bytes:
    return Random("chakram").randbytes(LARGEST_BYTES + _SHIFTS)
