"""Accept TLS connections, and limit connections of unknown clients."""

from __future__ import annotations

import asyncio
import logging
import socket
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING

from chakram.control.connection_eviction import (
    MOST_WAITING,
    MOST_WAITING_PER_SOURCE,
    WaitingRoom,
    source_of,
)
from chakram.control.connection_relay import CHUNK_BYTES, Streams

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Coroutine

log = logging.getLogger(__name__)

_LEAST_TIMEOUT_S = 0.1
_SHUTDOWN_TIMEOUT_S = 1.0
"""Longest time to wait for the end of a connection whose client does not answer."""
_ACCEPT_AGAIN_S = 0.05


@dataclass(slots=True, eq=False)
class Visit:
    """A connection whose TLS handshake is complete.

    Attributes:
        streams: Streams of the connection.
        address: Address and port of the client.
        trust: Function to call as soon as the client is trusted. Until then, the
            acceptor may close the connection to admit others.
    """

    streams: Streams
    address: tuple[str, int]
    trust: Callable[[], None]


@dataclass(slots=True, eq=False)
class TlsAcceptor:
    """Acceptor of TLS connections on a listening socket.

    Attributes:
        listener: Nonblocking socket that clients connect to.
        context: TLS context.
        handle: Function that handles a connection until its end, and closes it.
        spawn: Function that runs a coroutine in a task with the given name.
        timeout_s: Longest time from the arrival of a connection to the end of its
            handshake.
        most: Limit on connections of clients that are not trusted yet.
        most_per_source: Limit on such connections per source.
    """

    listener: socket.socket
    context: ssl.SSLContext
    handle: Callable[[Visit], Coroutine[None, None, None]]
    spawn: Callable[[Coroutine[None, None, None], str], object]
    _: KW_ONLY
    timeout_s: float
    most: int = MOST_WAITING
    most_per_source: int = MOST_WAITING_PER_SOURCE
    _speaking: set[socket.socket] = field(default_factory=set, init=False)
    _room: WaitingRoom[socket.socket] = field(init=False)

    def __post_init__(self) -> None:
        self._room = WaitingRoom(
            self._has_sent, most=self.most, most_per_source=self.most_per_source
        )

    async def serve(self) -> None:
        """Accept connections until canceled."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                try:
                    connection, address = await loop.sock_accept(self.listener)
                except OSError as error:
                    log.warning("cannot accept a connection error=%s", error)
                    await asyncio.sleep(_ACCEPT_AGAIN_S)
                    continue
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                source = source_of(address[0])
                leaving = self._room.arrive(connection, source)
                if leaving is not None:
                    _hang_up(leaving)
                self.spawn(
                    self._admit(connection, address[:2], source),
                    f"connection-{source}",
                )
                # ``sock_accept`` does not yield while more connections are queued, so
                # yield here.
                await asyncio.sleep(0)
        finally:
            for waiting in self._room.waiting():
                _hang_up(waiting)

    def _has_sent(self, connection: socket.socket) -> bool:
        if connection in self._speaking:
            return True
        try:
            return bool(connection.recv(1, socket.MSG_PEEK))
        except OSError:
            return False

    async def _admit(
        self, connection: socket.socket, address: tuple[str, int], source: str
    ) -> None:
        """Complete the handshake of a connection, and handle the connection."""

        def trust() -> None:
            self._room.leave(connection, source=source, is_trusted=True)

        try:
            streams = await self._streams(connection, source)
            if streams is not None:
                await self.handle(Visit(streams, address, trust))
        finally:
            self._speaking.discard(connection)
            self._room.leave(connection, source=source, is_trusted=False)

    async def _streams(self, connection: socket.socket, source: str) -> Streams | None:
        """Return the streams of a connection, or None if its handshake fails."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=CHUNK_BYTES)
        protocol = asyncio.StreamReaderProtocol(reader)
        ends_s = loop.time() + self.timeout_s
        transport = None
        try:
            # A client that sends nothing takes a descriptor, but no TLS buffers.
            async with asyncio.timeout_at(ends_s):
                await _wait_readable(connection)
            if not self._room.is_waiting(connection):
                return None
            self._speaking.add(connection)
            transport, _ = await loop.connect_accepted_socket(
                lambda: protocol,
                connection,
                ssl=self.context,
                ssl_handshake_timeout=max(ends_s - loop.time(), _LEAST_TIMEOUT_S),
                ssl_shutdown_timeout=_SHUTDOWN_TIMEOUT_S,
            )
        except OSError as error:
            log.info("handshake failed source=%s error=%s", source, error)
            return None
        finally:
            if transport is None:
                connection.close()
        return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


async def _wait_readable(connection: socket.socket) -> None:
    """Wait until a connection has sent data or has ended."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(connection, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(connection)


def _hang_up(connection: socket.socket) -> None:
    """Shut down a connection. The connection's task then closes it."""
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError as error:
        log.debug("connection lost error=%s", error)
