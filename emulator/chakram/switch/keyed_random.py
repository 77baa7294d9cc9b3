# cython: annotation_typing=False, language_level=3
"""Random numbers that depend on what they are for, and not on the order of calls.

A port or a fault draws for a packet by the number of the packet (``packet_number``):
flow, position and attempt decide it. Other traffic does not change the draw, so two
simulations differ only by what differs between them, and a run repeats exactly.

Flows whose hash nobody knows are told apart by such a number, too.

Source of the mixing: G. Steele, D. Lea, C. Flood, "Fast splittable pseudorandom number
generators" (OOPSLA 2014), with the constants of splitmix64.
"""

from __future__ import annotations

__all__ = ["DRAWS", "Attempts", "draw", "flow_hash", "packet_number", "share_of_draws"]

DRAWS = 1 << 32
"""How many numbers there are."""

_MASK = 0xFFFF_FFFF_FFFF_FFFF
_STEP = 0x9E37_79B9_7F4A_7C15
_STREAM = 0xD1B5_4A32_D192_ED03
_FIRST = 0xBF58_476D_1CE4_E5B9
_SECOND = 0x94D0_49BB_1331_11EB
_WORD = 0xFFFF_FFFF
_HALF_LAP = 1 << 23
_LAP = 1 << 24
_PRIME = 0x9E37_79B1  # 2**32 over the golden ratio: spreads numbers over all bits


def draw(seed: int, stream: int, number: int) -> int:
    """Return the 32-bit random number *number* of a *stream*.

    Args:
        seed: Of all streams.
        stream: What the numbers are for; 0 or more.
        number: Which one; 0 or more.
    """
    return _mixed((seed + stream * _STREAM + (number + 1) * _STEP) & _MASK) >> 32


def packet_number(flow: int, position: int, attempt: int) -> int:
    """Return the number, of 63 bits, by which draws know a packet.

    Args:
        flow: Which packets are counted together; 0 or more.
        position: Of the packet in its flow, for example its PSN; 0 or more.
        attempt: 0: it is sent for the first time; else a number above 0 that is
            another one each time.
    """
    mixed = _mixed((flow * _STREAM + (position + 1) * _STEP) & _MASK)
    if attempt:
        mixed = _mixed((mixed + attempt * _STEP) & _MASK)
    return mixed >> 1


class Attempts:
    """Numbers of the packets of one flow, for an observer that sees only their PSNs.

    A PSN beyond all before it is sent for the first time. The sender goes back when a
    PSN does not follow the one before it: each time is another attempt, counted from
    the highest PSN that it has gone back to.
    """

    __slots__ = ("_flow", "_highest", "_last", "_most", "_times")

    def __init__(self, flow: int) -> None:
        """Begin before the first packet of a *flow*."""
        self._flow = flow
        self._highest = -1
        self._last = -1
        self._most = -1
        self._times = 0

    def number(self, psn: int) -> int:
        """Return the ``packet_number`` of the next packet, which has this *psn*."""
        position = psn + _LAP
        if self._highest >= 0:
            ahead = (psn - self._highest) & (_LAP - 1)
            position = self._highest + ahead - (_LAP if ahead >= _HALF_LAP else 0)
        if position > self._highest:
            self._highest = self._last = position
            return packet_number(self._flow, position, 0)
        if position != self._last + 1:
            if position > self._most:
                self._most = position
                self._times = 0
            self._times += 1
        self._last = position
        return packet_number(
            self._flow, position, ((self._most + 1) << 20) + self._times
        )


def _mixed(mixed: int) -> int:
    mixed = ((mixed ^ (mixed >> 30)) * _FIRST) & _MASK
    mixed = ((mixed ^ (mixed >> 27)) * _SECOND) & _MASK
    return mixed ^ (mixed >> 31)


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
