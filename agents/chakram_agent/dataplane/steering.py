"""Gives each data-plane process of a divided port what arrives for its queue pairs.

Every process has a receiving socket of its own, all bound to one address and UDP port
(SO_REUSEPORT).  Which of them gets a datagram is decided in the kernel by a program of
classic BPF: it reads the low bits of the destination queue pair number, which name the
shard.

Facts that this rests on (Linux):

* The program sees the payload of the datagram, that is, the BTH first; a load behind
  its end ends the program with 0.
* Its result counts the sockets in the order in which they were bound, and closing one
  puts the last one in its place.  So one process, which outlives the others, opens all
  of them.
* A result that is no socket's number lets the kernel choose by a hash of addresses.
* A run of packets that was joined on the way (GRO) is steered by its first packet; the
  plan sees to it that such runs are for one shard (``chakram.plan.queue_pairs``).
* The first socket is bound before it may be shared, so an address that another program
  has, or another run, is refused as it is for ports that are not divided.
"""

from __future__ import annotations

import ctypes
import socket
import struct
from collections.abc import Sequence

from chakram.errors import FabricError
from chakram.plan.queue_pairs import MAX_SHARDS
from chakram_agent.dataplane.udp_sockets import allow_descriptors, bound_socket

_SO_ATTACH_REUSEPORT_CBPF = 51

# linux/filter.h, linux/bpf_common.h: a byte of the packet, a constant, conditions.
_LOAD_BYTE = 0x30
_AND = 0x54
_JUMP_IF_EQUAL = 0x15
_RETURN = 0x06
_INSTRUCTION = struct.Struct("=HBBI")
_LOW_BYTE_OF_QPN = 7
"""Bytes 5 to 7 of a BTH are the destination queue pair number."""


def steering_program(shards: Sequence[int]) -> bytes:
    """Return the program that gives packets for *shards* to sockets 0, 1, 2, ...

    Whatever else arrives, be it no packet at all, goes to socket 0 and is counted
    there.
    """
    code = [(_LOAD_BYTE, 0, 0, _LOW_BYTE_OF_QPN), (_AND, 0, 0, MAX_SHARDS - 1)]
    for index, shard in enumerate(shards):
        code += [(_JUMP_IF_EQUAL, 0, 1, shard), (_RETURN, 0, 0, index)]
    code.append((_RETURN, 0, 0, 0))
    return b"".join(_INSTRUCTION.pack(*instruction) for instruction in code)


def open_receivers(
    interface: str, address: str, udp_port: int, shards: Sequence[int]
) -> list[socket.socket]:
    """Open the receiving sockets of a divided port, one for each of *shards*.

    They belong to the calling thread's network namespace.

    Raises:
        EnvironmentProblem: If the port cannot be opened; see ``bound_socket``.
    """
    allow_descriptors(len(shards))
    receivers: list[socket.socket] = []
    try:
        for index in range(len(shards)):
            receiver = bound_socket(
                interface,
                address,
                udp_port,
                udp_port,
                option=socket.SO_REUSEPORT if index else None,
            )
            receivers.append(receiver)
            receiver.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        _attach(receivers[0], steering_program(shards), f"port at {address}")
    except BaseException:
        for receiver in receivers:
            receiver.close()
        raise
    return receivers


def _attach(sock: socket.socket, program: bytes, where: str) -> None:
    code = ctypes.create_string_buffer(program, len(program))
    # struct sock_fprog: so many instructions, at this address.
    described = struct.pack(
        "@HP", len(program) // _INSTRUCTION.size, ctypes.addressof(code)
    )
    try:
        sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_REUSEPORT_CBPF, described)
    except OSError as error:
        raise FabricError(
            where,
            f"the kernel does not steer packets to processes ({error.strerror})",
            "set agents.shards so that no port is divided (chakram plan shows them)",
        ) from error
