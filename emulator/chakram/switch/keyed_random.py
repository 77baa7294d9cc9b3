# cython: annotation_typing=False, language_level=3
"""Random numbers that depend on their purpose instead of the order of calls.

The draw of a port or a fault depends only on the number of the packet
(``packet_number``), which is derived from flow, position and attempt. Other traffic
does not change the draw. Therefore simulations are reproducible, and two simulations
differ only if their inputs differ.

``flow_hash`` provides a hash of flows for switches whose hash is unknown.

Source of the mixing function: G. Steele, D. Lea, C. Flood, "Fast splittable
pseudorandom number generators" (OOPSLA 2014), with the constants of splitmix64.
"""

from __future__ import annotations

__all__ = ["DRAWS", "Attempts", "draw", "flow_hash", "packet_number", "share_of_draws"]

DRAWS = 1 << 32
"""Number of different values of a draw."""

_MASK = 0xFFFF_FFFF_FFFF_FFFF
_STEP = 0x9E37_79B9_7F4A_7C15
_STREAM = 0xD1B5_4A32_D192_ED03
_FIRST = 0xBF58_476D_1CE4_E5B9
_SECOND = 0x94D0_49BB_1331_11EB
_WORD = 0xFFFF_FFFF
_HALF_LAP = 1 << 23
_LAP = 1 << 24
_PRIME = 0x9E37_79B1  # 2**32 / golden ratio: spreads numbers over all bits


def draw(seed: int, stream: int, number: int) -> int:
    """Return the 32-bit random number at an index of a *stream*.

    Args:
        seed: Seed of all streams.
        stream: Purpose of the numbers, 0 or more.
        number: Index of the number, 0 or more.
    """
    return _mixed((seed + stream * _STREAM + (number + 1) * _STEP) & _MASK) >> 32


def packet_number(flow: int, position: int, attempt: int) -> int:
    """Return the 63-bit number of a packet, which determines its draws.

    Args:
        flow: Group of packets whose positions are counted together, 0 or more.
        position: Position of the packet in its flow, for example its PSN, 0 or more.
        attempt: 0 for the first transmission, or a different positive number for each
            retransmission.
    """
    mixed = _mixed((flow * _STREAM + (position + 1) * _STEP) & _MASK)
    if attempt:
        mixed = _mixed((mixed + attempt * _STEP) & _MASK)
    return mixed >> 1


class Attempts:
    """Numbering of a flow's packets that uses only their PSNs.

    A PSN above all earlier PSNs marks a first transmission. Any other PSN that does not
    follow the previous PSN shows that the sender has gone back. This PSN starts a new
    attempt. The count of attempts restarts if the sender goes back to a higher PSN than
    before.
    """

    __slots__ = ("_flow", "_highest", "_last", "_most", "_times")

    def __init__(self, flow: int) -> None:
        """Start the numbering before the first packet of *flow*."""
        self._flow = flow
        self._highest = -1
        self._last = -1
        self._most = -1
        self._times = 0

    def number(self, psn: int) -> int:
        """Return the ``packet_number`` of the next packet, whose PSN is *psn*."""
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
    """Return a 32-bit hash of a flow, as evenly distributed as a switch's hash."""
    value = _with_part(seed & _WORD, source)
    value = _with_part(value, destination)
    return _with_part(value, source_port)


def _with_part(value: int, part: int) -> int:
    value = ((value ^ part) * _PRIME) & _WORD
    return value ^ (value >> 15)


def share_of_draws(probability: float) -> int:
    """Return how many of the ``DRAWS`` values are below a *probability* from 0 to 1."""
    return round(probability * DRAWS)
