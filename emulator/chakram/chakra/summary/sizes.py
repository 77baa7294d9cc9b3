"""Histogram of sizes with a readable number of rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_EXACT_SIZES = 12
"""Maximum number of bins with one size each.

With more distinct sizes, each bin spans the sizes between two powers of two.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeBin:
    """Nodes of one size, or of sizes between two powers of two.

    ``smallest_bytes`` and ``largest_bytes`` are sizes of nodes, not limits of the bin.
    """

    smallest_bytes: int
    largest_bytes: int
    nodes: int
    total_bytes: int


def size_bins(counts: Mapping[int, int]) -> tuple[SizeBin, ...]:
    """Return the number of nodes per size bin, ascending.

    Args:
        counts: Number of nodes by size in bytes.
    """
    exact = len(counts) <= _EXACT_SIZES
    together: dict[int, list[int]] = {}
    for size_bytes in sorted(counts):
        key = size_bytes if exact else size_bytes.bit_length()
        together.setdefault(key, []).append(size_bytes)
    return tuple(
        SizeBin(
            smallest_bytes=sizes[0],
            largest_bytes=sizes[-1],
            nodes=sum(counts[size] for size in sizes),
            total_bytes=sum(size * counts[size] for size in sizes),
        )
        for sizes in together.values()
    )
