"""Opens what a shard has to drive: its ports, each with an endpoint."""

from __future__ import annotations

import mmap
import os
import socket
from collections.abc import Iterable
from typing import TYPE_CHECKING

from chakram.replay.endpoint import Endpoint
from chakram.replay.local import connect_local
from chakram.roce.shared_line import SharedLine
from chakram_agent.dataplane.loop import DataPlane, Line
from chakram_agent.dataplane.memory import MemoryNetwork
from chakram_agent.dataplane.opening import open_line

if TYPE_CHECKING:
    from chakram.control.protocol_messages import pb
    from chakram.plan.plan import AgentPlan, PortPlan
    from chakram.plan.transport import TransportPlan
    from chakram_agent.policy import Policy


def build_plane(
    plan: AgentPlan, policy: Policy, parts: Iterable[pb.PortPart] = ()
) -> DataPlane:
    """Open all ports of *plan*, each in its network namespace, with their endpoints.

    Args:
        plan: The shard's part of it.
        policy: What this agent may send to.
        parts: What the agent has opened for ports that other shards have as well.

    Raises:
        ChakramError: If a port cannot be opened, a destination is not allowed or would
            be reached through ``lo``, or a program does not fit its queue pairs.
    """
    network = MemoryNetwork()
    part_of = {part.port: part for part in parts}
    lines: list[Line] = []
    try:
        for port in plan.ports:
            part = part_of.get(port.number)
            lines.append(_open_line(port, plan, policy, network, part))
        connect_local([line.endpoint for line in lines])
    except BaseException:
        for line in lines:
            line.port.close()
        raise
    return DataPlane(lines)


def _open_line(
    port: PortPlan,
    plan: AgentPlan,
    policy: Policy,
    network: MemoryNetwork,
    part: pb.PortPart | None,
) -> Line:
    ranks = [rank for rank in plan.ranks if rank.port == port.number]
    transport = plan.transport
    endpoint = Endpoint(
        port=port,
        ranks=ranks,
        transport=transport,
        settings=plan.settings,
        rank_numbers=plan.numbers(),
        line=None if part is None else _shared_line(port, transport, part),
        has_arrivals=True,
    )
    return open_line(
        endpoint,
        transport,
        policy=policy,
        members=plan.peers,
        network=network,
        receiver=None if part is None else socket.socket(fileno=part.receiver),
    )


def _shared_line(
    port: PortPlan, transport: TransportPlan, part: pb.PortPart
) -> SharedLine | None:
    try:
        if port.rate_bps is None:
            return None  # nothing to keep together
        words = mmap.mmap(part.line, os.fstat(part.line).st_size)
    finally:
        os.close(part.line)
    return SharedLine(
        rate_bps=port.rate_bps,
        burst_bound_ns=transport.burst_bound_ns,
        saves_up=transport.saves_up,
        words=memoryview(words).cast("q"),
        index=part.index,
    )
