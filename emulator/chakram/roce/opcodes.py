"""Opcodes, the extended headers that they carry, NAK codes and RNR timers.

Source: IBA volume 1, chapter 9 (opcodes: table 38; AETH: table 45), annex A17.
"""

from __future__ import annotations

from enum import IntEnum

ACK_CREDITS_UNUSED = 0x1F
"""AETH syndrome of an ACK that carries no credit count."""

RECEIVER_NOT_READY = 0x20
"""AETH syndrome of a receiver-not-ready NAK, before its timer code is added."""

RNR_TIMER_NS = (
    655_360_000, 10_000, 20_000, 30_000, 40_000, 60_000, 80_000, 120_000,
    160_000, 240_000, 320_000, 480_000, 640_000, 960_000, 1_280_000, 1_920_000,
    2_560_000, 3_840_000, 5_120_000, 7_680_000, 10_240_000, 15_360_000, 20_480_000,
    30_720_000, 40_960_000, 61_440_000, 81_920_000, 122_880_000, 163_840_000,
    245_760_000, 327_680_000, 491_520_000,
)  # fmt: skip
"""Wait time that a receiver-not-ready NAK requests, by timer code."""


class Opcode(IntEnum):
    """BTH opcodes, including the CNP.

    The upper three bits select the transport service. Names without a prefix belong to
    reliable connection, ``UC_`` to unreliable connection, ``UD_`` to unreliable
    datagram.
    """

    SEND_FIRST = 0x00
    SEND_MIDDLE = 0x01
    SEND_LAST = 0x02
    SEND_LAST_WITH_IMMEDIATE = 0x03
    SEND_ONLY = 0x04
    SEND_ONLY_WITH_IMMEDIATE = 0x05
    WRITE_FIRST = 0x06
    WRITE_MIDDLE = 0x07
    WRITE_LAST = 0x08
    WRITE_LAST_WITH_IMMEDIATE = 0x09
    WRITE_ONLY = 0x0A
    WRITE_ONLY_WITH_IMMEDIATE = 0x0B
    READ_REQUEST = 0x0C
    READ_RESPONSE_FIRST = 0x0D
    READ_RESPONSE_MIDDLE = 0x0E
    READ_RESPONSE_LAST = 0x0F
    READ_RESPONSE_ONLY = 0x10
    ACKNOWLEDGE = 0x11
    ATOMIC_ACKNOWLEDGE = 0x12
    COMPARE_SWAP = 0x13
    FETCH_ADD = 0x14
    SEND_LAST_WITH_INVALIDATE = 0x16
    SEND_ONLY_WITH_INVALIDATE = 0x17
    UC_SEND_FIRST = 0x20
    UC_SEND_MIDDLE = 0x21
    UC_SEND_LAST = 0x22
    UC_SEND_LAST_WITH_IMMEDIATE = 0x23
    UC_SEND_ONLY = 0x24
    UC_SEND_ONLY_WITH_IMMEDIATE = 0x25
    UC_WRITE_FIRST = 0x26
    UC_WRITE_MIDDLE = 0x27
    UC_WRITE_LAST = 0x28
    UC_WRITE_LAST_WITH_IMMEDIATE = 0x29
    UC_WRITE_ONLY = 0x2A
    UC_WRITE_ONLY_WITH_IMMEDIATE = 0x2B
    UD_SEND_ONLY = 0x64
    UD_SEND_ONLY_WITH_IMMEDIATE = 0x65
    CNP = 0x81


REFUSED_OPCODES = frozenset(
    code
    for code in range(Opcode.UC_SEND_FIRST)
    if code > Opcode.ATOMIC_ACKNOWLEDGE or code == Opcode.READ_REQUEST
)
"""Reliable-connection opcodes that Chakram refuses with an invalid-request NAK.

These are READ, atomics, SEND with invalidate, FLUSH, ATOMIC WRITE and reserved codes
(IBA volume 1, 9.9.3: "unsupported or reserved opcode").
"""


class NakCode(IntEnum):
    """AETH syndromes of NAKs."""

    PSN_SEQUENCE_ERROR = 0x60
    INVALID_REQUEST = 0x61
    REMOTE_ACCESS_ERROR = 0x62
    REMOTE_OPERATIONAL_ERROR = 0x63
    INVALID_RD_REQUEST = 0x64


_OPERATIONS = {
    "reth": (
        Opcode.WRITE_FIRST,
        Opcode.WRITE_ONLY,
        Opcode.WRITE_ONLY_WITH_IMMEDIATE,
        Opcode.READ_REQUEST,
    ),
    "atomic": (Opcode.COMPARE_SWAP, Opcode.FETCH_ADD),
    "aeth": (
        Opcode.ACKNOWLEDGE,
        Opcode.ATOMIC_ACKNOWLEDGE,
        Opcode.READ_RESPONSE_FIRST,
        Opcode.READ_RESPONSE_LAST,
        Opcode.READ_RESPONSE_ONLY,
    ),
    "atomic_answer": (Opcode.ATOMIC_ACKNOWLEDGE,),
    "immediate": (
        Opcode.SEND_LAST_WITH_IMMEDIATE,
        Opcode.SEND_ONLY_WITH_IMMEDIATE,
        Opcode.WRITE_LAST_WITH_IMMEDIATE,
        Opcode.WRITE_ONLY_WITH_IMMEDIATE,
    ),
    "invalidate": (Opcode.SEND_LAST_WITH_INVALIDATE, Opcode.SEND_ONLY_WITH_INVALIDATE),
}
"""Operations that carry each extended header, for every transport service."""


def _extended_headers(opcode: Opcode) -> tuple[str, ...]:
    if opcode is Opcode.CNP:
        return ()
    deth = ("deth",) if opcode >= Opcode.UD_SEND_ONLY else ()
    operation = opcode & 0x1F
    return (*deth, *(name for name, ops in _OPERATIONS.items() if operation in ops))


_EXTENDED = {opcode: _extended_headers(opcode) for opcode in Opcode}


def extended_headers(opcode: Opcode) -> tuple[str, ...]:
    """Return the fields of `chakram.roce.headers.Packet` that *opcode* carries.

    The fields are in wire order, from the BTH to the payload.
    """
    return _EXTENDED[opcode]
