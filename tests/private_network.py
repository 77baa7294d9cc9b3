"""A network namespace for one test, without other ports and links."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
from contextlib import contextmanager
from typing import TYPE_CHECKING

from chakram.fabric.labs.enter_namespace import CLONE_NEWNET, setns, unshare
from chakram.fabric.labs.user_namespace import has_net_admin

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["private_network"]

# linux/sockios.h, linux/if.h
SIOCSIFFLAGS = 0x8914
IFF_UP = 1


@contextmanager
def private_network() -> Iterator[None]:
    """Give this thread a network namespace with nothing but a loopback interface.

    Processes and threads inherit it from their parent. Without the privilege to create
    one, the thread stays in its namespace.

    Raises:
        AssertionError: If there are more links in it in the end.
    """
    if not has_net_admin():
        yield
        return
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    unshare(CLONE_NEWNET)
    try:
        with socket.socket(type=socket.SOCK_DGRAM) as any_socket:
            fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh", b"lo", IFF_UP))
        before = links()
        yield
        assert links() <= before, "links left behind"
    finally:
        setns(home, CLONE_NEWNET)
        os.close(home)


def links() -> set[str]:
    """Return the names of the links of this thread's network."""
    return {name for _, name in socket.if_nameindex()}
