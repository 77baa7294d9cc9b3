"""Divided ports: what the agent opens for all data-plane processes of one port.

The agent outlives its shards, so it opens the receiving sockets, in their order, and
keeps them until all shards have ended: were one closed before, packets for others would
go astray.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from chakram.control.protocol_messages import pb
from chakram.errors import EnvironmentProblem, PlanError
from chakram.fabric.netns import run_in_namespace
from chakram.roce.shared_line import PART_WORDS
from chakram_agent.dataplane.steering import open_receivers

if TYPE_CHECKING:
    import socket

    from chakram.plan.plan import AgentPlan, PortPlan


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
