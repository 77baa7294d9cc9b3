"""Transfer of errors from the agent to the controller.

When an agent refuses a call, it returns a gRPC status that any client understands. The
trailing metadata of the status contain an ``ErrorDetail``. Chakram's client converts it
to an error of the same class.
"""

from __future__ import annotations

from chakram.control.protobuf_messages import decode_message, pb
from chakram.foundation import errors
from chakram.foundation.errors import AgentError, ChakramError, PeerError

METADATA_KEY = "chakram-error-bin"
"""Metadata key of the error. In gRPC, keys that end in ``-bin`` have byte values."""

_MAX_TEXT = 2000
"""Longest text of each field, because HTTP/2 peers refuse headers beyond 8 KiB."""

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
    """Encode an error as the bytes for the metadata of a call."""
    return error_message(error).SerializeToString()


def rebuild(detail: pb.ErrorDetail, *, where: str | None = None) -> ChakramError:
    """Convert a message to an error, with *where* prefixed to the error's location.

    If this version lacks the error's class, the result is an ``AgentError``.
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

    If *data* is invalid, return a ``PeerError`` instead. The function does not raise
    errors, because the caller raises the result in any case.
    """
    try:
        return rebuild(decode_message(pb.ErrorDetail, data, where=where), where=where)
    except PeerError as error:
        return error
