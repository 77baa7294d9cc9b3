# cython: annotation_typing=False, language_level=3
"""Random numbers that depend on what they are for, and not on the order of calls.

Who marks or sprays asks for the number of a packet at a port: whatever happens at other
ports in between, the answer is the same, and a run repeats exactly.

Flows whose hash nobody knows are told apart by such a number, too.

Source of the mixing: G. Steele, D. Lea, C. Flood, "Fast splittable pseudorandom number
generators" (OOPSLA 2014), with the constants of splitmix64.
"""

from __future__ import annotations

__all__ = ["DRAWS", "draw", "flow_hash", "share_of_draws"]

DRAWS = 1 << 32
"""How many numbers there are."""

_MASK = 0xFFFF_FFFF_FFFF_FFFF
_STEP = 0x9E37_79B9_7F4A_7C15
_STREAM = 0xD1B5_4A32_D192_ED03
_FIRST = 0xBF58_476D_1CE4_E5B9
_SECOND = 0x94D0_49BB_1331_11EB
_WORD = 0xFFFF_FFFF
_PRIME = 0x9E37_79B1  # 2**32 over the golden ratio: spreads numbers over all bits


def draw(seed: int, stream: int, number: int) -> int:
    """Return the 32-bit random number *number* of a *stream*.

    Args:
        seed: Of all streams.
        stream: What the numbers are for; 0 or more.
        number: Which one; 0 or more.
    """
    mixed = (seed + stream * _STREAM + (number + 1) * _STEP) & _MASK
    mixed = ((mixed ^ (mixed >> 30)) * _FIRST) & _MASK
    mixed = ((mixed ^ (mixed >> 27)) * _SECOND) & _MASK
    return (mixed ^ (mixed >> 31)) >> 32


def flow_hash(seed: int, source: int, destination: int, source_port: int) -> int:
    """Return a 32-bit number that tells flows apart, as good as any switch's hash."""
    value = _with_part(seed & _WORD, source)
    value = _with_part(value, destination)
    return _with_part(value, source_port)


def _with_part(value: int, part: int) -> int:
    value = ((value ^ part) * _PRIME) & _WORD
    return value ^ (value >> 15)


def share_of_draws(probability: float) -> int:
    """Return how many of all draws are below a *probability* from 0 to 1."""
    return round(probability * DRAWS)
