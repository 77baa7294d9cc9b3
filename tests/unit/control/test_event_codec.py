from __future__ import annotations

from array import array
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chakram.control.dataclass_codec import pack_numbers, unpack_numbers
from chakram.control.event_codec import (
    decode_description,
    decode_event,
    encode_description,
    encode_event,
)
from chakram.control.events import (
    AgentDescription,
    AgentEvent,
    CountersSnapshot,
    Failed,
    Finished,
    LogLine,
    PhaseChanged,
    Progress,
    RecordBatch,
    ShardLoad,
)
from chakram.control.protobuf_messages import pb
from chakram.foundation.errors import PeerError
from chakram.records.counter_slots import TOTAL_SLOTS
from chakram.records.row_layout import FLOW_FIELDS, ITERATION_FIELDS, RecordRows


def some_rows() -> RecordRows:
    return RecordRows(
        flows=array("q", range(-3, 2 * len(FLOW_FIELDS) - 3)),
        iterations=array("q", [2**63 - 1] * len(ITERATION_FIELDS)),
    )


EVENTS: list[AgentEvent] = [
    PhaseChanged(time_ns=1, phase="ARMED"),
    Progress(time_ns=2, counter=9, iterations=((0, 3), (7, 2)), resting=(7,)),
    Progress(time_ns=2, counter=9, iterations=(), waiting_for=("rank 1 waits",)),
    RecordBatch(time_ns=3, rows=some_rows()),
    CountersSnapshot(
        time_ns=4,
        values=array("q", range(TOTAL_SLOTS)),
        loads=(
            ShardLoad(
                **{
                    each.name: 1 + number
                    for number, each in enumerate(fields(ShardLoad))
                }
            ),
        ),
    ),
    LogLine(time_ns=5, level="warning", text="small buffers"),
    Finished(time_ns=6),
    Failed(time_ns=7, reason="the queue pair gave up", waiting_for=("a", "b")),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_events_survive_the_wire(event: AgentEvent) -> None:
    message = pb.AgentEvent.FromString(encode_event(event).SerializeToString())
    assert decode_event(message, where="x") == event


def test_events_of_a_later_version_are_ignored() -> None:
    assert decode_event(pb.AgentEvent(time_ns=1), where="x") is None


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=50))
def test_numbers_survive_packing(values: list[int]) -> None:
    data = pack_numbers(array("q", values))
    assert list(unpack_numbers(data)) == values


def test_broken_rows_are_refused() -> None:
    message = pb.AgentEvent()
    message.records.flows = bytes(9)
    with pytest.raises(PeerError, match="agent a: 9 bytes are not rows of "):
        decode_event(message, where="agent a")


def test_counters_of_another_layout_are_refused() -> None:
    message = pb.AgentEvent()
    message.counters.values = b""
    with pytest.raises(PeerError, match="0 counters instead of"):
        decode_event(message, where="agent a")


@pytest.mark.parametrize("limit", [None, 10**10])
def test_a_description_survives_the_wire(limit: int | None) -> None:
    description = AgentDescription(
        protocol=1,
        version="0.1.0",
        host="h1",
        kernel="6.1",
        python="3.11",
        cores=2,
        compiled=False,
        max_rate_bps=limit,
        phase="IDLE",
        clock="boot",
    )
    assert decode_description(encode_description(description)) == description
