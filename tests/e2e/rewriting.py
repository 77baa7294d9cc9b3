"""Switch ports that corrupt UDP packets, with eBPF filters.

The program is written down here, instruction by instruction, and loaded with the plain
system call, so that a kernel with ``cls_bpf`` is all that it needs.
"""

from __future__ import annotations

import ctypes
import os
import platform
import socket
import struct
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyroute2 import IPRoute

from chakram.fabric.labs.enter_namespace import run_in_namespace

if TYPE_CHECKING:
    from collections.abc import Iterator

# linux/bpf.h, asm/unistd.h
_BPF_CALL = {"x86_64": 321, "aarch64": 280}
_PROG_LOAD = 5
_SCHED_CLS = 3
_LOAD_BYTES, _STORE_BYTES, _L3_CSUM_REPLACE, _RANDOM = 26, 9, 10, 7
_R0, _R1, _R2, _R3, _R4, _R5, _R6, _R7, _R8, _R10 = (*range(9), 10)
_MOVE, _SET, _ADD, _AND, _OR, _SHIFT = 0xBF, 0xB7, 0x07, 0x57, 0x47, 0x67
_CALL, _EXIT, _JUMP_NOT_EQUAL, _JUMP_LESS_OR_EQUAL = 0x85, 0x95, 0x55, 0xB5
_SHIFT_RIGHT, _JUMP_GREATER_OR_EQUAL = 0x77, 0x35
_WORD_OF_CONTEXT, _BYTE, _STORE_BYTE = 0x61, 0x71, 0x73
_LENGTH_OF_SKB, _PROTOCOL_OF_SKB = 0, 16
_PASS, _DROP = 0, 2
_UDP = 17
_PROTOCOL_AT, _TOS_AT, _CHECKSUM_AT = 14 + 9, 14 + 1, 14 + 10


def _instruction(
    code: int, to: int = 0, of: int = 0, offset: int = 0, value: int = 0
) -> bytes:
    return struct.pack("=BBhi", code, to | of << 4, offset, value)


def _byte_at(offset: int) -> list[bytes]:
    """Load one byte of the packet into r0."""
    return [
        _instruction(_MOVE, _R1, _R6),
        _instruction(_SET, _R2, value=offset),
        _instruction(_MOVE, _R3, _R10),
        _instruction(_ADD, _R3, value=-8),
        _instruction(_SET, _R4, value=1),
        _instruction(_CALL, value=_LOAD_BYTES),
        _instruction(_BYTE, _R0, _R10, -8),
    ]


def _program(
    *,
    keep: int = 0xFF,
    longest: int | None = None,
    loss: float | None = None,
    dscp: int | None = None,
) -> bytes:
    """Return a filter that clears bits of the type of service, or drops packets."""
    rewrite = [
        *_byte_at(_TOS_AT),
        _instruction(_MOVE, _R7, _R0),
        _instruction(_MOVE, _R8, _R0),
        _instruction(_AND, _R8, value=keep),
        _instruction(_STORE_BYTE, _R10, _R8, -8),
        _instruction(_MOVE, _R1, _R6),
        _instruction(_SET, _R2, value=_TOS_AT),
        _instruction(_MOVE, _R3, _R10),
        _instruction(_ADD, _R3, value=-8),
        _instruction(_SET, _R4, value=1),
        _instruction(_SET, _R5, value=0),
        _instruction(_CALL, value=_STORE_BYTES),
        # The checksum covers words: version and length stand before the byte.
        _instruction(_SHIFT, _R7, value=8),
        _instruction(_OR, _R7, value=0x45),
        _instruction(_SHIFT, _R8, value=8),
        _instruction(_OR, _R8, value=0x45),
        _instruction(_MOVE, _R1, _R6),
        _instruction(_SET, _R2, value=_CHECKSUM_AT),
        _instruction(_MOVE, _R3, _R7),
        _instruction(_MOVE, _R4, _R8),
        _instruction(_SET, _R5, value=2),
        _instruction(_CALL, value=_L3_CSUM_REPLACE),
        _instruction(_SET, _R0, value=_PASS),
        _instruction(_EXIT),
    ]
    lose = [
        _instruction(_WORD_OF_CONTEXT, _R0, _R6, _LENGTH_OF_SKB),
        _instruction(_JUMP_LESS_OR_EQUAL, _R0, 0, 2, value=longest or 0),
        _instruction(_SET, _R0, value=_DROP),
        _instruction(_EXIT),
    ]
    if loss is not None:
        # A quarter of 32 random bits stays away from the sign of the constant.
        lose = [
            _instruction(_CALL, value=_RANDOM),
            _instruction(_SHIFT_RIGHT, _R0, value=2),
            _instruction(_JUMP_GREATER_OR_EQUAL, _R0, 0, 2, value=int(loss * 2**30)),
            _instruction(_SET, _R0, value=_DROP),
            _instruction(_EXIT),
        ]
    work = rewrite if longest is None and loss is None else lose
    if dscp is not None:
        work = [
            *_byte_at(_TOS_AT),
            _instruction(_SHIFT_RIGHT, _R0, value=2),
            _instruction(_JUMP_NOT_EQUAL, _R0, 0, len(work), value=dscp),
            *work,
        ]
    return b"".join(
        [
            _instruction(_MOVE, _R6, _R1),
            _instruction(_WORD_OF_CONTEXT, _R0, _R6, _PROTOCOL_OF_SKB),
            _instruction(
                _JUMP_NOT_EQUAL, _R0, 0, 8 + len(work), value=socket.htons(0x0800)
            ),
            *_byte_at(_PROTOCOL_AT),
            _instruction(_JUMP_NOT_EQUAL, _R0, 0, len(work), value=_UDP),
            *work,
            _instruction(_SET, _R0, value=_PASS),
            _instruction(_EXIT),
        ]
    )


def _load(program: bytes) -> int:
    """Load a program; return its descriptor.

    Raises:
        OSError: If the kernel does not take it; with what the verifier said.
    """
    code = ctypes.create_string_buffer(program, len(program))
    licence = ctypes.create_string_buffer(b"GPL")
    log = ctypes.create_string_buffer(65536)
    attributes = struct.pack(
        "=IIQQIIQ",
        _SCHED_CLS,
        len(program) // 8,
        ctypes.addressof(code),
        ctypes.addressof(licence),
        1,
        len(log),
        ctypes.addressof(log),
    ).ljust(120, b"\0")
    libc = ctypes.CDLL(None, use_errno=True)
    found: int = libc.syscall(
        _BPF_CALL[platform.machine()], _PROG_LOAD, attributes, len(attributes)
    )
    if found < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"bpf: {os.strerror(number)}: {log.value.decode()}")
    return found


def missing_bpf() -> str | None:
    """Return why no filter can be loaded here; None if one can."""
    if platform.machine() not in _BPF_CALL:
        return f"the number of the system call on {platform.machine()} is not known"
    try:
        os.close(_load(_program()))
    except OSError as error:
        return str(error)[:200]
    return None


@contextmanager
def rewriting(
    namespace: str,
    interface: str,
    *,
    keep: int = 0xFF,
    longest: int | None = None,
    loss: float | None = None,
    dscp: int | None = None,
    is_egress: bool = False,
) -> Iterator[None]:
    """Rewrite or drop the IPv4 UDP packets that enter at *interface*.

    Args:
        namespace: Path of the network namespace that it lies in.
        interface: Its name.
        keep: Bits of the type of service that stay.
        longest: Longer frames are dropped instead, without a word; None: none are.
        loss: This part of all frames is dropped instead; None: none is.
        dscp: Only packets of this class are meant; None: all.
        is_egress: Whether packets that leave there are meant instead.
    """
    descriptor = _load(_program(keep=keep, longest=longest, loss=loss, dscp=dscp))
    try:
        run_in_namespace(namespace, _attach, interface, descriptor, is_egress)
        yield
    finally:
        run_in_namespace(namespace, _detach, interface)
        os.close(descriptor)


def _attach(interface: str, descriptor: int, is_egress: bool) -> None:
    with IPRoute() as netlink:
        (index,) = netlink.link_lookup(ifname=interface)
        netlink.tc("add", "clsact", index)
        netlink.tc(
            "add-filter",
            "bpf",
            index,
            ":1",
            fd=descriptor,
            name="rewriting",
            parent=0xFFFFFFF3 if is_egress else 0xFFFFFFF2,
            direct_action=True,
        )


def _detach(interface: str) -> None:
    with IPRoute() as netlink:
        (index,) = netlink.link_lookup(ifname=interface)
        netlink.tc("del", "clsact", index)
