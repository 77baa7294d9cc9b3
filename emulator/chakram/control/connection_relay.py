"""Forwarding of data between two connections."""

from __future__ import annotations

import asyncio
import logging
import socket

CHUNK_BYTES = 1 << 18

_IDLE_S, _INTERVAL_S, _PROBES = 10, 5, 3
_SILENCE_S = _IDLE_S + _PROBES * _INTERVAL_S

log = logging.getLogger(__name__)

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def splice(one: Streams, other: Streams) -> None:
    """Forward data in both directions until both connections are closed."""
    await asyncio.gather(_forward(one[0], other[1]), _forward(other[0], one[1]))


async def _forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Forward data until either side closes its connection."""
    try:
        while data := await reader.read(CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
    except OSError as error:
        log.debug("connection lost error=%s", error)
    finally:
        await close(writer)


async def close(writer: asyncio.StreamWriter) -> None:
    """Close a connection."""
    writer.close()
    try:
        await writer.wait_closed()
    except OSError as error:
        log.debug("connection lost error=%s", error)


def keep_alive(writer: asyncio.StreamWriter) -> None:
    """Have the kernel end a connection 25 s after its remote host has disappeared."""
    connection = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        (socket.TCP_KEEPIDLE, _IDLE_S),
        (socket.TCP_KEEPINTVL, _INTERVAL_S),
        (socket.TCP_KEEPCNT, _PROBES),
        # The kernel sends no probes while data wait for an acknowledgment.
        (socket.TCP_USER_TIMEOUT, _SILENCE_S * 1000),
    ):
        connection.setsockopt(socket.IPPROTO_TCP, option, value)
