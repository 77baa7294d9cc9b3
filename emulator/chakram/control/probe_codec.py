"""Probes as messages, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chakram.control.field_checks import (
    MAX_TIME_NS,
    Fault,
    address,
    between,
    check_count,
    rows,
)
from chakram.control.protocol_messages import pb
from chakram.plan.probes import ProbePacket, ProbePlan, ProbeTarget

if TYPE_CHECKING:
    from collections.abc import Collection

    from chakram.plan.plan import AgentPlan

__all__ = ["check_probes", "decode_probes", "encode_probes"]

MAX_PACKETS = 256
MAX_SOURCE_PORTS = 64
MAX_COPIES = 1000
MAX_TARGETS = 2**20
LEAST_GAP_NS = 1000
LEAST_SIZE_BYTES = 128
"""Headers and what tells a probe from others, of either version of IP."""
MAX_SIZE_BYTES = 65535


def encode_probes(probes: ProbePlan) -> pb.ProbePlan:
    """Return the message of *probes*."""
    return pb.ProbePlan(
        packets=[
            pb.ProbePacket(size_bytes=packet.size_bytes, tos=packet.tos)
            for packet in probes.packets
        ],
        source_ports=probes.source_ports,
        copies=probes.copies,
        gap_ns=probes.gap_ns,
        end_ns=probes.end_ns,
        targets=[
            pb.ProbeTarget(
                offset_ns=target.offset_ns,
                source=target.source,
                destination=target.destination,
                address=target.address,
                udp_port=target.udp_port,
            )
            for target in probes.targets
        ],
    )


def decode_probes(message: pb.ProbePlan) -> ProbePlan:
    """Return the probes of a message.

    Raises:
        Fault: If they are wrong.
    """
    check_count("source_ports", message.source_ports, MAX_SOURCE_PORTS)
    probes = ProbePlan(
        packets=rows("packets", message.packets, _packet, most=MAX_PACKETS),
        source_ports=tuple(
            between("source_ports", number, 1, 65535) for number in message.source_ports
        ),
        copies=between("copies", message.copies, 1, MAX_COPIES),
        gap_ns=between("gap_ns", message.gap_ns, LEAST_GAP_NS, MAX_TIME_NS),
        end_ns=between("end_ns", message.end_ns, 0, MAX_TIME_NS),
        targets=rows("targets", message.targets, _target, most=MAX_TARGETS),
    )
    if len(set(probes.source_ports)) < len(probes.source_ports):
        raise Fault("source_ports", "one stands there twice")
    return probes


def _packet(message: pb.ProbePacket) -> ProbePacket:
    return ProbePacket(
        size_bytes=between(
            "size_bytes", message.size_bytes, LEAST_SIZE_BYTES, MAX_SIZE_BYTES
        ),
        tos=between("tos", message.tos, 0, 255),
    )


def _target(message: pb.ProbeTarget) -> ProbeTarget:
    return ProbeTarget(
        offset_ns=between("offset_ns", message.offset_ns, 0, MAX_TIME_NS),
        source=message.source,
        destination=message.destination,
        address=address("address", message.address),
        udp_port=between("udp_port", message.udp_port, 1, 65535),
    )


def check_probes(plan: AgentPlan, ports: Collection[int], peers: set[str]) -> None:
    """Find what probes name, and that nothing else is in their plan.

    Raises:
        Fault: If something is not there.
    """
    if plan.probes is None:
        return
    if plan.ranks:
        raise Fault("probes", "a plan has either ranks or probes")
    for index, target in enumerate(plan.probes.targets):
        path = f"probes.targets[{index}]"
        if target.source not in ports:
            raise Fault(f"{path}.source", f"port {target.source} is not in the plan")
        if target.address not in peers:
            raise Fault(
                f"{path}.address",
                f"{target.address} is not among the peers of the plan",
                "an agent sends to members of the plan only",
            )
