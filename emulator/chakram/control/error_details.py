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

_MAX_FIELD_BYTES = 1500
"""Longest text of each field. HTTP/2 peers refuse headers beyond 8 KiB, and gRPC may
encode a header of bytes in base64, which makes it a third longer."""

_KINDS = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, ChakramError)
}


def error_message(error: ChakramError) -> pb.ErrorDetail:
    """Convert an error to a message."""
    return pb.ErrorDetail(
        kind=type(error).__name__,
        where=clipped(error.where, _MAX_FIELD_BYTES),
        found=clipped(error.found, _MAX_FIELD_BYTES),
        hint=None if error.hint is None else clipped(error.hint, _MAX_FIELD_BYTES),
    )


def clipped(text: str, most_bytes: int) -> str:
    """Return the beginning of a text, cut to a maximum number of bytes in UTF-8.

    Characters that UTF-8 cannot represent, as in some file names, are replaced.
    """
    return text.encode("utf-8", "replace")[:most_bytes].decode("utf-8", "ignore")


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
