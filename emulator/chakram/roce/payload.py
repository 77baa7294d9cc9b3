"""The fixed payload pattern of packets."""

from __future__ import annotations

from functools import lru_cache
from importlib.util import find_spec


@lru_cache(8)
def pattern_bytes(length: int) -> bytes:
    """Return *length* bytes of the pattern, which does not repeat within a packet.

    The payload of every packet starts at the beginning of the pattern.
    """
    return bytes((7 * i + (i >> 8)) & 0xFF for i in range(length))


def is_compiled() -> bool:
    """Return whether compiled code compares payloads."""
    spec = find_spec("chakram.roce.packet_verification")
    return spec is not None and not str(spec.origin).endswith(".py")
