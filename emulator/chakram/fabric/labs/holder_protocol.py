"""Asking the holder of a lab: one line of JSON there, one line of JSON back.

The holder alone is inside all namespaces of a rootless lab, so whoever wants to know
something from there asks it, over a Unix socket in the lab's directory that only the
lab's user can reach.
"""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

from chakram.foundation.errors import ChakramError, FabricError, PrivilegeError

SOCKET_NAME = "holder.sock"
"""Name of the socket in the lab's directory."""

_TIMEOUT_S = 10.0
_LONGEST_LINE_BYTES = 1 << 24

_ERRORS: dict[str, type[FabricError | PrivilegeError]] = {
    "PrivilegeError": PrivilegeError,
    "FabricError": FabricError,
}


def encode_error(error: ChakramError) -> str:
    """Return an error as one line of JSON."""
    kind = "PrivilegeError" if isinstance(error, PrivilegeError) else "FabricError"
    return json.dumps(
        {
            "error": {
                "kind": kind,
                "where": error.where,
                "found": error.found,
                "hint": error.hint,
            }
        }
    )


def decode_error(fields: dict[str, Any]) -> FabricError | PrivilegeError | None:
    """Return the error that an answer carries, or None if it carries none."""
    error = fields.get("error")
    if not isinstance(error, dict):
        return None
    kind = _ERRORS.get(str(error.get("kind")), FabricError)
    hint = error.get("hint")
    return kind(
        str(error.get("where")),
        str(error.get("found")),
        None if hint is None else str(hint),
    )


def receive_line(connection: socket.socket) -> bytes:
    """Return one line, or what came before the other side closed.

    Raises:
        FabricError: If the line has no end.
    """
    line = bytearray()
    while not line.endswith(b"\n"):
        part = connection.recv(1 << 16)
        if not part:
            break
        line += part
        if len(line) > _LONGEST_LINE_BYTES:
            raise FabricError("lab holder", "a line of its conversation has no end")
    return bytes(line)


def ask_holder(directory: str | Path, request: str, **more: Any) -> dict[str, Any]:
    """Return the holder's answer to a request; blocks for milliseconds.

    Args:
        directory: The lab's directory (``LabState.directory``).
        request: What is asked, for example ``counters``.
        more: What belongs to it.

    Raises:
        FabricError: If the holder does not answer, or answers with an error.
    """
    path = Path(directory) / SOCKET_NAME
    where = f"lab {path.parent.name}"
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(_TIMEOUT_S)
            connection.connect(str(path))
            connection.sendall(json.dumps({"request": request} | more).encode() + b"\n")
            fields = json.loads(receive_line(connection))
    except (OSError, ValueError) as error:
        raise FabricError(
            where,
            f"its holder does not answer ({error})",
            "see: chakram fabric status",
        ) from error
    if not isinstance(fields, dict):
        raise FabricError(where, "its holder's answer is not a JSON object")
    refused = decode_error(fields)
    if refused is not None:
        raise refused
    return fields
