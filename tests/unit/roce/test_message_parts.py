"""Parts of a message's time, from the times of its last packet."""

from __future__ import annotations

from typing import Any

import pytest

from chakram.roce.events import MessageParts
from chakram.roce.message import Message


def concluded(**known: int) -> dict[str, int]:
    parts = MessageParts()
    names = ("own_port_ns", "pause_ns", "transfer_ns", "repair_ns")
    for name in names:
        setattr(parts, name, 1000)
    for name, value in known.items():
        setattr(parts, name, value)
    parts.conclude()
    found = {name: getattr(parts, name) - 1000 for name in names}
    return {name: ns for name, ns in found.items() if ns}


@pytest.mark.parametrize(
    ("known", "parts"),
    [
        # Its last packet has not left.
        ({"departed_ns": 900, "sent_ns": 500, "received_ns": 990}, {}),
        # It left for the last time 300 ns after the first; the rest is unknown.
        ({"left_ns": 100, "departed_ns": 400}, {"repair_ns": 300}),
        (
            {"left_ns": 100, "sent_ns": 200, "departed_ns": 400},
            {"repair_ns": 300},
        ),
        (
            {"left_ns": 100, "received_ns": 900, "departed_ns": 400},
            {"repair_ns": 300},
        ),
        # From the queue pair to the wire it waited for others on its port.
        (
            {"left_ns": 100, "sent_ns": 100, "departed_ns": 400, "received_ns": 900},
            {"own_port_ns": 300},
        ),
        # First it was sent again; then its own packets were before it, and a pause.
        (
            {
                "left_ns": 100,
                "sent_ns": 120,
                "departed_ns": 400,
                "received_ns": 900,
                "host_pause_ns": 50,
                "host_own_ns": 70,
            },
            {"repair_ns": 20, "pause_ns": 50, "transfer_ns": 70, "own_port_ns": 160},
        ),
        # What its own packets took cannot be more than there is.
        (
            {
                "left_ns": 100,
                "sent_ns": 100,
                "departed_ns": 150,
                "received_ns": 900,
                "host_own_ns": 70,
            },
            {"transfer_ns": 50},
        ),
    ],
)
def test_time_between_posting_and_departure_is_divided(
    known: dict[str, int], parts: dict[str, int]
) -> None:
    assert concluded(**known) == parts


def test_reused_parts_are_reset() -> None:
    fresh, used = MessageParts(), MessageParts()
    for name in MessageParts.__slots__:
        setattr(used, name, 7)

    used.begin()

    assert all(
        getattr(used, name) == getattr(fresh, name) for name in MessageParts.__slots__
    )


def message(**fields: Any) -> Message:
    made = Message()
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def test_parts_are_fixed_when_the_first_packet_is_sent() -> None:
    sent = message(message_id=7, size_bytes=100, packets=2, posted_ns=5, context="x")

    sent.note_sent(0, 10, 8000, 3)
    sent.note_sent(2, 20, 4000, 4)
    sent.note_sent(1, 30, 2000, 5)

    event = sent.completion(40, 9)
    assert (event.message_id, event.size_bytes, event.packets) == (7, 100, 2)
    assert (event.posted_ns, event.first_sent_ns, event.last_acked_ns) == (5, 10, 40)
    assert (event.retransmitted, event.cnps) == (3, 6)
    assert event.rate_at_start_bps == 8000
    assert event.context == "x"


def test_no_limit_is_no_rate() -> None:
    sent = message()
    sent.note_sent(0, 0, 0, 0)

    assert sent.first_sent_ns == 0
    assert sent.completion(1, 0).rate_at_start_bps is None
