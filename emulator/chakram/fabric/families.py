"""Which address families this kernel has."""

from __future__ import annotations

import socket

from chakram.errors import FabricError


def require_ipv6() -> None:
    """Refuse what needs IPv6 on a kernel that has none.

    Raises:
        FabricError: If that is so.
    """
    try:
        socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).close()
    except OSError as error:
        raise FabricError(
            "fabric.addressing",
            f"this kernel has no IPv6 ({error.strerror})",
            "boot it without ipv6.disable=1, or use addressing: ipv4",
        ) from error
