"""The gate of an agent on TCP: it checks certificates before gRPC gets a connection.

A client that shows no certificate holds a place among the connections that wait for
one, until it is refused.  gRPC has one limit for all connections, so such a client
could shut out controllers.  Here each source has its own limit, and a connection with a
certificate never makes room for others.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter
from dataclasses import dataclass, field
from ipaddress import IPv6Address
from typing import TYPE_CHECKING, Generic, TypeVar

from chakram.foundation.ip_addresses import is_ipv6

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Hashable

log = logging.getLogger(__name__)

HANDSHAKE_TIMEOUT_S = 3.0
MOST_WAITING = 128
"""Connections that have not shown a certificate yet."""
MOST_WAITING_PER_SOURCE = 64
"""A controller needs a place for some milliseconds: at 200 other connections a second
from its own address it has 320 ms."""
MOST_KNOWN = 256
"""Sources with a certificate that are remembered."""
_CHUNK_BYTES = 1 << 18
_SHUTDOWN_TIMEOUT_S = 1.0
_ACCEPT_AGAIN_S = 0.05

_C = TypeVar("_C", bound="Hashable")


class WaitingRoom(Generic[_C]):
    """Connections that wait for their certificate; decides which one makes room. Pure.

    That is one of the source that has most of them: the oldest that has sent nothing,
    else the oldest.  Sources that have shown a certificate before make room last.

    Args:
        has_sent: Tells whether a connection has sent something: controllers do at once.
    """

    def __init__(self, has_sent: Callable[[_C], bool]) -> None:
        self._has_sent = has_sent
        self._sources: dict[_C, str] = {}
        self._known: dict[str, None] = {}

    def arrive(self, connection: _C, source: str) -> _C | None:
        """Admit a connection; return the one that has to leave for it, if any."""
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
        """Note that a connection waits no longer."""
        self._sources.pop(connection, None)
        if has_certificate:
            self._known.pop(source, None)
            self._known[source] = None
            if len(self._known) > MOST_KNOWN:
                del self._known[next(iter(self._known))]

    def is_waiting(self, connection: _C) -> bool:
        """Tell whether a connection still has its place."""
        return connection in self._sources

    def waiting(self) -> tuple[_C, ...]:
        """Return the connections that wait, the oldest first."""
        return tuple(self._sources)


def source_of(address: str) -> str:
    """Return what counts as one source: an IPv4 address, or a /64 of IPv6."""
    if not is_ipv6(address):
        return address
    parsed = IPv6Address(address.partition("%")[0])
    return str(parsed.ipv4_mapped or IPv6Address(int(parsed) >> 64 << 64))


@dataclass(slots=True)
class Gate:
    """Passes connections with a certificate on to gRPC on a Unix socket.

    Attributes:
        listener: Where controllers connect.
        context: Certificates, and whose are accepted.
        inner: Path of gRPC's socket.
        tasks: Owns the tasks of connections.
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
        """Accept connections until this is cancelled."""
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
                # Accepting does not wait while more connections are queued.
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
        """Check the certificate of a connection, then pass on what it sends."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=_CHUNK_BYTES)
        protocol = asyncio.StreamReaderProtocol(reader)
        has_certificate = False
        try:
            # A client that sends nothing costs a descriptor, and no buffers of TLS.
            async with asyncio.timeout(HANDSHAKE_TIMEOUT_S):
                await _wait_readable(connection)
            if not self._room.is_waiting(connection):
                return
            self._handshaking.add(connection)
            transport, _ = await loop.connect_accepted_socket(
                lambda: protocol,
                connection,
                ssl=self.context,
                ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S,
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
                self.inner, limit=_CHUNK_BYTES
            )
        except OSError as error:  # the agent is about to end
            log.info("cannot pass a connection on error=%s", error)
            await _close(writer)
            return
        await asyncio.gather(_pass_on(reader, back), _pass_on(there, writer))


async def _wait_readable(connection: socket.socket) -> None:
    """Wait until a connection has sent something, or has ended."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(connection, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(connection)


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass on what comes until either side closes."""
    try:
        while data := await reader.read(_CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
    except OSError as error:
        log.debug("connection lost error=%s", error)
    finally:
        await _close(writer)


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    try:
        await writer.wait_closed()
    except OSError as error:
        log.debug("connection lost error=%s", error)


def _hang_up(connection: socket.socket) -> None:
    """End a connection; its task sees the end and closes it."""
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError as error:
        log.debug("connection lost error=%s", error)
