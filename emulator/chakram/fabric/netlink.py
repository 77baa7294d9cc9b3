"""Requests to the kernel's routing sockets, many at a time.

Messages are encoded and decoded with pyroute2; they travel over plain sockets that
were opened inside a namespace and so belong to it.  A whole namespace is configured
with a handful of system calls, and messages that are the same in many namespaces are
encoded once: that is what lets 64 hosts stand in a fraction of a second.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from typing import TYPE_CHECKING, Any

from pyroute2.netlink import NLM_F_DUMP, NLM_F_REQUEST
from pyroute2.netlink.rtnl.marshal import MarshalRtnl

from chakram.errors import FabricError, PrivilegeError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chakram.fabric.link_requests import Request

__all__ = ["NetlinkSocket"]

_NETLINK_ROUTE = 0
_SOL_NETLINK = 270
_NETLINK_CAP_ACK = 10
_NETLINK_EXT_ACK = 11

_NLMSG_ERROR = 2
_NLMSG_DONE = 3
_NLM_F_ACK_TLVS = 0x200
_NLMSGERR_ATTR_MSG = 1

# A message's acknowledgement takes somewhat under a kilobyte of the socket's receive
# buffer, whose usual limit is 208 KiB; so that many may wait unread.
_MESSAGES_PER_SEND = 100
_BYTES_PER_SEND = 60_000


class NetlinkSocket:
    """A routing socket of one namespace: that of the thread that makes it.

    Args:
        where: Name of the namespace, for error texts.
    """

    def __init__(self, where: str) -> None:
        self.where = where
        self._sequence = 0
        self._marshal = MarshalRtnl()
        self._socket = socket.socket(
            socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_ROUTE
        )
        try:
            self._socket.bind((0, 0))
            # Acknowledgements need not repeat the request, and may say what was wrong.
            self._socket.setsockopt(_SOL_NETLINK, _NETLINK_CAP_ACK, 1)
            self._socket.setsockopt(_SOL_NETLINK, _NETLINK_EXT_ACK, 1)
            self._socket.settimeout(10)
        except BaseException:
            self._socket.close()
            raise

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def execute(self, requests: Sequence[Request]) -> None:
        """Send requests in order and wait until the kernel has done them all.

        Raises:
            FabricError: If the kernel refused one; the others were still tried.
            PrivilegeError: If it refused one for lack of rights.
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
        """Return sequence number, error number (0: done) and text of each answer."""
        data = self._socket.recv(1 << 18)
        found: list[tuple[int, int, str]] = []
        offset = 0
        while offset + 16 <= len(data):
            length, kind, flags, sequence = struct.unpack_from("=IHHI", data, offset)
            if kind == _NLMSG_ERROR:
                number = -struct.unpack_from("=i", data, offset + 16)[0]
                text = ""
                if flags & _NLM_F_ACK_TLVS:
                    # Behind the error number and the header of the request.
                    text = _message_attribute(data[offset + 36 : offset + length])
                found.append((sequence, number, text))
            offset += (length + 3) & ~3
        return found

    def errno_of(self, request: Request) -> int:
        """Send one request; return 0 if it was done, else the kernel's error number."""
        try:
            self.execute([request])
        except (FabricError, PrivilegeError) as error:
            cause = error.__cause__
            return cause.errno or 0 if isinstance(cause, OSError) else errno.EIO
        return 0

    def get(self, message: Any, kind: int, what: str) -> Any:
        """Return the one object that a filled pyroute2 message asks for.

        Raises:
            FabricError: If the kernel has none.
        """
        return self._ask(message, kind, 0, what)[0]

    def dump(self, message: Any, kind: int) -> list[Any]:
        """Return all objects of a kind, as decoded pyroute2 messages.

        Raises:
            FabricError: If the kernel refused.
        """
        return self._ask(message, kind, NLM_F_DUMP, "reading its state")

    def _ask(self, message: Any, kind: int, flags: int, what: str) -> list[Any]:
        self._sequence += 1
        message["header"]["type"] = kind
        message["header"]["flags"] = NLM_F_REQUEST | flags
        message["header"]["sequence_number"] = self._sequence
        message.encode()
        self._socket.sendto(bytes(message.data), (0, 0))
        found: list[Any] = []
        while True:
            data = self._socket.recv(1 << 18)
            (kind_of_first,) = struct.unpack_from("=H", data, 4)
            if kind_of_first == _NLMSG_ERROR:
                number = -struct.unpack_from("=i", data, 16)[0]
                raise _refusal(self.where, what, number, "") from OSError(number, what)
            for answer in self._marshal.parse(data):
                if answer["header"]["type"] == _NLMSG_DONE:
                    return found
                found.append(answer)
            if not flags:
                return found


def _message_attribute(attributes: bytes) -> str:
    """Return the kernel's own words in an acknowledgement, if there are any."""
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
        return PrivilegeError(where, found, "be root, or allow user namespaces")
    if number == errno.EOPNOTSUPP or (number == errno.ENOENT and not text):
        return FabricError(where, found, "see what is missing with: chakram doctor")
    return FabricError(where, found)
