"""What packets carry whose contents are of no interest, and whether it arrived so."""

from __future__ import annotations

from types import ModuleType
from typing import Protocol

_payload: ModuleType | None
try:
    from chakram.roce import _payload
except ImportError:  # not built, or not wanted
    _payload = None


def pattern_bytes(length: int) -> bytes:
    """Return payload bytes that do not repeat within a packet.

    Every packet's payload begins at their beginning.
    """
    return bytes((7 * i + (i >> 8)) & 0xFF for i in range(length))


class Pattern(Protocol):
    """Knows the payload of packets.

    Attributes:
        data: The payload of the longest one.
    """

    @property
    def data(self) -> bytes:
        """See the class."""

    def matches(
        self, data: bytes | bytearray | memoryview, at: int, length: int
    ) -> bool:
        """Tell whether *length* bytes of *data* from *at* on are as sent."""


class PlainPattern:
    """Compares by slices; compiled, `PayloadPattern` takes its place."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data

    def matches(
        self, data: bytes | bytearray | memoryview, at: int, length: int
    ) -> bool:
        """Tell whether *length* bytes of *data* from *at* on are as sent."""
        return (
            at >= 0
            and 0 <= length <= len(self.data)
            and data[at : at + length] == self.data[:length]
        )


def is_compiled() -> bool:
    """Tell whether payloads are compared in compiled code."""
    return _payload is not None


def payload_pattern(length: int) -> Pattern:
    """Return the pattern of packets with a payload of at most *length* bytes."""
    data = pattern_bytes(length)
    if _payload is None:
        return PlainPattern(data)
    pattern: Pattern = _payload.PayloadPattern(data)
    return pattern
