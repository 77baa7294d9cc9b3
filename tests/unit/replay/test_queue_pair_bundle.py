"""Several queue pairs used as one."""

from __future__ import annotations

import pytest

from chakram.replay.queue_pair_bundle import Bundle
from chakram.roce.constants import NO_IMMEDIATE
from chakram.roce.events import MessageReceived, SendCompleted

QPNS = (10, 11, 12)


def acknowledged(message_id: int, size: int, **fields: int) -> SendCompleted:
    values = {
        "posted": 5, "first": 6, "acked": 100, "packets": 1, "again": 0,
        "cnps": 0, "wait": 0,
    } | fields  # fmt: skip
    return SendCompleted(
        message_id,
        size,
        values["posted"],
        values["first"],
        values["acked"],
        values["packets"],
        values["again"],
        values["cnps"],
        7,
        values["wait"],
    )


def arrived(message_id: int, size: int, *, first: int, last: int) -> MessageReceived:
    return MessageReceived(message_id, size, 1, 1, first, last)


def test_messages_go_round_robin() -> None:
    bundle = Bundle(QPNS, is_even=False, message_bytes=0)

    posts = [bundle.post(number, 100) for number in range(4)]
    assert posts == [[(10, 0, 100)], [(11, 1, 100)], [(12, 2, 100)], [(10, 3, 100)]]
    event = acknowledged(1, 100)
    assert bundle.acknowledged(11, event) is event
    received = arrived(2, 5, first=1, last=2)
    assert bundle.received(12, received) is received


@pytest.mark.parametrize(
    ("size", "parts"),
    [
        (0, [0, 0, 0]),
        (1, [1, 0, 0]),
        (128, [128, 0, 0]),
        (300, [128, 128, 44]),
        (1_000, [384, 384, 232]),
    ],
)
def test_even_parts_are_whole_units_and_cover_everything(
    size: int, parts: list[int]
) -> None:
    posts = Bundle(QPNS, is_even=True, message_bytes=0).post(9, size)

    assert posts == [(qpn, 9, part) for qpn, part in zip(QPNS, parts, strict=True)]


def test_long_messages_are_posted_in_parts_and_complete_once() -> None:
    bundle = Bundle((10,), is_even=False, message_bytes=256)

    assert bundle.post(4, 600) == [
        (10, NO_IMMEDIATE, 256),
        (10, NO_IMMEDIATE, 256),
        (10, 4, 88),
    ]
    assert bundle.post(5, 256) == [(10, 5, 256)]
    assert bundle.acknowledged(10, acknowledged(NO_IMMEDIATE, 256, wait=3)) is None
    assert bundle.acknowledged(10, acknowledged(NO_IMMEDIATE, 256, again=2)) is None
    whole = bundle.acknowledged(10, acknowledged(4, 88, acked=200, wait=4, cnps=1))
    assert whole is not None
    assert (whole.message_id, whole.size_bytes, whole.packets) == (4, 600, 3)
    assert (whole.retransmitted, whole.cnps, whole.generator_wait_ns) == (2, 1, 7)
    assert (whole.posted_ns, whole.first_sent_ns, whole.last_acked_ns) == (5, 6, 200)
    assert whole.rate_at_start_bps == 7


def test_a_message_is_done_when_all_its_parts_are() -> None:
    bundle = Bundle(QPNS, is_even=True, message_bytes=0)
    bundle.post(4, 300)
    bundle.post(5, 300)

    assert bundle.acknowledged(11, acknowledged(4, 128, wait=9)) is None
    assert bundle.acknowledged(11, acknowledged(5, 128)) is None
    assert bundle.acknowledged(10, acknowledged(4, 128, first=2, wait=4)) is None
    whole = bundle.acknowledged(12, acknowledged(4, 44, acked=90))
    assert whole is not None
    assert (whole.message_id, whole.size_bytes) == (4, 300)
    # Parts on several queue pairs wait at the same time.
    assert (whole.first_sent_ns, whole.last_acked_ns) == (2, 100)
    assert whole.generator_wait_ns == 9


def test_message_arrives_with_its_last_part() -> None:
    bundle = Bundle(QPNS, is_even=True, message_bytes=0)

    # One queue pair is two messages ahead of another.
    assert bundle.received(10, arrived(4, 128, first=1, last=2)) is None
    assert bundle.received(10, arrived(5, 128, first=3, last=4)) is None
    assert bundle.received(11, arrived(4, 128, first=5, last=6)) is None
    assert bundle.received(11, arrived(5, 128, first=7, last=8)) is None
    first = bundle.received(12, arrived(4, 44, first=9, last=10))
    assert first is not None
    assert (first.message_id, first.size_bytes, first.ce) == (4, 300, 3)
    assert (first.first_received_ns, first.received_ns) == (1, 10)
    second = bundle.received(12, arrived(5, 44, first=11, last=12))
    assert second is not None
    assert (second.message_id, second.first_received_ns) == (5, 3)
