"""Transfer of errors from the agent to the controller.

A refusal is a gRPC status that any client understands. Its trailing metadata contain an
``ErrorDetail``, which Chakram's client converts to an error of the same class.
"""

from __future__ import annotations

from chakram.control.protobuf_messages import decode_message, pb
from chakram.foundation import errors
from chakram.foundation.errors import AgentError, ChakramError, PeerError

METADATA_KEY = "chakram-error-bin"
"""Metadata key of the error; keys that end in -bin carry bytes."""

_MAX_TEXT = 2000
"""Longest text of each part, because HTTP/2 peers refuse headers beyond 8 KiB."""

_KINDS = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, ChakramError)
}


def error_message(error: ChakramError) -> pb.ErrorDetail:
    """Convert an error to a message."""
    return pb.ErrorDetail(
        kind=type(error).__name__,
        where=error.where[:_MAX_TEXT],
        found=error.found[:_MAX_TEXT],
        hint=None if error.hint is None else error.hint[:_MAX_TEXT],
    )


def encode_error(error: ChakramError) -> bytes:
    """Encode an error for the metadata."""
    return error_message(error).SerializeToString()


def rebuild(detail: pb.ErrorDetail, *, where: str | None = None) -> ChakramError:
    """Convert a message to an error, with *where* prefixed to its location.

    If this version lacks the class, the result is an ``AgentError``.
    """
    kind = _KINDS.get(detail.kind, AgentError)
    place = f"{where}: {detail.where}" if where and detail.where else detail.where
    return kind(
        place or where or "agent",
        detail.found,
        detail.hint if detail.HasField("hint") else None,
    )


def decode_error(data: bytes, *, where: str) -> ChakramError:
    """Decode an error that *where* reported.

    If *data* is invalid, return a ``PeerError`` instead of raising it: the call has
    failed in either case.
    """
    try:
        return rebuild(decode_message(pb.ErrorDetail, data, where=where), where=where)
    except PeerError as error:
        return error
