"""Divided ports: what the agent opens for all data-plane processes of one port.

The agent outlives its shards, so it opens the receiving sockets, in their order, and
keeps them until all shards have ended: were one closed before, packets for others would
go astray.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from chakram.control.protocol_messages import pb
from chakram.fabric.labs.enter_namespace import run_in_namespace
from chakram.foundation.errors import EnvironmentProblem, FabricError, PlanError
from chakram.plan.queue_pairs import MAX_SHARDS
from chakram.roce.shared_line import PART_WORDS
from chakram_agent.dataplane.udp_sockets import allow_descriptors, bound_socket

if TYPE_CHECKING:
    from chakram.plan.plan import AgentPlan, PortPlan


# Every process has a receiving socket of its own, all bound to one address and UDP port
# (SO_REUSEPORT). Which of them gets a datagram is decided in the kernel by a program of
# classic BPF: it reads the low bits of the destination queue pair number, which name
# the shard.
#
# Facts that this rests on (Linux):
#
# * The program sees the payload of the datagram, that is, the BTH first; a load behind
# its end ends the program with 0. * Its result counts the sockets in the order in which
# they were bound, and closing one puts the last one in its place. So one process, which
# outlives the others, opens all of them. * A result that is no socket's number lets the
# kernel choose by a hash of addresses. * A run of packets that was joined on the way
# (GRO) is steered by its first packet; the plan sees to it that such runs are for one
# shard (``chakram.plan.queue_pairs``). * The first socket is bound before it may be
# shared, so an address that another program has, or another run, is refused as it is
# for ports that are not divided.

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


@dataclass(frozen=True, slots=True, kw_only=True)
class DividedPort:
    """What the parts of one port share.

    Attributes:
        number: Of the port.
        shards: That it is divided among.
        receivers: The socket of each of them.
        line: Descriptor of the memory for ``chakram.roce.shared_line``.
    """

    number: int
    shards: tuple[int, ...]
    receivers: tuple[socket.socket, ...]
    line: int

    def part(self, shard: int) -> pb.PortPart:
        """Return what a shard is told; the descriptors are those of this process."""
        index = self.shards.index(shard)
        return pb.PortPart(
            port=self.number,
            receiver=self.receivers[index].fileno(),
            line=self.line,
            index=index,
        )

    def close(self) -> None:
        """Close all of it, once all shards have ended."""
        os.close(self.line)
        for receiver in self.receivers:
            receiver.close()


class DividedPorts:
    """The divided ports of the plan that an agent executes; none at first."""

    def __init__(self) -> None:
        self._ports: list[DividedPort] = []
        self._users: set[int] = set()

    def open(self, plan: AgentPlan) -> None:
        """Open the ports of *plan* whose ranks live in several shards.

        Raises:
            ChakramError: If one cannot be opened.
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
        """Return the parts that a shard has."""
        return [port.part(shard) for port in self._ports if shard in port.shards]

    def leave(self, number: int) -> None:
        """Note that process *number* has ended; everything is closed with the last."""
        self._users.discard(number)
        if not self._users:
            self.close()

    def close(self) -> None:
        """Close all of it."""
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
