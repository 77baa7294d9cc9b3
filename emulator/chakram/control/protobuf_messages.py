"""The messages of the protocol and their decoding.

This is the only module that imports the generated messages. Other modules import them
from here, so a change of the generator affects only this module.
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

PROTOCOL_VERSION = 8
"""Protocol version, which must be equal on both sides. Each incompatible change
increments it."""

MAX_MESSAGE_BYTES = 64 * 2**20
"""Maximum message length. Both sides refuse longer messages without parsing them."""

_M = TypeVar("_M", bound="Message")


def decode_message(kind: type[_M], data: bytes, *, where: str) -> _M:
    """Decode a message of type *kind*.

    Raises:
        PeerError: If *data* is longer than ``MAX_MESSAGE_BYTES`` or not a valid
            message. *where* is the error's location.
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
            f"{len(data)} bytes are not a valid {kind.DESCRIPTOR.name}",
            "install the same version of chakram on both sides",
        ) from error
    return message
