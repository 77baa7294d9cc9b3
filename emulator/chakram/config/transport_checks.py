"""Checks of the transport against its fabric, and of packet faults against jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from chakram.collectives.ops import CollectiveOp
from chakram.config.congestion import CongestionSettings, congestion_mistakes
from chakram.config.transport import (
    Transport,
    header_allowance_bytes,
    largest_burst,
    largest_path_mtu,
)
from chakram.fabric.fabric_types.base import FabricKind
from chakram.foundation.ip_addresses import IPV4, IPV6
from chakram.foundation.units import format_size
from chakram.plan.queue_pairs import SOURCE_PORT_BASE, SOURCE_PORT_POOL
from chakram.settings.located_errors import Location, Mistake

if TYPE_CHECKING:
    from chakram.config.jobs import Job
    from chakram.config.transport import Faults, PacketFaultSettings, Transport


_NAMES = {IPV4: "IPv4", IPV6: "IPv6"}
_FLOW_LABELS = range(SOURCE_PORT_BASE, SOURCE_PORT_BASE + SOURCE_PORT_POOL)


def check_transport(transport: Transport, fabric: FabricKind) -> Iterator[Mistake]:
    """Check the transport against the limits of the fabric."""
    yield from _check_congestion(transport.congestion_control, fabric)
    mtu = fabric.smallest_mtu
    family = fabric.family
    headers_bytes = header_allowance_bytes(family)
    fitting = largest_path_mtu(mtu, family)
    path_mtu = transport.path_mtu or fitting
    if path_mtu > fitting:
        yield Mistake(
            ("transport", "path_mtu"),
            f"{path_mtu} and {headers_bytes} bytes of headers do "
            f"not fit into the fabric's MTU of {mtu}",
            f"use at most {fitting}, or raise the MTU to {path_mtu + headers_bytes}",
        )
    if transport.window_bytes is not None and transport.window_bytes < path_mtu:
        yield Mistake(
            ("transport", "window"),
            f"{format_size(transport.window_bytes)} is less than one packet "
            f"of {path_mtu} bytes",
            f"use at least {format_size(path_mtu)}, better 64KiB",
        )
    receiving = fabric.receiving_udp_ports
    if transport.source_ports != "flow_label":
        yield from _check_source_ports(transport.source_ports, receiving)
    elif receiving.stop > _FLOW_LABELS.start and receiving.start < _FLOW_LABELS.stop:
        yield Mistake(
            fabric.udp_port_key,
            f"UDP port {max(receiving.start, _FLOW_LABELS.start)} is a source port of "
            f"queue pairs, which have {_FLOW_LABELS.start} to {_FLOW_LABELS.stop - 1}",
            "choose a lower port, or list transport.source_ports",
        )
    most = largest_burst(path_mtu, family)
    burst = transport.max_burst_packets
    if burst is not None and burst > most:
        yield Mistake(
            ("transport", "burst"),
            f"{burst} packets of path MTU {path_mtu} do not fit "
            f"into one send over {_NAMES[family]}",
            f"use at most {most}, or remove burst",
        )


def check_class_of(transport: Transport, jobs: tuple[Job, ...]) -> Iterator[Mistake]:
    """Check that traffic class rules have a class or DSCP, and name existing jobs."""
    names = [job.name for job in jobs]
    for index, rule in enumerate(transport.class_of):
        if (rule.traffic_class is None) == (rule.dscp is None):
            which = "neither" if rule.dscp is None else "both"
            yield Mistake(
                ("transport", "class_of", index),
                f"has {which} of class and dscp",
                "write one of them",
            )
        if rule.collective is CollectiveOp.BARRIER:
            yield Mistake(
                ("transport", "class_of", index, "collective"),
                "barriers send no data, so they have no class",
                "remove the rule",
            )
        if rule.job is not None and rule.job not in names:
            yield Mistake(
                ("transport", "class_of", index, "job"),
                f"there is no job {rule.job!r}",
                f"one of {', '.join(names)}",
            )


def check_transport_itself(transport: Transport) -> list[Mistake]:
    """Check for contradictions within the transport, independent of the fabric."""
    given = transport.model_fields_set
    named_twice = transport.local_ack_timeout is not None and given & {
        "retransmit_timeout_ns",
        "retransmit_timeout",
    }
    never = transport.local_ack_timeout == 0
    pieces = transport.queue_pairs.message_bytes is not None
    doubts: tuple[tuple[bool, Location, str, str], ...] = (
        (
            bool(named_twice),
            ("local_ack_timeout",),
            "retransmit_timeout and local_ack_timeout set the same timeout",
            "remove one of them",
        ),
        (
            never and transport.adaptive_retransmission is not None,
            ("adaptive_retransmission",),
            "cannot be combined with local_ack_timeout: 0, which disables the timeout",
            "remove one of them",
        ),
        (
            pieces and transport.verb == "send",
            ("queue_pairs", "message_size"),
            "requires verb: write, because a receiver counts every SEND as a message",
            "write verb: write, or remove message_size",
        ),
        (
            transport.verify in ("full", "off") and transport.icrc_check is not None,
            ("icrc_check",),
            f"icrc_check is the size of a sample, but verify is {transport.verify}",
            "write verify: sample, or remove icrc_check",
        ),
        (
            transport.verify == "sample" and transport.icrc_check == 0,
            ("icrc_check",),
            "is 0, so no packet would be checked",
            "e.g. icrc_check: 64, or verify: off",
        ),
    )
    return [
        Mistake(("transport", *location), found, hint)
        for is_wrong, location, found, hint in doubts
        if is_wrong
    ]


def _check_source_ports(listed: Sequence[int], receiving: range) -> Iterator[Mistake]:
    where: Location = ("transport", "source_ports")
    twice = sorted(port for port, times in Counter(listed).items() if times > 1)
    for udp_port in receiving:
        if udp_port not in listed:
            continue
        yield Mistake(
            where,
            f"{udp_port} is fabric.udp_port, the destination port of packets"
            if udp_port == receiving.start
            else f"{udp_port} is a destination port of packets, one of "
            f"{receiving.start} to {receiving.stop - 1}",
            "remove it from the list",
        )
    if twice:
        yield Mistake(
            where,
            f"{', '.join(map(str, twice))} is listed more than once",
            "list each port once",
        )


def _check_congestion(
    congestion: CongestionSettings, fabric: FabricKind
) -> list[Mistake]:
    where: Location = ("transport", "congestion_control")
    if len(congestion.given) > 1:
        return [Mistake(where, "names two congestion controls", "write one of them")]
    mistakes = congestion_mistakes(
        congestion.name,
        congestion.settings,
        fabric.port_rate_bps,
        dilation=fabric.dilation,
    )
    return [
        replace(each, location=(*where, congestion.name, *each.location))
        for each in mistakes
    ]


_LISTED = 6
_EXAMPLES = "e.g. {action: drop, nth: 5} or {action: delay, by: 1ms, probability: 0.01}"


_ONLY_FOR = {
    "by": ("delay_ns", ("delay", "reorder")),
    "behind": ("behind", ("reorder",)),
}
"""Field and actions of each packet fault key that all other actions ignore."""


def check_fault_keys(faults: Faults) -> Iterator[Mistake]:
    """Check for keys that the action of a packet fault ignores.

    Args:
        faults: Faults of the experiment as written, because dilation also changes
            ignored keys.
    """
    for index, fault in enumerate(faults.packets):
        for key, (name, actions) in _ONLY_FOR.items():
            default = type(fault).model_fields[name].default
            if fault.action not in actions and getattr(fault, name) != default:
                yield Mistake(
                    ("faults", "packets", index, key),
                    f"has no effect for action {fault.action}",
                    "remove it",
                )


def check_packet_faults(
    faults: Faults,
    ranks_of: Mapping[str, int | None],
    groups_of: Mapping[str, Collection[str]] | None = None,
) -> Iterator[Mistake]:
    """Check for contradictory faults, and for faults that match no packet.

    Args:
        faults: Faults of the experiment.
        ranks_of: Number of ranks by job name; None if the job's trace is not read yet.
        groups_of: Process groups by job name; None if traces are not read yet.
    """
    for index, fault in enumerate(faults.packets):
        where: Location = ("faults", "packets", index)
        try:
            fault.fault()
        except ValueError as error:
            yield Mistake(where, str(error), _EXAMPLES)
        if fault.job is not None and fault.job not in ranks_of:
            yield Mistake(
                (*where, "job"),
                f"there is no job {fault.job!r}",
                f"known: {', '.join(ranks_of)}",
            )
            # The ranks of an unknown job are unknown, so they cannot be checked.
            continue
        counts = ranks_of.values() if fault.job is None else (ranks_of[fault.job],)
        ranks = _most(tuple(counts))
        for name in ("source", "destination"):
            rank = getattr(fault, name)
            if rank is not None and ranks is not None and rank >= ranks:
                yield Mistake(
                    (*where, name),
                    f"there is no rank {rank}",
                    f"use ranks 0 to {ranks - 1}",
                )
        yield from _check_group(fault, where, groups_of)


def check_fault_queue_pairs(faults: Faults, transport: Transport) -> list[Mistake]:
    """Check that the queue pairs in packet faults exist."""
    count = transport.queue_pairs.count
    return [
        Mistake(
            ("faults", "packets", index, "queue_pair"),
            f"there is no queue pair {fault.queue_pair}",
            f"transport.queue_pairs.count is {count}, so queue pairs are 0 to "
            f"{count - 1}",
        )
        for index, fault in enumerate(faults.packets)
        if fault.queue_pair is not None and fault.queue_pair >= count
    ]


def _check_group(
    fault: PacketFaultSettings,
    where: Location,
    groups_of: Mapping[str, Collection[str]] | None,
) -> Iterator[Mistake]:
    if fault.group is None or groups_of is None:
        return
    known = {
        group
        for job, groups in groups_of.items()
        if fault.job in (None, job)
        for group in groups
    }
    if fault.group in known:
        return
    listed = ", ".join(sorted(known)[:_LISTED])
    yield Mistake(
        (*where, "group"),
        f"there is no process group {fault.group!r}",
        f"e.g. {listed}; list them with chakram trace show",
    )


def _most(counts: tuple[int | None, ...]) -> int | None:
    """Return the largest number, or None if one of them is unknown."""
    known = [count for count in counts if count is not None]
    return max(known) if known and len(known) == len(counts) else None
