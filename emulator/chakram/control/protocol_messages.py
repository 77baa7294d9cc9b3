"""The messages of the protocol, under names of our own.

This is the only module that touches the generated messages: all others take them from
here, so that a change of the generator stays here.
"""

from __future__ import annotations

from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from chakram.control import chakram_pb2 as pb
from chakram.control import plan_file_pb2 as plan_pb
from chakram.foundation.errors import PeerError

__all__ = [
    "MAX_MESSAGE_BYTES",
    "PROTOCOL_VERSION",
    "decode_message",
    "pb",
    "plan_pb",
]

PROTOCOL_VERSION = 6
"""Controller and agents must agree on it; it grows with incompatible changes."""

MAX_MESSAGE_BYTES = 64 * 2**20
"""The longest message; longer ones are refused unread, on both sides."""

_M = TypeVar("_M", bound="Message")


def decode_message(kind: type[_M], data: bytes, *, where: str) -> _M:
    """Return the message of type *kind* that *data* holds.

    Raises:
        PeerError: At *where*, if it is longer than ``MAX_MESSAGE_BYTES`` or no such
            message.
    """
    if len(data) > MAX_MESSAGE_BYTES:
        raise PeerError(
            where,
            f"a message of {len(data)} bytes is longer than {MAX_MESSAGE_BYTES}",
        )
    message = kind()
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise PeerError(
            where,
            f"{len(data)} bytes are no {kind.DESCRIPTOR.name}",
            "do both sides run the same version of chakram?",
        ) from error
    return message
