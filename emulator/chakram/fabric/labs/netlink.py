"""Batched requests over the kernel's routing sockets.

Requests that build a lab are encoded with pyroute2. They use sockets that were opened
inside a namespace and therefore belong to it. A few system calls configure a whole
namespace, and a message for many namespaces is encoded once. The requests for 64 hosts
take 0.2 s of CPU. One call of ``AsyncIPRoute`` per request would take 1.7 s. Queries
use ``AsyncIPRoute`` itself, over the same sockets.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import struct
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from pyroute2 import AsyncIPRoute
from pyroute2.netlink.exceptions import NetlinkError

from chakram.fabric.labs.netlink_requests import Request
from chakram.foundation.errors import FabricError, PrivilegeError

if TYPE_CHECKING:
    Answer = TypeVar("Answer")
    Question = Callable[[AsyncIPRoute], Awaitable[Answer]]


_NETLINK_ROUTE = 0
_SOL_NETLINK = 270
_NETLINK_CAP_ACK = 10
_NETLINK_EXT_ACK = 11

_NLMSG_ERROR = 2
_NLM_F_ACK_TLVS = 0x200
_NLMSGERR_ATTR_MSG = 1

# The acknowledgment of a message takes just under 1 KB of the socket's receive buffer,
# whose usual limit is 208 KiB. This many acknowledgments can therefore wait unread.
_MESSAGES_PER_SEND = 100
_BYTES_PER_SEND = 60_000

_TIMEOUT_S = 10


class NetlinkSocket:
    """A routing socket in the namespace of the thread that creates it.

    Args:
        where: Name of the namespace, for error messages.
    """

    def __init__(self, where: str) -> None:
        self.where = where
        self._sequence = 0
        self._socket = socket.socket(
            # Use the socket type that asyncio accepts. The kernel treats all types
            # alike.
            socket.AF_NETLINK,
            socket.SOCK_DGRAM | socket.SOCK_CLOEXEC,
            _NETLINK_ROUTE,
        )
        try:
            self._socket.bind((0, 0))
            self._set_short_acks(True)
            self._socket.settimeout(_TIMEOUT_S)
        except BaseException:
            self._socket.close()
            raise

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def execute(self, requests: Sequence[Request]) -> None:
        """Send requests in order and wait until the kernel has completed all of them.

        Raises:
            FabricError: If the kernel refuses a request. It still tries the other
                requests.
            PrivilegeError: If the kernel refuses a request for lack of privileges.
        """
        waiting: list[Request] = []
        size = 0
        for request in requests:
            if waiting and (
                len(waiting) == _MESSAGES_PER_SEND
                or size + len(request.data) > _BYTES_PER_SEND
            ):
                self._execute_some(waiting)
                waiting, size = [], 0
            waiting.append(request)
            size += len(request.data)
        if waiting:
            self._execute_some(waiting)

    def _execute_some(self, requests: list[Request]) -> None:
        pending: dict[int, str] = {}
        parts = bytearray()
        for request in requests:
            self._sequence += 1
            pending[self._sequence] = request.what
            offset = len(parts)
            parts += request.data
            # struct nlmsghdr: length, type, flags, sequence, port
            struct.pack_into("=II", parts, offset + 8, self._sequence, 0)
        self._socket.sendto(parts, (0, 0))
        failure: tuple[str, int, str] | None = None
        while pending:
            for sequence, number, text in self._acknowledgements():
                what = pending.pop(sequence, None)
                if what is not None and number and failure is None:
                    failure = (what, number, text)
        if failure is not None:
            what, number, text = failure
            cause = OSError(number, os.strerror(number))
            raise _refusal(self.where, what, number, text) from cause

    def _acknowledgements(self) -> list[tuple[int, int, str]]:
        """Return sequence number, error number (or 0) and text of each answer."""
        data = self._socket.recv(1 << 18)
        found: list[tuple[int, int, str]] = []
        offset = 0
        while offset + 16 <= len(data):
            length, kind, flags, sequence = struct.unpack_from("=IHHI", data, offset)
            if kind == _NLMSG_ERROR:
                number = -struct.unpack_from("=i", data, offset + 16)[0]
                text = ""
                if flags & _NLM_F_ACK_TLVS:
                    # Attributes follow the error number and the header of the request.
                    text = _message_attribute(data[offset + 36 : offset + length])
                found.append((sequence, number, text))
            offset += (length + 3) & ~3
        return found

    def errno_of(self, request: Request) -> int:
        """Send one request, and return the kernel's error number, or 0 on success."""
        try:
            self.execute([request])
        except (FabricError, PrivilegeError) as error:
            cause = error.__cause__
            return cause.errno or 0 if isinstance(cause, OSError) else errno.EIO
        return 0

    async def _ask(self, question: Question[Answer], what: str) -> Answer:
        self._set_short_acks(False)
        # Without *groups*, AsyncIPRoute would subscribe to all changes, and its buffer
        # would overflow.
        async with AsyncIPRoute(use_socket=self._socket.dup(), groups=0) as route:
            try:
                await route.setup_endpoint()
                return await question(route)
            except NetlinkError as error:
                raise _refusal(self.where, what, error.code, "") from error
            finally:
                self._forget()
                self._set_short_acks(True)

    def _set_short_acks(self, is_wanted: bool) -> None:
        """Enable or disable short acknowledgments with error messages.

        pyroute2 does not support them.
        """
        self._socket.setsockopt(_SOL_NETLINK, _NETLINK_CAP_ACK, is_wanted)
        self._socket.setsockopt(_SOL_NETLINK, _NETLINK_EXT_ACK, is_wanted)

    def _forget(self) -> None:
        """Discard unread messages, such as acknowledgments of answered requests.

        The next query reuses their sequence numbers, so it could mistake these messages
        for answers.
        """
        self._socket.settimeout(0)
        with suppress(BlockingIOError):
            while True:
                self._socket.recv(1 << 18)
        self._socket.settimeout(_TIMEOUT_S)


def ask(
    sockets: Iterable[NetlinkSocket], question: Question[Answer], what: str
) -> list[Answer]:
    """Return the kernel's answers to one query in several namespaces.

    Args:
        sockets: One socket per namespace.
        question: Function that queries with pyroute2's own calls.
        what: Subject of the query, for error messages.

    Raises:
        FabricError: If the kernel refuses a query.
    """

    async def all_of_them() -> list[Answer]:
        return [await each._ask(question, what) for each in sockets]

    return asyncio.run(all_of_them())


def _message_attribute(attributes: bytes) -> str:
    """Return the kernel's error message in an acknowledgment, if any."""
    offset = 0
    while offset + 4 <= len(attributes):
        length, kind = struct.unpack_from("=HH", attributes, offset)
        if length < 4:
            break
        if kind == _NLMSGERR_ATTR_MSG:
            return (
                attributes[offset + 4 : offset + length]
                .rstrip(b"\0")
                .decode("utf-8", "replace")
            )
        offset += (length + 3) & ~3
    return ""


def _refusal(
    where: str, what: str, number: int, text: str
) -> FabricError | PrivilegeError:
    said = text or os.strerror(number)
    found = f"{what}: the kernel refused ({said})"
    if number == errno.EPERM:
        return PrivilegeError(where, found, "run as root, or allow user namespaces")
    if number == errno.EOPNOTSUPP or (number == errno.ENOENT and not text):
        return FabricError(where, found, "see what is missing with: chakram doctor")
    return FabricError(where, found)
