"""Errors on their way through a call: sent by the agent, raised at the controller.

A refusal travels as a gRPC status for anybody, and beside it, in the trailing metadata,
as an ``ErrorDetail`` that our own client turns into an error of the same class.
"""

from __future__ import annotations

from chakram.control.protocol_messages import decode_message, pb
from chakram.foundation import errors
from chakram.foundation.errors import AgentError, ChakramError, PeerError

METADATA_KEY = "chakram-error-bin"
"""Keys that end in -bin carry bytes."""

_MAX_TEXT = 2000
"""Per part: HTTP/2 peers refuse headers beyond 8 KiB."""

_KINDS = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, ChakramError)
}


def error_message(error: ChakramError) -> pb.ErrorDetail:
    """Return the message of an error."""
    return pb.ErrorDetail(
        kind=type(error).__name__,
        where=error.where[:_MAX_TEXT],
        found=error.found[:_MAX_TEXT],
        hint=None if error.hint is None else error.hint[:_MAX_TEXT],
    )


def encode_error(error: ChakramError) -> bytes:
    """Return the bytes that stand for an error in the metadata."""
    return error_message(error).SerializeToString()


def rebuild(detail: pb.ErrorDetail, *, where: str | None = None) -> ChakramError:
    """Return the error of a message; *where* tells whose place it speaks of.

    A class that this version does not know becomes an ``AgentError``.
    """
    kind = _KINDS.get(detail.kind, AgentError)
    place = f"{where}: {detail.where}" if where and detail.where else detail.where
    return kind(
        place or where or "agent",
        detail.found,
        detail.hint if detail.HasField("hint") else None,
    )


def decode_error(data: bytes, *, where: str) -> ChakramError:
    """Return the error that *data* stands for, said by *where*.

    Bytes that are none give a ``PeerError`` that says so: there is an error anyway.
    """
    try:
        return rebuild(decode_message(pb.ErrorDetail, data, where=where), where=where)
    except PeerError as error:
        return error
