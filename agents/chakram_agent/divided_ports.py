"""Divided ports: ports that several data-plane processes of the agent share.

The agent outlives its shards. It therefore opens the receiving sockets, in order, and
keeps them until all shards have ended. If one socket closed earlier, the kernel would
deliver packets to the wrong shards.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from chakram.control.protobuf_messages import pb
from chakram.fabric.labs.enter_namespace import run_in_namespace
from chakram.foundation.errors import EnvironmentProblem, FabricError, PlanError
from chakram.foundation.open_file_limit import allow_descriptors
from chakram.plan.plan import AgentPlan
from chakram.plan.port_plan import PortPlan
from chakram.plan.queue_pairs import MAX_SHARDS
from chakram.roce.cross_process_pacing import PART_WORDS
from chakram_agent.dataplane.udp_sockets import bound_socket

# Every process has its own receiving socket. All sockets are bound to one address and
# UDP port (SO_REUSEPORT). A classic BPF program in the kernel selects the socket for
# each datagram. The program reads the low bits of the destination queue pair number,
# which identify the shard.
#
# This relies on the following properties of Linux:
#
# * The program can read the payload of the datagram, which begins with the BTH. A load
#   beyond the end of the payload ends the program with result 0.
# * The result is an index into the sockets in the order in which they were bound. When
#   a socket closes, the last socket takes its index. Therefore, one process opens all
#   sockets and outlives the other processes.
# * If the result is not a valid index, the kernel selects a socket by a hash of
#   addresses.
# * If GRO coalesces packets into a batch, the program reads only the first packet. The
#   plan ensures that all packets of a batch are for one shard
#   (``chakram.plan.queue_pairs``).
# * The first socket allows sharing only after it is bound. If another program or run
#   uses the address, binding therefore fails, as it does for undivided ports.

_SO_ATTACH_REUSEPORT_CBPF = 51

# Classic BPF instructions (linux/filter.h, linux/bpf_common.h).
_LOAD_BYTE = 0x30
_AND = 0x54
_JUMP_IF_EQUAL = 0x15
_RETURN = 0x06
_INSTRUCTION = struct.Struct("=HBBI")
_LOW_BYTE_OF_QPN = 7
"""Offset of the last of the three QPN bytes (5 to 7) in the BTH."""


def steering_program(shards: Sequence[int]) -> bytes:
    """Return a BPF program that steers packets for *shards* to sockets 0, 1, 2, ...

    All other datagrams go to socket 0, whose shard counts them.
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

    The sockets belong to the calling thread's network namespace.

    Raises:
        EnvironmentProblem: If the port cannot be opened (see ``bound_socket``).
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
    # struct sock_fprog: number of instructions, address of the first instruction.
    described = struct.pack(
        "@HP", len(program) // _INSTRUCTION.size, ctypes.addressof(code)
    )
    try:
        sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_REUSEPORT_CBPF, described)
    except OSError as error:
        raise FabricError(
            where,
            f"the kernel cannot distribute packets among processes ({error.strerror})",
            "set agents.shards so that no port is divided (chakram plan shows them)",
        ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class DividedPort:
    """The resources that the shards of one port share.

    Attributes:
        number: Number of the port.
        shards: Shards that share the port.
        receivers: Receiving socket of each shard, in the order of *shards*.
        line: Descriptor of the shared memory for ``chakram.roce.cross_process_pacing``.
    """

    number: int
    shards: tuple[int, ...]
    receivers: tuple[socket.socket, ...]
    line: int

    def part(self, shard: int) -> pb.PortPart:
        """Return the part of the port for *shard*, with descriptors of this process."""
        index = self.shards.index(shard)
        return pb.PortPart(
            port=self.number,
            receiver=self.receivers[index].fileno(),
            line=self.line,
            index=index,
        )

    def close(self) -> None:
        """Close all descriptors. Call this after all shards have ended."""
        os.close(self.line)
        for receiver in self.receivers:
            receiver.close()


class DividedPorts:
    """The divided ports of the agent's current plan."""

    def __init__(self) -> None:
        self._ports: list[DividedPort] = []
        self._users: set[int] = set()

    def open(self, plan: AgentPlan) -> None:
        """Open the ports of *plan* whose ranks run in several shards.

        Raises:
            ChakramError: If a port cannot be opened.
        """
        shards_of = plan.shards_of_ports()
        self._users = set(range(len(plan.shard_numbers())))
        try:
            for port in plan.ports:
                shards = shards_of.get(port.number, ())
                if len(shards) > 1:
                    self._ports.append(_open(port, shards))
        except BaseException:
            self.close()
            raise

    def parts(self, shard: int) -> list[pb.PortPart]:
        """Return the parts of divided ports that belong to *shard*."""
        return [port.part(shard) for port in self._ports if shard in port.shards]

    def leave(self, number: int) -> None:
        """Record the end of shard *number*. If no shard is left, close all ports."""
        self._users.discard(number)
        if not self._users:
            self.close()

    def close(self) -> None:
        """Close all ports."""
        for port in self._ports:
            port.close()
        self._ports = []


def _open(port: PortPlan, shards: tuple[int, ...]) -> DividedPort:
    if not port.open.startswith("udp:"):
        raise PlanError(
            f"plan: port {port.number}",
            f"{port.open!r} has no sockets to divide",
            "keep its ranks in one shard",
        )
    where = (port.interface, port.address, port.udp_port, shards)
    receivers = (
        open_receivers(*where)
        if port.netns is None
        else run_in_namespace(port.netns, open_receivers, *where)
    )
    line = -1
    try:
        line = os.memfd_create(f"chakram-port-{port.number}", os.MFD_CLOEXEC)
        os.ftruncate(line, 8 * PART_WORDS * len(shards))
    except OSError as error:
        if line >= 0:
            os.close(line)
        for receiver in receivers:
            receiver.close()
        raise EnvironmentProblem(
            f"port {port.number}", f"no memory for its processes ({error.strerror})"
        ) from error
    return DividedPort(
        number=port.number, shards=shards, receivers=tuple(receivers), line=line
    )
