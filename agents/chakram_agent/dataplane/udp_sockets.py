"""The UDP sockets of a port, with their options and errors.

The module relies on the following properties of Linux:

* An *unconnected* socket with path-MTU discovery DO sends IPv4 identification 0, and
  numbers the segments of one send 0, 1, 2, ... The ICRC covers the identification, so
  Chakram can compute a valid ICRC only for packets of such a socket. IPv6 has no
  identification.
* RoCEv2 peers send a UDP checksum of 0, which IPv6 refuses unless the socket allows it
  (RFC 6935). Chakram sends real checksums, because the kernel segments only packets
  with a checksum.
* The kernel derives IPv6 flow labels from a hash that changes with every boot. It also
  uses that hash to select among equal-cost paths. Chakram therefore disables flow
  labels.
* A switch spreads flows by their UDP source port, so each source port of the plan has a
  separate socket. All sockets send to the RoCE port, and one socket receives on it.
* An interface that is down has no routes, so sends fail. If a link is down elsewhere,
  packets are lost without an error.
* A kernel bridge or veth forwards a segmented send as one packet. If the receiver did
  not coalesce, the sender would have to split the packet.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import re
import resource
import socket
import struct
import time

from chakram.foundation.errors import AgentError, FabricError, PortInUse, PrivilegeError
from chakram.foundation.ip_addresses import LOOPBACK_IPV6, is_ipv6, socket_text
from chakram.foundation.open_file_limit import allow_descriptors
from chakram.roce.constants import BurstKind
from chakram_agent.dataplane.port_options import PortCapabilities, PortOptions, class_of

_log = logging.getLogger(__name__)

# Missing from Python's socket module (linux/udp.h, linux/in.h).
SOL_UDP = 17
UDP_SEGMENT = 103
SO_RXQ_OVFL = 40
_UDP_GRO = 104
_IP_MTU_DISCOVER = 10
_IP_PMTUDISC_DO = 2
_IP_RECVTOS = 13
# linux/in6.h, linux/udp.h.
_IPV6_MTU_DISCOVER = 23
_IPV6_AUTOFLOWLABEL = 70
_UDP_NO_CHECK6_RX = 102
_SO_SNDBUFFORCE = 32
_SO_RCVBUFFORCE = 33
_SIOCGIFINDEX = 0x8933
_CONGESTION_EXPERIENCED = 3
_NO_ROOM = frozenset({errno.EAGAIN, errno.ENOBUFS})

_INTERFACE = re.compile(r"[A-Za-z0-9_.@-]{1,15}\Z")
# Number of descriptors for the receiving socket and other files, in addition to one per
# source port.
_SPARE_DESCRIPTORS = 256
_HINTS = {
    errno.EMSGSIZE: "a packet is larger than an MTU on the path: lower path_mtu",
    errno.ENETUNREACH: "there is no route to it",
    errno.EHOSTUNREACH: "there is no route to it",
    errno.ENETDOWN: "the interface is down",
}
# Errors of a send while an interface is down and therefore has no routes.
_OUTAGES = frozenset({errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTUNREACH})
# Longest outage to tolerate. An interface reset or the recovery of a link takes less.
_OUTAGE_LIMIT_S = 5.0
# Time without errors that ends an outage. A blocked sender retries within microseconds.
_OUTAGE_ENDS_S = 1.0


class UdpSockets:
    """One socket to receive, and one per source port to send.

    Args:
        interface: Interface that packets must use. If empty, the routes decide.
        options: Addresses, source ports and buffers of the port.

    Attributes:
        options: The options of the port.
        is_ipv6: Whether all addresses are IPv6 addresses.
        receiver: Socket that receives packets.
        senders: Sending sockets, by source port as encoded in the options.
        segmentation: Whether one send can carry many packets.
        coalescing: Whether one receive can deliver many packets.

    Raises:
        PortInUse: If another program uses the address and UDP port.
        FabricError: If the address or the interface does not exist.
        PrivilegeError: If this user lacks the privilege.
    """

    def __init__(self, interface: str, options: PortOptions) -> None:
        self.options = options
        self.is_ipv6 = is_ipv6(options.address)
        self.senders: dict[int, socket.socket] = {}
        self.segmentation = True
        self._where = _where(interface, options.address, options.udp_port)
        self._interface = interface
        self._outage_began_s = 0.0
        self._outage_seen_s = -_OUTAGE_ENDS_S
        allow_descriptors(len(options.source_ports) + _SPARE_DESCRIPTORS)
        self.receiver = options.receiver or self._open(options.udp_port)
        try:
            self.coalescing = _try_option(self.receiver, SOL_UDP, _UDP_GRO)
            self._prepare_receiver()
            _try_option(self.receiver, socket.SOL_SOCKET, SO_RXQ_OVFL)
            self._set_buffer(self.receiver, _SO_RCVBUFFORCE, socket.SO_RCVBUF)
            for number in sorted(set(options.source_ports)):
                source_port, tos = class_of(number)
                sender = self._open(source_port)
                self.senders[number] = sender
                self._prepare_sender(sender, options.data_tos if tos is None else tos)
                self._set_buffer(sender, _SO_SNDBUFFORCE, socket.SO_SNDBUF)
                # No peer sends to this socket. Packets that arrive anyway must not
                # accumulate.
                sender.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        except BaseException:
            self.close()
            raise

    def capabilities(self) -> PortCapabilities:
        """Return the capabilities of these sockets."""
        return PortCapabilities(
            segmentation=self.segmentation, coalescing=self.coalescing
        )

    def tos_of(self, kind: BurstKind) -> int | None:
        """Return the type of service of *kind*, or None if data packets share it."""
        options = self.options
        tos = options.cnp_tos if kind is BurstKind.CNP else options.control_tos
        return None if tos == options.data_tos else tos

    def marked_tos(self, kind: int, source_port: int) -> int:
        """Return the type of service of a burst's packets, with a congestion mark."""
        options = self.options
        _, tos = class_of(source_port)
        if tos is not None:
            return tos | _CONGESTION_EXPERIENCED
        by_kind = (
            options.data_tos,
            options.control_tos,
            options.control_tos,
            options.cnp_tos,
        )
        return by_kind[kind] | _CONGESTION_EXPERIENCED

    def has_no_room(self, number: int, destination: int) -> bool:
        """Return whether a send that failed with error *number* may be retried.

        You may retry if the kernel has no room, or while an interface is down. A short
        outage therefore costs only time. After five seconds, the method returns False.
        """
        if number in _NO_ROOM:
            return True
        if number not in _OUTAGES:
            return False
        now_s = time.monotonic()
        if now_s - self._outage_seen_s >= _OUTAGE_ENDS_S:
            self._outage_began_s = now_s
            _log.warning("%s", self.cannot_send(number, destination))
        self._outage_seen_s = now_s
        return now_s - self._outage_began_s < _OUTAGE_LIMIT_S

    def cannot_send(self, number: int, destination: int) -> AgentError:
        """Return an error that explains error *number* of a send."""
        there = socket_text(*self.options.destinations[destination])
        return AgentError(
            self._where,
            f"cannot send to {there} ({os.strerror(number)})",
            _HINTS.get(number),
        )

    def cannot_receive(self, number: int) -> AgentError:
        """Return an error that explains error *number* of a receive."""
        return AgentError(self._where, f"cannot receive ({os.strerror(number)})")

    def close(self) -> None:
        """Close all sockets."""
        self.receiver.close()
        for sender in self.senders.values():
            sender.close()

    def _prepare_receiver(self) -> None:
        """Request the traffic class of arrivals, and allow UDP checksums of 0."""
        if self.is_ipv6:
            self.receiver.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVTCLASS, 1)
            self.receiver.setsockopt(SOL_UDP, _UDP_NO_CHECK6_RX, 1)
        else:
            self.receiver.setsockopt(socket.IPPROTO_IP, _IP_RECVTOS, 1)

    def _prepare_sender(self, sender: socket.socket, tos: int) -> None:
        """Disable IP fragmentation and set the type of service."""
        if self.is_ipv6:
            level = socket.IPPROTO_IPV6
            sender.setsockopt(level, _IPV6_MTU_DISCOVER, _IP_PMTUDISC_DO)
            sender.setsockopt(level, _IPV6_AUTOFLOWLABEL, 0)
            sender.setsockopt(level, socket.IPV6_TCLASS, tos)
        else:
            level = socket.IPPROTO_IP
            sender.setsockopt(level, _IP_MTU_DISCOVER, _IP_PMTUDISC_DO)
            sender.setsockopt(level, socket.IP_TOS, tos)

    def _open(self, number: int) -> socket.socket:
        options = self.options
        # Sockets of other ports, shards or classes may send from the same UDP port.
        is_shared = (
            options.receiver is not None
            or options.address == LOOPBACK_IPV6
            or any(class_of(each)[1] is not None for each in options.source_ports)
        )
        return bound_socket(
            self._interface,
            options.address,
            options.udp_port,
            number,
            option=socket.SO_REUSEADDR
            if is_shared and number != options.udp_port
            else None,
        )

    def _set_buffer(self, sock: socket.socket, forced: int, plain: int) -> None:
        """Request a buffer size. It may exceed the system limit if permitted."""
        wanted = self.options.buffer_bytes
        try:
            sock.setsockopt(socket.SOL_SOCKET, forced, wanted)
        except PermissionError:
            sock.setsockopt(socket.SOL_SOCKET, plain, wanted)


def _where(interface: str, address: str, udp_port: int) -> str:
    return f"port udp:{interface} at {socket_text(address, udp_port)}"


def bound_socket(
    interface: str, address: str, udp_port: int, number: int, *, option: int | None
) -> socket.socket:
    """Return a bound, nonblocking UDP socket.

    Args:
        interface: Interface that packets must use. If empty, the routes decide.
        address: Address of the port.
        udp_port: UDP port of the port, for error messages.
        number: UDP port to bind this socket to.
        option: Socket option that allows other sockets to share the address. None for
            exclusive use.

    Raises:
        PortInUse: If another program uses the address and UDP port.
        FabricError: If the address or the interface does not exist.
        PrivilegeError: If this user lacks the privilege.
    """
    where = _where(interface, address, udp_port)
    if interface and not _INTERFACE.match(interface):
        raise FabricError(
            f"port udp:{interface}", "that is not the name of an interface"
        )
    try:
        sock = socket.socket(
            socket.AF_INET6 if is_ipv6(address) else socket.AF_INET,
            socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC,
        )
    except OSError as error:
        hint = None
        if error.errno == errno.EMFILE:
            limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            hint = (
                f"raise the limit of {limit} open files (ulimit -n), or give the agent "
                "fewer ports, processes or source ports: each needs a socket"
            )
        raise FabricError(
            where, f"cannot open a socket ({error.strerror})", hint
        ) from error
    try:
        if interface:
            _bind_to_interface(sock, interface, where)
        if option is not None:
            sock.setsockopt(socket.SOL_SOCKET, option, 1)
        sock.bind((address, number))
    except OSError as error:
        sock.close()
        if error.errno == errno.EADDRINUSE:
            raise PortInUse(
                socket_text(address, number),
                "the UDP port is taken by another program",
                "end it, or choose another fabric.udp_port",
            ) from error
        if error.errno == errno.EADDRNOTAVAIL:
            raise FabricError(
                where,
                "no interface has that address",
                "see: ip address; a tentative address cannot be used yet"
                if is_ipv6(address)
                else "see: ip address",
            ) from error
        if error.errno in (errno.EPERM, errno.EACCES):
            raise PrivilegeError(
                where, f"cannot open UDP port {number} ({error.strerror})"
            ) from error
        raise FabricError(where, f"cannot open it ({error})") from error
    except BaseException:
        sock.close()
        raise
    return sock


def _try_option(sock: socket.socket, level: int, option: int) -> bool:
    """Enable an option that older kernels lack, and return whether it is enabled."""
    try:
        sock.setsockopt(level, option, 1)
    except OSError:
        return False
    return True


def _bind_to_interface(sock: socket.socket, interface: str, where: str) -> None:
    """Bind to *interface*. Without the privilege, only check that it exists."""
    try:
        sock.setsockopt(
            socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface.encode() + b"\0"
        )
    except PermissionError:
        _require_interface(sock, interface, where)
    except OSError as error:
        if error.errno == errno.ENODEV:
            raise FabricError(
                where, f"there is no interface {interface}", "see: ip link"
            ) from error
        raise


def _require_interface(sock: socket.socket, interface: str, where: str) -> None:
    """Refuse an interface that does not exist."""
    request = struct.pack("16s24x", interface.encode())
    try:
        fcntl.ioctl(sock, _SIOCGIFINDEX, request)
    except OSError as error:
        raise FabricError(
            where, f"there is no interface {interface}", "see: ip link"
        ) from error
