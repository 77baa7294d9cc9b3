"""Posted and unacknowledged messages, with packets of 1,000 bytes."""

from __future__ import annotations

import pytest

from chakram.roce.burst import Burst
from chakram.roce.constants import MAX_MESSAGE_BYTES, NO_IMMEDIATE
from chakram.roce.message import Message
from chakram.roce.send_queue import SendQueue


def post(
    queue: SendQueue,
    message_id: int,
    size_bytes: int,
    *,
    order: int = 0,
    contents: bytes | None = None,
    remote_offset: int = 0,
) -> Message:
    queue.check(message_id, size_bytes, contents)
    return queue.append(message_id, size_bytes, 5, order, contents, remote_offset)


def queue_of(*sizes: int) -> SendQueue:
    queue = SendQueue(1000)
    for message_id, size_bytes in enumerate(sizes):
        post(queue, message_id, size_bytes)
    return queue


def sending(queue: SendQueue) -> int | None:
    return None if queue.sending is None else queue.sending.message_id


@pytest.mark.parametrize(
    ("message_id", "size_bytes", "contents", "problem"),
    [
        (NO_IMMEDIATE, 0, None, None),
        (2**32 - 1, MAX_MESSAGE_BYTES, None, None),
        (0, 3, b"abc", None),
        (0, 0, b"", None),
        (0, -1, None, "message 0: -1 bytes are not in"),
        (0, MAX_MESSAGE_BYTES + 1, None, "bytes are not in"),
        (NO_IMMEDIATE - 1, 0, None, "does not fit in 32 bits"),
        (2**32, 0, None, "does not fit in 32 bits"),
        (0, 3, b"ab", "3 bytes do not match contents of 2"),
        (0, 0, b"a", "0 bytes do not match contents of 1"),
    ],
)
def test_only_messages_are_posted(
    message_id: int, size_bytes: int, contents: bytes | None, problem: str | None
) -> None:
    queue = SendQueue(1000)

    if problem is None:
        queue.check(message_id, size_bytes, contents)
    else:
        with pytest.raises(ValueError, match=problem):
            queue.check(message_id, size_bytes, contents)


def test_messages_have_consecutive_psns_and_offsets() -> None:
    queue = SendQueue(1000)
    found = [post(queue, at, size) for at, size in enumerate((0, 1000, 1001, 2500, 1))]

    assert [each.packets for each in found] == [1, 1, 2, 3, 1]
    assert [each.first_sequence for each in found] == [0, 1, 2, 4, 7]
    assert [each.first_byte for each in found] == [0, 0, 1000, 2001, 4501]
    assert {each.posted_ns for each in found} == {5}
    assert queue.count == 5
    assert sending(queue) == 0


def test_message_posted_on_an_idle_queue_is_sent_next() -> None:
    queue = queue_of(10, 10)
    queue.advance(1)
    assert sending(queue) == 1
    queue.advance(1)
    assert sending(queue) is None

    post(queue, 7, 10)

    assert sending(queue) == 7
    post(queue, 8, 10)
    assert sending(queue) == 7
    assert queue.following(1).message_id == 8


def test_messages_complete_in_order_when_fully_acknowledged() -> None:
    queue = queue_of(2500, 10, 10)

    def done(acknowledged: int) -> int | None:
        message = queue.take_done(acknowledged)
        return None if message is None else message.message_id

    assert done(2) is None
    assert done(3) == 0
    assert done(3) is None
    assert (done(5), done(5), done(5)) == (1, 2, None)
    assert queue.count == 0
    # What comes then goes on where these have ended.
    assert post(queue, 9, 10).first_sequence == 5


def test_completions_do_not_change_the_next_packet() -> None:
    queue = queue_of(10, 10, 10, 10)
    queue.advance(2)

    queue.take_done(1)

    assert sending(queue) == 2
    queue.go_back()
    assert sending(queue) == 1
    queue.advance(2)
    assert sending(queue) == 3


def test_queue_handles_many_messages() -> None:
    queue = SendQueue(1000)
    for number in range(500):
        post(queue, number, 1)
        post(queue, 1000 + number, 1)
        queue.advance(1)
        done = queue.take_done(number + 1)
        assert done is not None
        first = (number % 2) * 1000 + number // 2
        assert done.message_id == first
    left = [queue.following(place).message_id for place in range(500)]
    assert left == [(n % 2) * 1000 + n // 2 for n in range(500, 1000)]


def test_bytes_before_a_packet_of_the_first_message_are_counted() -> None:
    queue = queue_of(1500, 2500)
    queue.take_done(2)

    assert [queue.bytes_before(sequence) for sequence in (1, 2, 3, 4)] == [
        *(1500, 1500, 2500, 3500)
    ]
    queue.take_done(5)
    assert queue.bytes_before(5) == 4000


@pytest.mark.parametrize(
    ("sequence", "message_id", "payload"),
    [
        (0, 0, 0),
        (1, 0, 1000),
        (2, 1, 1500),
        (3, 2, 1500),
        (5, 2, 3500),
        (6, None, 4000),
    ],
)
def test_sending_can_resume_at_any_packet(
    sequence: int, message_id: int | None, payload: int
) -> None:
    queue = queue_of(1500, 0, 2500)

    assert queue.leap(sequence) == payload
    assert sending(queue) == message_id


def test_cleared_queue_continues_with_the_next_psn() -> None:
    queue = queue_of(10, 2500)
    queue.advance(1)

    queue.clear()

    assert (queue.count, sending(queue)) == (0, None)
    message = post(queue, 9, 10)
    assert (message.first_sequence, sending(queue)) == (4, 9)


def test_similar_single_packet_messages_share_a_send() -> None:
    queue = queue_of(10, 10, 10, 20, 10)

    assert queue.alike(9) == 3
    assert queue.alike(2) == 2
    queue.advance(2)
    assert queue.alike(9) == 1
    queue.advance(2)
    assert queue.alike(9) == 1  # there are no more


@pytest.mark.parametrize(
    "other",
    [
        {"size_bytes": 9},
        {"order": 1},
        {"contents": bytes(10)},
        {"remote_offset": 8},
        {"message_id": NO_IMMEDIATE},
    ],
)
def test_messages_that_differ_do_not_share_a_send(other: dict[str, object]) -> None:
    queue = queue_of(10)
    given: dict[str, object] = {"message_id": 1, "size_bytes": 10} | other
    post(queue, **given)  # type: ignore[arg-type] # by name

    assert queue.alike(9) == 1


def test_messages_share_a_send_as_far_as_it_holds_them() -> None:
    # A send has at most 65,507 bytes, and a packet up to 39 beside its payload.
    queue = SendQueue(10_000)
    for message_id in range(20):
        post(queue, message_id, 8150)
    assert queue.alike(20) == 65_507 // (8150 + 39) == 7


def shared(queue: SendQueue, most: int) -> tuple[int, list[int] | None]:
    burst = Burst()
    burst.message_ids = [99]
    count = queue.share(burst, most)
    if burst.message_ids is not None:
        assert [each.message_id for each in burst.parts_of] == burst.message_ids
    return count, burst.message_ids


def test_a_burst_names_the_messages_that_share_it() -> None:
    assert shared(queue_of(10, 10, 10), 9) == (3, [0, 1, 2])
    assert shared(queue_of(10, 10, 10), 2) == (2, [0, 1])
    assert shared(queue_of(10, 10), 1) == (1, None)
    assert shared(queue_of(10), 9) == (1, None)
    assert shared(queue_of(10, 20), 9) == (1, None)
    last = queue_of(10, 10)
    last.advance(1)
    assert shared(last, 9) == (1, None)


def test_message_with_contents_shares_no_burst() -> None:
    queue = SendQueue(1000)
    post(queue, 0, 10, contents=bytes(10))
    post(queue, 1, 10)

    assert shared(queue, 9) == (1, None)
