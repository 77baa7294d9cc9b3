"""The TLS gate of an agent, which checks client certificates in front of gRPC on TCP.

A client without a certificate takes a place among the waiting connections until the
agent refuses the client. gRPC has a single limit for all connections, so clients
without certificates could lock out controllers. The gate limits waiting connections per
source. It never drops a connection with a certificate to admit another connection.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter
from dataclasses import dataclass, field
from ipaddress import IPv6Address
from typing import TYPE_CHECKING, Generic, TypeVar

from chakram.control.call_home.splice import CHUNK_BYTES, close, splice
from chakram.foundation.ip_addresses import is_ipv6

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Hashable

log = logging.getLogger(__name__)

HANDSHAKE_TIMEOUT_S = 3.0
"""Longest time from the arrival of a connection to its certificate."""
_LEAST_TIMEOUT_S = 0.1
MOST_WAITING = 128
"""Limit on connections that have not yet presented a certificate."""
MOST_WAITING_PER_SOURCE = 64
"""Limit on these connections per source.

A controller waits for only a few milliseconds. Even if its address opens 200 other
connections per second, the gate does not drop it for 320 ms.
"""
MOST_KNOWN = 256
"""Limit on sources to remember because they have presented a certificate."""
_SHUTDOWN_TIMEOUT_S = 1.0
_ACCEPT_AGAIN_S = 0.05

_C = TypeVar("_C", bound="Hashable")


class WaitingRoom(Generic[_C]):
    """Connections that have not yet presented a certificate.

    If there are too many, the room selects a connection to drop. If the source of a new
    connection exceeds its limit, that source loses a connection. If only the total
    limit is exceeded, the source with the most connections loses a connection. The room
    considers sources that have presented a certificate before last. It drops the
    source's oldest connection that has sent nothing, or else the oldest connection.

    Args:
        has_sent: Function that returns whether a connection has sent data. Controllers
            send immediately.
    """

    def __init__(self, has_sent: Callable[[_C], bool]) -> None:
        self._has_sent = has_sent
        self._sources: dict[_C, str] = {}
        self._known: dict[str, None] = {}

    def arrive(self, connection: _C, source: str) -> _C | None:
        """Admit a connection, and return the connection to drop for it, or None."""
        self._sources[connection] = source
        counts = Counter(self._sources.values())
        if counts[source] <= MOST_WAITING_PER_SOURCE:
            if len(self._sources) <= MOST_WAITING:
                return None
            strangers = [each for each in counts if each not in self._known]
            source = max(strangers or counts, key=lambda each: counts[each])
        own = [each for each, of in self._sources.items() if of == source]
        leaving = next((each for each in own if not self._has_sent(each)), own[0])
        del self._sources[leaving]
        return leaving

    def leave(self, connection: _C, *, source: str, has_certificate: bool) -> None:
        """Remove a connection that no longer waits."""
        self._sources.pop(connection, None)
        if has_certificate:
            self._known.pop(source, None)
            self._known[source] = None
            if len(self._known) > MOST_KNOWN:
                del self._known[next(iter(self._known))]

    def is_waiting(self, connection: _C) -> bool:
        """Return whether a connection is still waiting."""
        return connection in self._sources

    def waiting(self) -> tuple[_C, ...]:
        """Return the waiting connections, oldest first."""
        return tuple(self._sources)


def source_of(address: str) -> str:
    """Return the source of an address, which is the IPv4 address or the IPv6 /64."""
    if not is_ipv6(address):
        return address
    parsed = IPv6Address(address.partition("%")[0])
    return str(parsed.ipv4_mapped or IPv6Address(int(parsed) >> 64 << 64))


@dataclass(slots=True)
class Gate:
    """Gate that forwards connections with a valid certificate to gRPC's Unix socket.

    Attributes:
        listener: Socket that controllers connect to.
        context: TLS context with the agent's certificate and the accepted CA.
        inner: Path of gRPC's socket.
        tasks: Task group for the tasks of connections.
    """

    listener: socket.socket
    context: ssl.SSLContext
    inner: str
    tasks: asyncio.TaskGroup
    _handshaking: set[socket.socket] = field(default_factory=set, init=False)
    _room: WaitingRoom[socket.socket] = field(init=False)

    def __post_init__(self) -> None:
        self._room = WaitingRoom(self._has_sent)

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
                self.tasks.create_task(
                    self._handle(connection, source), name=f"connection-{source}"
                )
                # ``sock_accept`` does not yield while more connections are queued, so
                # yield here.
                await asyncio.sleep(0)
        finally:
            for waiting in self._room.waiting():
                _hang_up(waiting)

    def _has_sent(self, connection: socket.socket) -> bool:
        if connection in self._handshaking:
            return True
        try:
            return bool(connection.recv(1, socket.MSG_PEEK))
        except OSError:
            return False

    async def _handle(self, connection: socket.socket, source: str) -> None:
        """Check the certificate of a connection, then forward the connection's data."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=CHUNK_BYTES)
        protocol = asyncio.StreamReaderProtocol(reader)
        has_certificate = False
        ends_s = loop.time() + HANDSHAKE_TIMEOUT_S
        try:
            # A client that sends nothing takes a descriptor, but no TLS buffers.
            async with asyncio.timeout_at(ends_s):
                await _wait_readable(connection)
            if not self._room.is_waiting(connection):
                return
            self._handshaking.add(connection)
            transport, _ = await loop.connect_accepted_socket(
                lambda: protocol,
                connection,
                ssl=self.context,
                ssl_handshake_timeout=max(ends_s - loop.time(), _LEAST_TIMEOUT_S),
                ssl_shutdown_timeout=_SHUTDOWN_TIMEOUT_S,
            )
            has_certificate = True
        except OSError as error:
            log.info("no certificate source=%s error=%s", source, error)
            return
        finally:
            self._handshaking.discard(connection)
            self._room.leave(connection, source=source, has_certificate=has_certificate)
            if not has_certificate:
                connection.close()
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        try:
            there, back = await asyncio.open_unix_connection(
                self.inner, limit=CHUNK_BYTES
            )
        except OSError as error:  # the agent is about to exit
            log.info("cannot pass a connection on error=%s", error)
            await close(writer)
            return
        await splice((reader, writer), (there, back))


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
