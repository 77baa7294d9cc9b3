from __future__ import annotations

import errno
import socket
import struct

import pytest

from chakram_agent.dataplane.probe_port import Answer, _answer

# struct sock_extended_err (linux/errqueue.h), and struct sockaddr_in up to its address.
TOO_LONG = struct.pack("=IBBBBII", errno.EMSGSIZE, 2, 3, 4, 0, 1400, 0)
UNREACHABLE = struct.pack("=IBBBBII", errno.ECONNREFUSED, 2, 3, 3, 0, 7, 0)
ROUTER = struct.pack("=HH", socket.AF_INET, 0) + bytes([10, 0, 0, 1])


@pytest.mark.parametrize(
    ("data", "answer"),
    [
        (TOO_LONG + ROUTER, (errno.EMSGSIZE, 1400, 0x0A000001)),
        (TOO_LONG + ROUTER + bytes(8), (errno.EMSGSIZE, 1400, 0x0A000001)),
        (UNREACHABLE + ROUTER, (errno.ECONNREFUSED, 0, 0x0A000001)),
        (UNREACHABLE + ROUTER[:7], (errno.ECONNREFUSED, 0, 0)),
        (
            UNREACHABLE + struct.pack("=H", socket.AF_INET6) + bytes(26),
            (errno.ECONNREFUSED, 0, 0),
        ),
        (UNREACHABLE, (errno.ECONNREFUSED, 0, 0)),
    ],
)
def test_error_queue_is_read(data: bytes, answer: tuple[int, int, int]) -> None:
    assert _answer(data, b"probe") == Answer(*answer, b"probe")
