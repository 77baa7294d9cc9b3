"""Conversion of agent events to and from messages.

Data-plane processes report with the same messages, so this module does not need gRPC.
"""

from __future__ import annotations

from typing import Any

from chakram.control import events
from chakram.control.dataclass_codec import Mapper
from chakram.control.protobuf_messages import pb
from chakram.fabric.inventory.reported_interfaces import HostPorts
from chakram.foundation.errors import PeerError
from chakram.foundation.field_bounds import Fault
from chakram.records.row_layout import RecordRows

_DESCRIPTIONS = Mapper(events.AgentDescription, pb.Description)
_ROWS = Mapper(RecordRows, pb.Records)
# The enclosing ``AgentEvent`` message contains the time of the event.
_PORTS = Mapper(HostPorts, pb.HostPorts)
_NICS = Mapper(events.NicCounters, pb.NicCounters, without=["time_ns"])
_PROGRESS = Mapper(events.Progress, pb.Progress, without=["time_ns"])
_EVENTS: dict[str, tuple[type, Mapper[Any, Any]]] = {
    name: (kind, Mapper(kind, message, without=["time_ns"]))
    for name, kind, message in (
        ("phase_changed", events.PhaseChanged, pb.PhaseChanged),
        ("counters", events.CountersSnapshot, pb.Counters),
        ("log", events.LogLine, pb.LogLine),
        ("finished", events.Finished, pb.Finished),
        ("failed", events.Failed, pb.Failed),
        ("nic", events.NicCounters, pb.NicCounters),
        ("host", events.HostCounters, pb.HostCounters),
    )
} | {"progress": (events.Progress, _PROGRESS)}
_NAMES = {kind: name for name, (kind, _) in _EVENTS.items()}

encode_rows = _ROWS.encode
encode_progress = _PROGRESS.encode
decode_progress = _PROGRESS.decode
decode_nic = _NICS.decode
encode_nic = _NICS.encode
encode_description = _DESCRIPTIONS.encode
decode_description = _DESCRIPTIONS.decode
encode_ports = _PORTS.encode
decode_ports = _PORTS.decode


def decode_rows(message: pb.Records, *, where: str) -> RecordRows:
    """Convert a message to rows.

    Raises:
        PeerError: If a row is incomplete. *where* is the error's location.
    """
    try:
        return _ROWS.decode(message)
    except Fault as fault:
        raise PeerError(where, fault.found) from None


def encode_event(event: events.AgentEvent) -> pb.AgentEvent:
    """Convert an event to a message."""
    if isinstance(event, events.RecordBatch):
        return pb.AgentEvent(time_ns=event.time_ns, records=encode_rows(event.rows))
    name = _NAMES[type(event)]
    said: Any = {name: _EVENTS[name][1].encode(event)}
    return pb.AgentEvent(time_ns=event.time_ns, **said)


def decode_event(message: pb.AgentEvent, *, where: str) -> events.AgentEvent | None:
    """Convert a message to an event, or to None if this version lacks that event type.

    Raises:
        PeerError: If the message is invalid. *where* is the error's location.
    """
    name = message.WhichOneof("event")
    if name is None:
        return None
    said = getattr(message, name)
    if name == "records":
        rows = decode_rows(said, where=where)
        return events.RecordBatch(time_ns=message.time_ns, rows=rows)
    try:
        event: events.AgentEvent = _EVENTS[name][1].decode(
            said, time_ns=message.time_ns
        )
    except Fault as fault:
        raise PeerError(where, fault.found) from None
    return event
