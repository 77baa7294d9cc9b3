"""Encoding of pause frames of priority flow control.

Source: IEEE 802.1Qbb, figure 31B-1.
"""

from __future__ import annotations

from chakram.switch.settings import CLASSES

ETHERTYPE_PAUSE = 0x8808

_FRAME_BYTES = 60  # without the Ethernet checksum
_HEAD_BYTES = 34
_OPCODE = 0x0101
_DESTINATION = bytes.fromhex("0180c2000001")
_LONGEST_QUANTA = 0xFFFF
_QUANTUM_BITS = 512
_S_NS = 10**9
# Assumed rate of ports without a rate.
_USUAL_BPS = 10**9


def pause_ns(quanta: int, rate_bps: int | None) -> int:
    """Return the duration of *quanta* at a port.

    A *rate_bps* of 0 or None means that the port has no rate. 1 Gbit/s is used instead.
    """
    return quanta * _QUANTUM_BITS * _S_NS // (rate_bps or _USUAL_BPS)


def quanta_of(duration_ns: int, rate_bps: int | None) -> int:
    """Return a duration in quanta, rounded up, limited to the maximum of a frame."""
    quanta = -(-duration_ns * (rate_bps or _USUAL_BPS) // (_QUANTUM_BITS * _S_NS))
    return min(quanta, _LONGEST_QUANTA)


def pause_frame(klass: int, quanta: int) -> bytes:
    """Return a frame that pauses one class. A frame with 0 *quanta* ends the pause."""
    times = [quanta if each == klass else 0 for each in range(CLASSES)]
    words = (ETHERTYPE_PAUSE, _OPCODE, 1 << klass, *times)
    frame = (
        _DESTINATION + bytes(6) + b"".join(each.to_bytes(2, "big") for each in words)
    )
    return frame.ljust(_FRAME_BYTES, b"\0")


def paused_classes(frame: bytes) -> list[tuple[int, int]]:
    """Return the classes that a pause frame applies to, each with its quanta."""
    if len(frame) < _HEAD_BYTES or frame[12:16] != b"\x88\x08\x01\x01":
        return []
    classes = int.from_bytes(frame[16:18], "big")
    return [
        (klass, int.from_bytes(frame[18 + 2 * klass : 20 + 2 * klass], "big"))
        for klass in range(CLASSES)
        if classes >> klass & 1
    ]
