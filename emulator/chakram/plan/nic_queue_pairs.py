"""Ends of queue pairs on RDMA NICs, known only after the NIC has created them.

A plan numbers queue pairs, but the driver of a NIC chooses their numbers, memory and
keys. Agents therefore return the ends that they created. The controller sends each end
to the agent of the opposite end, which then connects.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

from chakram.collectives.groups import POINT_TO_POINT
from chakram.foundation.errors import PlanError
from chakram.foundation.field_bounds import AtMost, OneOf, Within
from chakram.plan.plan import Number24
from chakram.plan.transport import PATH_MTUS

if TYPE_CHECKING:
    from chakram.plan.plan import AgentPlan, RankPlan, RunSettings
    from chakram.plan.port_plan import PortPlan
    from chakram.plan.transport import TransportPlan

VERBS = "verbs:"
"""Prefix of the specification of a port on an RDMA NIC. The device name follows."""

_Index = Annotated[int, Within(0, 2**31 - 1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundQueuePair:
    """One end of a queue pair on an RDMA NIC.

    Attributes:
        port: Number of the port in the plan.
        qpn: Number of the queue pair in the plan.
        device_qpn: Queue pair number that the NIC chose.
        address: Start of the memory to which the peer writes.
        key: Key of that memory.
        slot_bytes: Size of a slot of that memory, which limits a single WRITE.
        slots: Number of slots, which messages use in turn.
        path_mtu: Maximum path MTU of the NIC's port.
    """

    port: _Index
    qpn: Number24
    device_qpn: Number24
    address: Annotated[int, Within(0, 2**64 - 1)]
    key: Annotated[int, Within(0, 2**32 - 1)]
    slot_bytes: Annotated[int, Within(1, 2**31)]
    slots: Annotated[int, Within(1, 2**16)]
    path_mtu: Annotated[int, OneOf(PATH_MTUS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundPeer:
    """The remote end of a queue pair, if it is on an RDMA NIC.

    Attributes:
        port: Number of the local port in the plan.
        qpn: Number of the local end in the plan.
        remote: Remote end, as the other agent returned it.
    """

    port: _Index
    qpn: Number24
    remote: BoundQueuePair


@dataclass(frozen=True, slots=True, kw_only=True)
class Bindings:
    """The queue pairs on NICs that an agent has created."""

    bound: Annotated[tuple[BoundQueuePair, ...], AtMost(1 << 22)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Peers:
    """The remote ends to which an agent connects its queue pairs."""

    peers: Annotated[tuple[BoundPeer, ...], AtMost(1 << 22)] = ()


def is_verbs(port: PortPlan) -> bool:
    """Return whether a port is on an RDMA NIC."""
    return port.open.startswith(VERBS)


def as_sockets(port: PortPlan) -> PortPlan:
    """Replace a port on an RDMA NIC with a port that uses sockets at its address.

    The NIC takes the packets of UDP port 4791, so sockets use the next port.
    """
    if not is_verbs(port):
        return port
    return replace(port, open="udp:", udp_port=port.udp_port + 1)


def uses_verbs(plans: Iterable[AgentPlan]) -> bool:
    """Return whether any port of a run is on an RDMA NIC."""
    return any(is_verbs(port) for plan in plans for port in plan.ports)


def peers_of(plan: AgentPlan, bound: Iterable[BoundQueuePair]) -> Peers:
    """Return the remote ends of an agent's queue pairs.

    Args:
        plan: The agent's plan.
        bound: The ends that all agents have returned.

    Raises:
        PlanError: If an agent returned an end twice.
    """
    ends: dict[tuple[int, int], BoundQueuePair] = {}
    for each in bound:
        if ends.setdefault((each.port, each.qpn), each) is not each:
            raise PlanError(
                f"port {each.port}", f"queue pair {each.qpn} was made twice"
            )
    return Peers(
        peers=tuple(
            BoundPeer(
                port=rank.port,
                qpn=pair.qpn,
                remote=ends[pair.remote_port, pair.remote_qpn],
            )
            for rank in plan.ranks
            for pair in rank.queue_pairs
            if (pair.remote_port, pair.remote_qpn) in ends
        )
    )


def payload_slots(
    ranks: Iterable[RankPlan], transport: TransportPlan, settings: RunSettings
) -> int:
    """Return how many slots each queue pair needs to verify WRITEs; 0: not verifiable.

    Credits prevent a slot from being overwritten before it has been verified.
    Point-to-point messages have no credits.
    """
    if transport.verify_every == 0 or transport.verb != "write":
        return 0
    has_others = any(
        pair.group == POINT_TO_POINT for rank in ranks for pair in rank.queue_pairs
    )
    return 0 if has_others else settings.credits


def is_verified(
    ranks: Iterable[RankPlan], transport: TransportPlan, settings: RunSettings
) -> bool:
    """Return whether a port on a NIC verifies payload.

    Each SEND arrives in a separate buffer, so it can always be verified.
    """
    if transport.verify_every and transport.verb == "send":
        return True
    return payload_slots(ranks, transport, settings) > 0
