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
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyroute2.netlink import (
    NLM_F_ACK,
    NLM_F_CREATE,
    NLM_F_DUMP,
    NLM_F_EXCL,
    NLM_F_REPLACE,
    NLM_F_REQUEST,
    rtnl,
)
from pyroute2.netlink.rtnl.ifaddrmsg import ifaddrmsg
from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg
from pyroute2.netlink.rtnl.marshal import MarshalRtnl
from pyroute2.netlink.rtnl.ndmsg import ndmsg
from pyroute2.netlink.rtnl.rtmsg import rtmsg

from chakram.errors import FabricError, PrivilegeError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "NetlinkSocket",
    "Request",
    "add_address",
    "add_forwarding_entry",
    "add_neighbour",
    "add_route",
    "create",
    "new_bridge",
    "new_veth",
    "set_link",
]

_NETLINK_ROUTE = 0
_SOL_NETLINK = 270
_NETLINK_CAP_ACK = 10
_NETLINK_EXT_ACK = 11

_NLMSG_ERROR = 2
_NLMSG_DONE = 3
_NLM_F_ACK_TLVS = 0x200
_NLMSGERR_ATTR_MSG = 1

_IFF_UP = 1
_NUD_NOARP = 0x40
_NUD_PERMANENT = 0x80
_NTF_MASTER = 0x04
_AF_BRIDGE = 7
_RT_TABLE_MAIN = 254
_RTPROT_STATIC = 4
_RT_SCOPE_UNIVERSE = 0
_RT_SCOPE_LINK = 253
_RTN_UNICAST = 1

# A message's acknowledgement takes somewhat under a kilobyte of the socket's receive
# buffer, whose usual limit is 208 KiB; so that many may wait unread.
_MESSAGES_PER_SEND = 100
_BYTES_PER_SEND = 60_000

# veth's own default; it is what a queue discipline without a limit of its own uses.
_TX_QUEUE_LENGTH = 1000


@dataclass(frozen=True, slots=True)
class Request:
    """One encoded message and what it does, for error texts."""

    data: bytes
    what: str


def create(message: Any, kind: int, what: str, *, replace: bool = False) -> Request:
    """Return a request that makes something, from a filled pyroute2 message."""
    flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE
    message["header"]["type"] = kind
    message["header"]["flags"] = flags | (NLM_F_REPLACE if replace else NLM_F_EXCL)
    message.encode()
    return Request(bytes(message.data), what)


def new_bridge(name: str, *, index: int, mac: str, mtu: int) -> Request:
    """Return the request for a bridge that is up and does no more than forward."""
    message = ifinfmsg()
    message["index"] = index
    message["flags"] = message["change"] = _IFF_UP
    message["attrs"] = [
        ("IFLA_IFNAME", name),
        ("IFLA_ADDRESS", mac),
        ("IFLA_MTU", mtu),
        (
            "IFLA_LINKINFO",
            {
                "attrs": [
                    ("IFLA_INFO_KIND", "bridge"),
                    (
                        "IFLA_INFO_DATA",
                        {
                            "attrs": [
                                ("IFLA_BR_STP_STATE", 0),
                                ("IFLA_BR_MCAST_SNOOPING", 0),
                            ]
                        },
                    ),
                ]
            },
        ),
    ]
    return create(message, rtnl.RTM_NEWLINK, f"bridge {name}")


def new_veth(
    name: str,
    *,
    index: int,
    mac: str | None,
    master: int | None,
    mtu: int,
    peer_name: str,
    peer_index: int,
    peer_mac: str | None,
    peer_namespace: int,
) -> Request:
    """Return the request for a pair of interfaces in two namespaces.

    Only the near one is up: the kernel refuses to open the far one before it has a
    peer.

    Args:
        name: Interface in the namespace that the request is sent to.
        index: Its number; fresh namespaces let us choose, which spares look-ups.
        mac: Its address, or None for a random one.
        master: Number of the bridge it joins, or None.
        mtu: Largest IP packet of both ends, in bytes.
        peer_name: Interface in the other namespace.
        peer_index: Its number.
        peer_mac: Its address, or None for a random one.
        peer_namespace: Open descriptor of the other namespace.
    """
    peer: list[tuple[str, object]] = [
        ("IFLA_IFNAME", peer_name),
        ("IFLA_MTU", mtu),
        ("IFLA_TXQLEN", _TX_QUEUE_LENGTH),
        ("IFLA_NET_NS_FD", peer_namespace),
    ]
    if peer_mac is not None:
        peer.append(("IFLA_ADDRESS", peer_mac))
    message = ifinfmsg()
    message["index"] = index
    message["flags"] = message["change"] = _IFF_UP
    attributes: list[tuple[str, object]] = [
        ("IFLA_IFNAME", name),
        ("IFLA_MTU", mtu),
        ("IFLA_TXQLEN", _TX_QUEUE_LENGTH),
    ]
    if mac is not None:
        attributes.append(("IFLA_ADDRESS", mac))
    if master is not None:
        attributes.append(("IFLA_MASTER", master))
    attributes.append(
        (
            "IFLA_LINKINFO",
            {
                "attrs": [
                    ("IFLA_INFO_KIND", "veth"),
                    (
                        "IFLA_INFO_DATA",
                        {
                            "attrs": [
                                (
                                    "VETH_INFO_PEER",
                                    {"index": peer_index, "attrs": peer},
                                )
                            ]
                        },
                    ),
                ]
            },
        )
    )
    message["attrs"] = attributes
    return create(message, rtnl.RTM_NEWLINK, f"interface {name}")


def set_link(index: int, *, up: bool, what: str) -> Request:
    """Return the request that switches an interface on or off."""
    message = ifinfmsg()
    message["index"] = index
    message["flags"] = _IFF_UP if up else 0
    message["change"] = _IFF_UP
    message["header"]["type"] = rtnl.RTM_NEWLINK
    message["header"]["flags"] = NLM_F_REQUEST | NLM_F_ACK
    message.encode()
    return Request(bytes(message.data), what)


def add_address(
    address: str, *, prefix_length: int, broadcast: str | None, index: int
) -> Request:
    """Return the request for an address of an interface."""
    message = ifaddrmsg()
    message["family"] = socket.AF_INET
    message["prefixlen"] = prefix_length
    message["index"] = index
    message["attrs"] = [("IFA_LOCAL", address), ("IFA_ADDRESS", address)]
    if broadcast is not None:
        message["attrs"].append(("IFA_BROADCAST", broadcast))
    return create(message, rtnl.RTM_NEWADDR, f"address {address}/{prefix_length}")


def add_neighbour(address: str, *, mac: str, index: int) -> Request:
    """Return the request for a permanent neighbour, so that nobody need ask for it."""
    message = ndmsg()
    message["family"] = socket.AF_INET
    message["ifindex"] = index
    message["state"] = _NUD_PERMANENT
    message["attrs"] = [("NDA_DST", address), ("NDA_LLADDR", mac)]
    return create(message, rtnl.RTM_NEWNEIGH, f"neighbour {address}", replace=True)


def add_forwarding_entry(mac: str, *, port: int) -> Request:
    """Return the request that tells a bridge behind which port an address is.

    Without it the first packets to a silent host go out of every port.
    """
    message = ndmsg()
    message["family"] = _AF_BRIDGE
    message["ifindex"] = port
    message["state"] = _NUD_NOARP
    message["flags"] = _NTF_MASTER
    message["attrs"] = [("NDA_LLADDR", mac)]
    return create(message, rtnl.RTM_NEWNEIGH, f"forwarding entry {mac}", replace=True)


def add_route(
    network: str, *, prefix_length: int, next_hops: Sequence[tuple[str, int]]
) -> Request:
    """Return the request for a route; several next hops share the load by hash.

    Args:
        network: Destination, ``0.0.0.0`` with length 0 for the default route.
        prefix_length: Bits of the destination.
        next_hops: Gateway and number of the interface that leads to it.
    """
    message = rtmsg()
    message["family"] = socket.AF_INET
    message["dst_len"] = prefix_length
    message["table"] = _RT_TABLE_MAIN
    message["proto"] = _RTPROT_STATIC
    message["scope"] = _RT_SCOPE_UNIVERSE
    message["type"] = _RTN_UNICAST
    attributes: list[tuple[str, object]] = []
    if prefix_length:
        attributes.append(("RTA_DST", network))
    if len(next_hops) == 1:
        gateway, index = next_hops[0]
        attributes += [("RTA_GATEWAY", gateway), ("RTA_OIF", index)]
    else:
        attributes.append(
            (
                "RTA_MULTIPATH",
                [
                    {"oif": index, "hops": 0, "attrs": [("RTA_GATEWAY", gateway)]}
                    for gateway, index in next_hops
                ],
            )
        )
    message["attrs"] = attributes
    return create(message, rtnl.RTM_NEWROUTE, f"route to {network}/{prefix_length}")


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
        self._socket.bind((0, 0))
        # An acknowledgement need not repeat the request, and may say what was wrong.
        self._socket.setsockopt(_SOL_NETLINK, _NETLINK_CAP_ACK, 1)
        self._socket.setsockopt(_SOL_NETLINK, _NETLINK_EXT_ACK, 1)
        self._socket.settimeout(10)

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
