"""The fixed payload pattern of packets, and its comparison at the receiver."""

from __future__ import annotations

from functools import lru_cache
from types import ModuleType
from typing import Protocol

_payload: ModuleType | None
try:
    from chakram.roce import _payload
except ImportError:  # not built, or disabled
    _payload = None


@lru_cache(8)
def pattern_bytes(length: int) -> bytes:
    """Return *length* bytes of the pattern, which does not repeat within a packet.

    The payload of every packet starts at the beginning of the pattern.
    """
    return bytes((7 * i + (i >> 8)) & 0xFF for i in range(length))


class Pattern(Protocol):
    """The fixed pattern, and its comparison with payloads.

    Attributes:
        data: Payload of the longest packet.
    """

    @property
    def data(self) -> bytes:
        """Payload of the longest packet."""

    def matches(
        self, data: bytes | bytearray | memoryview, at: int, length: int
    ) -> bool:
        """Return whether *length* bytes of *data* from *at* on match the pattern."""


class PlainPattern:
    """Compares payloads with the pattern by slices.

    In compiled builds, `PayloadPattern` replaces this class.
    """

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data

    def matches(
        self, data: bytes | bytearray | memoryview, at: int, length: int
    ) -> bool:
        """Return whether *length* bytes of *data* from *at* on match the pattern."""
        return (
            at >= 0
            and 0 <= length <= len(self.data)
            and data[at : at + length] == self.data[:length]
        )


def is_compiled() -> bool:
    """Return whether compiled code compares payloads."""
    return _payload is not None


def payload_pattern(length: int) -> Pattern:
    """Return the pattern of packets with a payload of at most *length* bytes."""
    data = pattern_bytes(length)
    if _payload is None:
        return PlainPattern(data)
    pattern: Pattern = _payload.PayloadPattern(data)
    return pattern
