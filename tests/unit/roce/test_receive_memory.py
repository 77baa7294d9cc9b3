"""Memory regions: access rights, and locations of messages."""

from __future__ import annotations

from typing import Any

import pytest

from chakram.roce.constants import NO_IMMEDIATE, Verb
from chakram.roce.events import MessageReceived, QueuePairFailed, SendCompleted
from chakram.roce.headers import Bth, Packet, Reth
from chakram.roce.opcodes import Opcode
from chakram.roce.receive_memory import MemoryRegion
from tests.virtual_wire import Pair, make_queue_pair

ADDRESS, KEY = 0x7F00_0000_1000, 0xC0FFEE


def pair_with(memory: MemoryRegion, **settings: Any) -> Pair:
    """Return a sender that writes to *memory* from its third byte on."""
    remote = {"remote_address": ADDRESS + 3, "remote_key": KEY}
    sender = make_queue_pair(0x11, 0x12, path_mtu=256, **(remote | settings))
    receiver = make_queue_pair(0x12, 0x11, path_mtu=256, memory=memory)
    return Pair(sender, receiver)


def post(pair: Pair, message_id: int, contents: bytes, offset: int = 0) -> None:
    pair.left.port.post_send(
        0x11, message_id, len(contents), pair.now_ns, 0, contents, offset
    )


def region(size_bytes: int = 4096) -> MemoryRegion:
    return MemoryRegion(size_bytes, address=ADDRESS, key=KEY)


def test_writes_go_to_their_address() -> None:
    memory = region()
    pair = pair_with(memory)
    post(pair, NO_IMMEDIATE, b"ab" * 400, 1000)
    post(pair, 7, b"xyz")
    pair.run()

    assert memory.buffer[1003:1803] == b"ab" * 400
    assert memory.buffer[:6] == b"\0\0\0xyz"
    assert bytes(memory.buffer).strip(b"\0").endswith(b"ab")
    (event,) = pair.right.events_of(0x12)
    assert isinstance(event, MessageReceived)
    assert (event.message_id, event.size_bytes) == (7, 803)


def test_sends_fill_the_posted_receives_in_order() -> None:
    memory = region()
    pair = pair_with(memory, verb=Verb.SEND)
    memory.post_receive(2000, 600)
    memory.post_receive(0, 2)
    post(pair, 1, bytes(range(256)) * 2)
    post(pair, NO_IMMEDIATE, b"hi")
    pair.run()

    assert memory.receives() == 0
    assert memory.buffer[2000:2512] == bytes(range(256)) * 2
    assert memory.buffer[:2] == b"hi"
    ids = [event.message_id for event in pair.right.events_of(0x12)]  # type: ignore[union-attr] # all are of one kind
    assert ids == [1, None]


def test_a_send_waits_until_a_receive_is_posted() -> None:
    memory = region()
    pair = pair_with(memory, verb=Verb.SEND)
    post(pair, 1, b"late" * 100)
    while pair.left.port.queue_pair(0x11).statistics().receiver_not_ready < 3:
        assert pair.step()
    assert pair.right.events == []
    memory.post_receive(0, 400)
    pair.run()

    assert memory.buffer[:400] == b"late" * 100
    assert isinstance(pair.left.events_of(0x11)[0], SendCompleted)


@pytest.mark.parametrize(
    ("settings", "offset", "size", "reason"),
    [
        ({"remote_key": KEY + 1}, 0, 10, "refused access"),
        ({}, 4096 - 3, 1, "refused access"),
        ({}, 4000, 94, "refused access"),
        ({"remote_address": ADDRESS - 1}, 0, 10, "refused access"),
        ({"verb": Verb.SEND}, 0, 501, "invalid request"),
        ({"verb": Verb.SEND}, 0, 756, "invalid request"),
    ],
)
def test_access_without_rights_is_refused(
    settings: dict[str, Any], offset: int, size: int, reason: str
) -> None:
    memory = region()
    memory.post_receive(0, 500)
    pair = pair_with(memory, **settings)
    post(pair, 1, b"x" * size, offset)
    pair.run()

    for side, qpn in ((pair.left, 0x11), (pair.right, 0x12)):
        (event,) = side.events_of(qpn)
        assert isinstance(event, QueuePairFailed)
        assert reason in event.reason or side is pair.right
    assert not any(memory.buffer[500:])


@pytest.mark.parametrize("key", [KEY, KEY + 1])
def test_empty_write_needs_no_rights(key: int) -> None:
    pair = pair_with(region(), remote_key=key, remote_address=0)
    post(pair, 5, b"")
    pair.run()

    (event,) = pair.right.events_of(0x12)
    assert isinstance(event, MessageReceived)
    assert event.size_bytes == 0


def test_duplicates_and_late_packets_write_nothing() -> None:
    memory = region()
    receiver = make_queue_pair(0x12, 0x11, path_mtu=256, memory=memory)

    def write(psn: int, contents: bytes) -> None:
        reth = Reth(virtual_address=ADDRESS, remote_key=KEY, dma_length_bytes=4)
        bth = Bth(opcode=Opcode.WRITE_ONLY, destination_qpn=0x12, psn=psn)
        receiver.receive_packet(Packet(bth=bth, reth=reth, payload=contents), 0)

    write(0, b"once")
    write(0, b"dupl")
    write(2, b"late")

    assert memory.buffer[:4] == b"once"
    assert receiver.statistics().duplicates == 1
    assert receiver.statistics().out_of_sequence == 1


def test_a_message_inside_another_writes_nothing() -> None:
    memory = region()
    receiver = make_queue_pair(0x12, 0x11, path_mtu=256, memory=memory)
    reth = Reth(virtual_address=ADDRESS, remote_key=KEY, dma_length_bytes=512)
    for psn, letter in enumerate(b"ab"):
        bth = Bth(opcode=Opcode.WRITE_FIRST, destination_qpn=0x12, psn=psn)
        packet = Packet(bth=bth, reth=reth, payload=bytes([letter]) * 256)
        receiver.receive_packet(packet, 0)

    assert bytes(memory.buffer[:257]) == b"a" * 256 + b"\0"
    assert "begins inside another" in (receiver.statistics().failure or "")


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"size_bytes": -1}, "-1 bytes"),
        ({"size_bytes": 2, "address": 2**64 - 1}, "are not a valid memory region"),
        ({"size_bytes": 2, "key": 2**32}, "32 bits"),
    ],
)
def test_impossible_memory_is_refused(values: dict[str, int], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        MemoryRegion(**values)


@pytest.mark.parametrize(("offset", "size"), [(-1, 1), (0, 4097), (4090, 7), (5, -1)])
def test_a_receive_outside_is_refused(offset: int, size: int) -> None:
    with pytest.raises(ValueError, match="exceed the buffer"):
        region().post_receive(offset, size)


def test_contents_of_another_size_are_refused() -> None:
    with pytest.raises(ValueError, match="contents of 3"):
        make_queue_pair().post_send(1, 4, 0, b"abc")
