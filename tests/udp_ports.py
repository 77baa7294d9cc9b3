"""UDP ports that no other process on this machine uses."""

from __future__ import annotations

import errno
import itertools
import os
import socket
from contextlib import ExitStack

__all__ = ["free_udp_ports"]

# Below the ports that the kernel and our plans take for sources, and above those that
# experiments have by default.
_FIRST, _COUNT = 16_000, 16_000
# Runs of tests on one machine begin apart, so that most have their own ports.
_turns = itertools.count(os.getpid() * 61)


def free_udp_ports(count: int = 1) -> int:
    """Return the first of so many UDP ports in a row, free at every address.

    Raises:
        OSError: If there are none.
    """
    for _ in range(_COUNT):
        ports = [_FIRST + next(_turns) % _COUNT for _ in range(count)]
        if ports[-1] - ports[0] == count - 1 and all(map(_is_free, ports)):
            return ports[0]
    raise OSError(errno.EADDRINUSE, f"no {count} free UDP ports in a row")


def _is_free(port: int) -> bool:
    """Return whether a port can be bound at all addresses, as none has it then."""
    with ExitStack() as stack:
        for kind, address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
            try:
                opened = stack.enter_context(socket.socket(kind, socket.SOCK_DGRAM))
                if kind == socket.AF_INET6:
                    opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                opened.bind((address, port))
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    return False
                # This machine has no IPv6.
    return True
