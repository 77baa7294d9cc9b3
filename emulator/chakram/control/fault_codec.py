"""Packet faults as messages, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chakram.control.field_checks import MAX_TIME_NS, Fault, between, name_text
from chakram.control.protocol_messages import pb
from chakram.plan.faults import MAX_FAULTS, FaultAction, PacketFault

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["MAX_FAULTS", "decode_fault", "encode_faults"]

_MAX_RANK = 2**17
_MAX_COUNT = 2**53

_ACTIONS = {action.name.lower(): action for action in FaultAction}


def encode_faults(faults: Iterable[PacketFault]) -> list[pb.PacketFault]:
    """Return the messages of *faults*."""
    return [
        pb.PacketFault(
            action=fault.name,
            at_send=fault.at_send,
            packets=fault.packets,
            job=fault.job,
            source=fault.source,
            destination=fault.destination,
            group=fault.group,
            channel=fault.channel,
            queue_pair=fault.queue_pair,
            nth=fault.nth,
            count=fault.count,
            every=fault.every,
            probability=fault.probability,
            delay_ns=fault.delay_ns,
            behind=fault.behind,
            part=fault.part,
        )
        for fault in faults
    ]


def decode_fault(message: pb.PacketFault) -> PacketFault:
    """Return the fault of a message.

    Raises:
        Fault: If it is wrong.
    """
    action = _ACTIONS.get(message.action)
    if action is None:
        raise Fault("action", f"{message.action[:40]!r} is no action")
    try:
        return PacketFault(
            action=action,
            at_send=message.at_send,
            packets=name_text("packets", message.packets),
            job=name_text("job", message.job) if message.HasField("job") else None,
            source=between("source", message.source, 0, _MAX_RANK)
            if message.HasField("source")
            else None,
            destination=between("destination", message.destination, 0, _MAX_RANK)
            if message.HasField("destination")
            else None,
            group=name_text("group", message.group)
            if message.HasField("group")
            else None,
            channel=between("channel", message.channel, 0, _MAX_COUNT)
            if message.HasField("channel")
            else None,
            queue_pair=between("queue_pair", message.queue_pair, 0, _MAX_COUNT)
            if message.HasField("queue_pair")
            else None,
            nth=between("nth", message.nth, 0, _MAX_COUNT),
            count=between("count", message.count, 1, _MAX_COUNT),
            every=between("every", message.every, 0, _MAX_COUNT),
            probability=message.probability,
            delay_ns=between("delay_ns", message.delay_ns, 1, MAX_TIME_NS),
            behind=between("behind", message.behind, 1, _MAX_COUNT),
            part=message.part or "any",
        )
    except ValueError as error:
        raise Fault("", str(error)) from None
