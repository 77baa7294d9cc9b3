"""Ports that cannot open as many sockets as they need."""

from __future__ import annotations

import resource
import socket

import pytest

from chakram.foundation.errors import FabricError
from chakram_agent.dataplane.udp_sockets import bound_socket


def test_limit_of_open_files_is_named() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    sockets: list[socket.socket] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
    try:
        with pytest.raises(FabricError, match="limit of 64 open files"):
            sockets.extend(
                bound_socket("", "127.0.0.1", 4791, 0, option=None) for _ in range(100)
            )
    finally:
        for each in sockets:
            each.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
