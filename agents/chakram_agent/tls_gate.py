"""The TLS gate of an agent, which checks client certificates in front of gRPC on TCP.

gRPC has a single limit for all connections, so clients without certificates could lock
out controllers.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from chakram.control.connection_relay import CHUNK_BYTES, close, splice
from chakram.control.tls_acceptor import TlsAcceptor, Visit

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Coroutine

log = logging.getLogger(__name__)

HANDSHAKE_TIMEOUT_S = 3.0
"""Longest time from the arrival of a connection to the end of its TLS handshake."""


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

    async def serve(self) -> None:
        """Accept connections until canceled."""
        acceptor = TlsAcceptor(
            self.listener,
            self.context,
            self._forward,
            self._spawn,
            timeout_s=HANDSHAKE_TIMEOUT_S,
        )
        await acceptor.serve()

    def _spawn(self, work: Coroutine[None, None, None], name: str) -> None:
        self.tasks.create_task(work, name=name)

    async def _forward(self, visit: Visit) -> None:
        """Forward the data of a connection whose client has a certificate."""
        visit.trust()
        try:
            there, back = await asyncio.open_unix_connection(
                self.inner, limit=CHUNK_BYTES
            )
        except OSError as error:  # the agent is about to exit
            log.info("cannot pass a connection on error=%s", error)
            await close(visit.streams[1])
            return
        await splice(visit.streams, (there, back))
