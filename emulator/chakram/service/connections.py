"""Connections to a service, and limits on connections that send no request."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol

from chakram.control.connection_eviction import WaitingRoom, source_of

if TYPE_CHECKING:
    import asyncio

REQUEST_S = 30.0
"""Time limit for the arrival of a request, and for a TLS handshake."""
_SHUTDOWN_S = 3.0
"""Time limit for a client to end a TLS session."""


def limit_tls(loop: asyncio.AbstractEventLoop) -> None:
    """Set time limits for clients of TLS servers that an event loop creates later.

    Args:
        loop: Event loop of the service.
    """
    # Uvicorn creates its server with this method, and passes no limits. Only this event
    # loop, which belongs to the service, gets the limits.
    loop.create_server = partial(  # type: ignore[method-assign]
        loop.create_server,
        ssl_handshake_timeout=REQUEST_S,
        ssl_shutdown_timeout=_SHUTDOWN_S,
    )


class Connection(H11Protocol):
    """A connection that waits only a limited time for a request from its client.

    Uvicorn waits without a limit. With ``limit_concurrency`` such connections, it
    refuses all requests. Therefore, this class limits the time. If too many connections
    wait, it closes the oldest one.
    """

    _room: ClassVar[WaitingRoom[Connection]] = WaitingRoom(lambda _: True)
    _timer: asyncio.TimerHandle | None = None

    # Uvicorn narrows the type of the transport, too.
    def connection_made(  # type: ignore[override]
        self, transport: asyncio.Transport
    ) -> None:
        """Wait for the first request."""
        super().connection_made(transport)
        self._limit()

    def data_received(self, data: bytes) -> None:
        """Start to answer, or wait for the rest of the request."""
        super().data_received(data)
        self._limit()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._limit()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting, because the connection is closed."""
        self._leave()
        super().connection_lost(exc)

    def _limit(self) -> None:
        """Limit the time and the number of waiting connections."""
        cycle: Any = self.cycle  # None before the first request
        if cycle is not None and not (cycle.more_body or cycle.response_complete):
            self._leave()
        elif self._timer is None:
            self._timer = self.loop.call_later(REQUEST_S, self._expire)
            leaving = self._room.arrive(self, self._source)
            if leaving is not None:
                leaving.transport.abort()

    def _leave(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._room.leave(self, source=self._source, is_trusted=False)

    def _expire(self) -> None:
        # A connection that is closing may still send the rest of an answer.
        if not self.transport.is_closing():
            self.transport.abort()

    @property
    def _source(self) -> str:
        return source_of(self.client[0]) if self.client else ""
