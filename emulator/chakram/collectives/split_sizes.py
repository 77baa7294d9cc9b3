"""How an uneven all_to_all (all_to_all_v) divides buffers: bytes for every position.

A member of the group knows its own row: what it sends to each position and what it
receives from each.  The rows of all members are the matrix of the collective, and
``sent[a][b] == received[b][a]`` for all a and b.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import NamedTuple

from chakram.collectives.schedule import part_bytes

Matrix = tuple[tuple[int, ...], ...]
"""Bytes from every position (row) to every position (column)."""


class Splits(NamedTuple):
    """One member's bytes by position in the group; its own part stays where it is."""

    sent_bytes: tuple[int, ...]
    received_bytes: tuple[int, ...]

    def scaled(self, scale: Fraction) -> Splits:
        """Return both rows times *scale*, every part rounded up by itself.

        So both ends of a message agree on its size, and none vanishes.
        """
        return Splits(
            tuple(scaled_bytes(size, scale) for size in self.sent_bytes),
            tuple(scaled_bytes(size, scale) for size in self.received_bytes),
        )


def scaled_bytes(size_bytes: int, scale: Fraction) -> int:
    """Return a size times *scale*, rounded up."""
    return -(-size_bytes * scale.numerator // scale.denominator)


def even_splits(input_bytes: int, *, nranks: int, position: int) -> Splits:
    """Return the splits that an all_to_all of *input_bytes* per rank has."""
    parts = tuple(part_bytes(input_bytes, nparts=nranks, part=i) for i in range(nranks))
    return Splits(parts, (parts[position],) * nranks)


def mean_bytes(rows: Iterable[Splits]) -> int:
    """Return the mean send buffer of all members, rounded up: the size S."""
    totals = [sum(row.sent_bytes) for row in rows]
    return -(-sum(totals) // len(totals))


def mismatch(rows: Sequence[Splits]) -> tuple[int, int] | None:
    """Return the first (source, destination) whose ends disagree, None if none do.

    Args:
        rows: The splits of every position; each has as many parts as there are rows.
    """
    expected = zip(*(row.received_bytes for row in rows), strict=True)
    for source, (row, received) in enumerate(zip(rows, expected, strict=True)):
        if row.sent_bytes != received:
            pairs = zip(row.sent_bytes, received, strict=True)
            return source, next(i for i, (a, b) in enumerate(pairs) if a != b)
    return None
