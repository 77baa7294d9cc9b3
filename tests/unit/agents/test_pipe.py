from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator

import pytest

from chakram.control.protobuf_messages import MAX_MESSAGE_BYTES
from chakram.foundation.errors import PeerError, RunFailed
from chakram_agent import pipe as pipe_module
from chakram_agent.pipe import ShardPipe, frame
from chakram_agent.shard_handle import read_frame


@pytest.fixture
def ends() -> Iterator[tuple[ShardPipe, socket.socket]]:
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    pipe = ShardPipe(ours)
    yield pipe, theirs
    pipe.close()
    theirs.close()


def take(sock: socket.socket) -> bytes:
    data = b""
    try:
        while chunk := sock.recv(2**20):
            data += chunk
    except BlockingIOError:
        pass
    return data


def read_all(data: bytes) -> list[bytes | None]:
    async def read() -> list[bytes | None]:
        reader = asyncio.StreamReader()
        reader.feed_data(data)
        reader.feed_eof()
        messages: list[bytes | None] = []
        while (message := await read_frame(reader, where="shard 1")) is not None:
            messages.append(message)
        return messages

    return asyncio.run(read())


def test_messages_arrive_whole_and_in_order(
    ends: tuple[ShardPipe, socket.socket],
) -> None:
    pipe, agent = ends
    for message in (b"one", b"", b"three"):
        pipe.send(message)
    assert read_all(take(agent)) == [b"one", b"", b"three"]


def test_messages_are_put_together_from_pieces(
    ends: tuple[ShardPipe, socket.socket],
) -> None:
    pipe, agent = ends
    data = frame(b"one") + frame(b"two")
    agent.send(data[:2])
    assert pipe.receive() == []
    agent.send(data[2:9])
    assert pipe.receive() == [b"one"]
    agent.send(data[9:])
    assert pipe.receive() == [b"two"]


def test_unread_messages_are_kept(
    ends: tuple[ShardPipe, socket.socket],
) -> None:
    pipe, agent = ends
    messages: list[bytes | None] = [bytes([n]) * 2**18 for n in range(8)]
    for message in messages:
        assert message is not None
        pipe.send(message)
    assert not pipe.flush()
    data = b""
    while pipe.queued_bytes:
        data += take(agent)
        pipe.flush()
    assert pipe.flush()
    assert read_all(data + take(agent)) == messages


def test_dropped_messages_are_counted(
    ends: tuple[ShardPipe, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipe_module, "MAX_QUEUED_BYTES", 2**20)
    pipe, _ = ends

    def send_on() -> None:
        for _ in range(100):
            pipe.send(bytes(2**18))

    with pytest.raises(RunFailed, match=r"did not accept \d+ bytes of records"):
        send_on()
    pipe.send(b"why it ended", last=True)


def test_death_of_the_agent_is_detected(
    ends: tuple[ShardPipe, socket.socket],
) -> None:
    pipe, agent = ends
    agent.close()
    assert pipe.receive() == []
    assert pipe.closed


def test_messages_to_a_dead_agent_are_discarded(
    ends: tuple[ShardPipe, socket.socket],
) -> None:
    pipe, agent = ends
    agent.close()
    pipe.send(b"x")
    assert pipe.closed
    assert pipe.flush()


def test_a_length_beyond_all_bounds_is_refused(
    ends: tuple[ShardPipe, socket.socket],
) -> None:
    pipe, agent = ends
    header = (MAX_MESSAGE_BYTES + 1).to_bytes(4, "little")
    agent.send(header)
    with pytest.raises(PeerError, match="agent: a message of"):
        pipe.receive()
    with pytest.raises(PeerError, match="shard 1: a message of"):
        read_all(header)


def test_truncated_message_is_the_end_of_the_pipe() -> None:
    assert read_all(frame(b"one") + frame(b"two")[:-1]) == [b"one"]
