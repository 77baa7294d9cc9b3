"""Requests to the holder of a lab: one line of JSON in each direction.

Only the holder is inside all namespaces of a rootless lab, so other processes request
information from it. They use a Unix socket in the lab's directory, which only the lab's
user can access.
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


def raise_error(fields: dict[str, Any]) -> None:
    """Raise the error in an answer, if there is one.

    Raises:
        PrivilegeError: If the answer contains a privilege error.
        FabricError: If the answer contains any other error.
    """
    error = fields.get("error")
    if not isinstance(error, dict):
        return
    kind = _ERRORS.get(str(error.get("kind")), FabricError)
    hint = error.get("hint")
    raise kind(
        str(error.get("where")),
        str(error.get("found")),
        None if hint is None else str(hint),
    )


def receive_line(connection: socket.socket) -> bytes:
    """Return one line, or the bytes received before the peer closed the connection.

    Raises:
        FabricError: If the line is longer than 16 MiB.
    """
    line = bytearray()
    while not line.endswith(b"\n"):
        part = connection.recv(1 << 16)
        if not part:
            break
        line += part
        if len(line) > _LONGEST_LINE_BYTES:
            raise FabricError("lab holder", "a message is too long")
    return bytes(line)


def ask_holder(directory: str | Path, request: str, **more: Any) -> dict[str, Any]:
    """Return the holder's answer to a request. The call blocks for some milliseconds.

    Args:
        directory: The lab's directory (``LabState.directory``).
        request: Type of the request, for example ``counters``.
        more: Further fields of the request.

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
    raise_error(fields)
    return fields
