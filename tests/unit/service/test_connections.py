"""Connections of clients that are slow or many."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from chakram.control.connection_eviction import MOST_WAITING_PER_SOURCE
from chakram.service import connections
from chakram.service.connections import Connection

pytestmark = pytest.mark.asyncio

REQUEST = b"POST /login HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody"


class FakeTransport(asyncio.Transport):
    """A transport of a client with an address."""

    def __init__(self, address: str) -> None:
        super().__init__({"peername": (address, 1)})
        self.is_aborted = self.is_closed = False

    def write(self, data: Any) -> None: ...

    def resume_reading(self) -> None: ...

    def is_closing(self) -> bool:
        return self.is_closed or self.is_aborted

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_aborted = True


Connect = Callable[..., tuple[Connection, FakeTransport]]


class SlowApplication:
    """Answers requests after an event."""

    def __init__(self) -> None:
        self.may_answer = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self.may_answer.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def answer(self) -> None:
        self.may_answer.set()
        await turns()


@pytest.fixture
def app() -> SlowApplication:
    return SlowApplication()


@pytest.fixture
def connect(app: SlowApplication) -> Iterator[Connect]:
    """Return a function that opens a connection."""
    made: list[Connection] = []
    config = uvicorn.Config(app, http=Connection, ws="none")
    state = ServerState()

    def opened(address: str = "192.0.2.1") -> tuple[Connection, FakeTransport]:
        transport = FakeTransport(address)
        connection = Connection(config=config, server_state=state, app_state={})
        connection.connection_made(transport)
        made.append(connection)
        return connection, transport

    yield opened
    for each in made:
        each.connection_lost(None)


async def turns() -> None:
    """Let tasks and timers run that are due."""
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.mark.parametrize("length", [0, 1, 30, len(REQUEST) - 1])
async def test_connection_whose_request_does_not_arrive_in_time_is_closed(
    connect: Connect,
    app: SlowApplication,
    length: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "REQUEST_S", 0.0)
    connection, transport = connect()
    if length:
        connection.data_received(REQUEST[:length])
    await turns()
    assert transport.is_aborted
    await app.answer()


async def test_answer_may_take_longer_than_its_request(
    connect: Connect, app: SlowApplication, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "REQUEST_S", 0.0)
    connection, transport = connect()
    connection.data_received(REQUEST)
    await turns()
    assert not transport.is_aborted
    await app.answer()
    # The next request takes too long.
    assert transport.is_aborted


async def test_rest_of_an_answer_is_sent_on_a_closing_connection(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "REQUEST_S", 0.0)
    _, transport = connect()
    transport.close()
    await turns()
    assert not transport.is_aborted


async def test_too_many_waiting_connections_end_the_oldest_of_their_source(
    connect: Connect, app: SlowApplication
) -> None:
    other = connect("192.0.2.2")
    answered = connect()
    answered[0].data_received(REQUEST)
    many = [connect() for _ in range(MOST_WAITING_PER_SOURCE + 2)]
    ended = [transport.is_aborted for _, transport in (other, answered, *many)]
    assert ended == [False, False, True, True, *[False] * MOST_WAITING_PER_SOURCE]
    await app.answer()
