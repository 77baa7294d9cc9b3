"""Messages on an agent's connection, each preceded by its length in four bytes."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from google.protobuf.message import Message

from chakram.control.protobuf_messages import decode_message
from chakram.foundation.errors import PeerError

MAX_FRAME_BYTES = 1 << 16

_M = TypeVar("_M", bound=Message)


async def read_frame(
    reader: asyncio.StreamReader, kind: type[_M], *, where: str
) -> _M | None:
    """Return the next message, or None if the connection has ended.

    Raises:
        PeerError: If the message is too long, incomplete, or not valid.
        OSError: If the connection is lost.
    """
    length = None
    try:
        length = int.from_bytes(await reader.readexactly(4), "big")
        if length > MAX_FRAME_BYTES:
            raise PeerError(where, f"a message of {length} bytes is too long")
        data = await reader.readexactly(length)
    except asyncio.IncompleteReadError as error:
        if error.partial or length is not None:
            raise PeerError(where, "the connection ended in a message") from None
        return None
    return decode_message(kind, data, where=where)


def write_frame(writer: asyncio.StreamWriter, message: Message) -> None:
    """Send a message."""
    data = message.SerializeToString()
    writer.write(len(data).to_bytes(4, "big") + data)
