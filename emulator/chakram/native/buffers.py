"""Functions that compare bytes in buffers and read 32-bit words from them.

A compiled module uses the functions of the same names in ``buffers_direct.pxd``. They
compare 64 bytes at a time where the processor can, and read a word with one
instruction. They do not check bounds.
"""

from __future__ import annotations

__all__ = ["network_word", "same_bytes", "word"]

_Buffer = bytes | bytearray | memoryview


def same_bytes(
    data: _Buffer, at: int, other: _Buffer, other_at: int, length: int
) -> bool:
    """Return whether two buffers contain the same *length* bytes at two places."""
    return data[at : at + length] == other[other_at : other_at + length]


def word(data: _Buffer, at: int) -> int:
    """Return four bytes of *data* as a number, lowest byte first."""
    return int.from_bytes(data[at : at + 4], "little")


def network_word(data: _Buffer, at: int) -> int:
    """Return four bytes of *data* as a number in network byte order."""
    return int.from_bytes(data[at : at + 4], "big")
