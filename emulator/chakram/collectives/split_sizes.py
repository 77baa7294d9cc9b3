"""Split sizes of an uneven all_to_all (all_to_all_v): bytes per pair of positions.

Each group member has two rows: the bytes that it sends to each position, and the bytes
that it receives from each position. The send rows of all members form the matrix of the
collective. For all a and b, ``sent[a][b] == received[b][a]``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import NamedTuple

from chakram.collectives.schedule import part_bytes

Matrix = tuple[tuple[int, ...], ...]
"""Bytes from every position (row) to every position (column)."""


class Splits(NamedTuple):
    """Bytes that one member sends and receives, by position.

    The part that a member keeps for itself is not transferred.
    """

    sent_bytes: tuple[int, ...]
    received_bytes: tuple[int, ...]

    def scaled(self, scale: Fraction) -> Splits:
        """Return both rows times *scale*, with each part rounded up separately.

        Both ends of a message therefore agree on its size, and no part shrinks to zero.
        """
        return Splits(
            tuple(scaled_bytes(size, scale) for size in self.sent_bytes),
            tuple(scaled_bytes(size, scale) for size in self.received_bytes),
        )


def scaled_bytes(size_bytes: int, scale: Fraction) -> int:
    """Return a size times *scale*, rounded up."""
    return -(-size_bytes * scale.numerator // scale.denominator)


def even_splits(input_bytes: int, *, nranks: int, position: int) -> Splits:
    """Return the splits that match an all_to_all of *input_bytes* per rank."""
    parts = tuple(part_bytes(input_bytes, nparts=nranks, part=i) for i in range(nranks))
    return Splits(parts, (parts[position],) * nranks)


def mean_bytes(rows: Iterable[Splits]) -> int:
    """Return the mean size of all members' send buffers, rounded up."""
    totals = [sum(row.sent_bytes) for row in rows]
    return -(-sum(totals) // len(totals))


def mismatch(rows: Sequence[Splits]) -> tuple[int, int] | None:
    """Return the first (source, destination) whose ends disagree, or None.

    Args:
        rows: The splits of every position. Each has as many parts as there are rows.
    """
    expected = zip(*(row.received_bytes for row in rows), strict=True)
    for source, (row, received) in enumerate(zip(rows, expected, strict=True)):
        if row.sent_bytes != received:
            pairs = zip(row.sent_bytes, received, strict=True)
            return source, next(i for i, (a, b) in enumerate(pairs) if a != b)
    return None
