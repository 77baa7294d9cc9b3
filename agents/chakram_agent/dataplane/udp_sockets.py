"""The UDP sockets of a port: how they are opened, and what their errors mean.

Facts that this rests on (Linux):

* An *unconnected* socket with path-MTU discovery DO sends IPv4 identification 0, and
  the segments of one send 0, 1, 2, ...  Only so can a valid ICRC be computed here, for
  it covers the identification.  IPv6 has none.
* Over IPv6 a UDP checksum of 0 is refused unless a socket allows it (RFC 6935), and
  RoCEv2 peers send 0.  We send real ones: the kernel segments nothing without.
* The kernel makes IPv6 flow labels of a hash that changes with every boot, and keeps
  that hash with the packet for equal-cost paths; so they are switched off.
* A switch spreads flows by their UDP source port, so every source port that the plan
  names is a socket of its own.  All of them send to, and one socket receives on, the
  RoCE port.
* An interface that is down has no routes, so sends fail.  What is sent over a link that
  is broken elsewhere is lost without an error.
* A kernel bridge or veth passes a segmented send as one packet; a receiver without
  coalescing would make the sender cut it.
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
from chakram.roce.constants import BurstKind
from chakram_agent.dataplane.port_options import PortCapabilities, PortOptions, class_of

_log = logging.getLogger(__name__)

# Not in Python's socket module (linux/udp.h, linux/in.h).
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
# One socket per source port and one to receive, and as many again for the rest.
_SPARE_DESCRIPTORS = 256
_HINTS = {
    errno.EMSGSIZE: "a packet is larger than an MTU on the way: lower path_mtu",
    errno.ENETUNREACH: "there is no route to it",
    errno.EHOSTUNREACH: "there is no route to it",
    errno.ENETDOWN: "the interface is down",
}
# What a send says while an interface is down, and its routes are gone with it.
_OUTAGES = frozenset({errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTUNREACH})
# Longer than a driver takes to reset its interface, or a link to come up again.
_OUTAGE_LIMIT_S = 5.0
# Who has no room tries again within microseconds: a longer pause ends an outage.
_OUTAGE_ENDS_S = 1.0


class UdpSockets:
    """One socket to receive, and one to send per source port.

    Args:
        interface: Interface that packets must use; empty: what the routes say.
        options: Addresses, source ports, buffers.

    Attributes:
        options: They.
        is_ipv6: Whether all addresses are of IPv6.
        receiver: The socket that receives.
        senders: By UDP source port, and by that in a class.
        segmentation: Whether one send carries many packets.
        coalescing: Whether one receive delivers many packets.

    Raises:
        PortInUse: If somebody else has the address and UDP port.
        FabricError: If the address or the interface is not there.
        PrivilegeError: If this user may not do that.
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
                # Nothing is ever sent to it; what comes anyway must not pile up.
                sender.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        except BaseException:
            self.close()
            raise

    def capabilities(self) -> PortCapabilities:
        """Return what these sockets can do."""
        # The kernel doubles what is asked for, to account for its own structures.
        granted = self.receiver.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2
        return PortCapabilities(
            segmentation=self.segmentation,
            coalescing=self.coalescing,
            receive_buffer_bytes=granted,
        )

    def tos_of(self, kind: BurstKind) -> int | None:
        """Return the type of service of packets of *kind* if data have another."""
        options = self.options
        tos = options.cnp_tos if kind is BurstKind.CNP else options.control_tos
        return None if tos == options.data_tos else tos

    def marked_tos(self, kind: int, source_port: int) -> int:
        """Return the type of service of packets of *kind* that congestion has met."""
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
        """Tell whether a send that failed with the error *number* may be tried again.

        So it is when the kernel has no room, and while an interface is down: it may
        come up again, and then nothing is lost but time.  After some seconds that hope
        is given up.
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
        """Return what the error *number* of a send means."""
        there = socket_text(*self.options.destinations[destination])
        return AgentError(
            self._where,
            f"cannot send to {there} ({os.strerror(number)})",
            _HINTS.get(number),
        )

    def cannot_receive(self, number: int) -> AgentError:
        """Return what the error *number* of a receive means."""
        return AgentError(self._where, f"cannot receive ({os.strerror(number)})")

    def close(self) -> None:
        """Close all of them."""
        self.receiver.close()
        for sender in self.senders.values():
            sender.close()

    def _prepare_receiver(self) -> None:
        """Ask for the class of packets; take those of peers without checksums."""
        if self.is_ipv6:
            self.receiver.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVTCLASS, 1)
            self.receiver.setsockopt(SOL_UDP, _UDP_NO_CHECK6_RX, 1)
        else:
            self.receiver.setsockopt(socket.IPPROTO_IP, _IP_RECVTOS, 1)

    def _prepare_sender(self, sender: socket.socket, tos: int) -> None:
        """Have packets leave whole, and with a type of service."""
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
        # Other ports, other parts of the port, or its other classes may send from the
        # same.
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
        """Ask for a large buffer, by force where that is allowed."""
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
    """Return a UDP socket that never waits.

    Args:
        interface: Interface that packets must use; empty: what the routes say.
        address: Of the port.
        udp_port: Of the port, too.
        number: UDP port of this socket, perhaps another one.
        option: Socket option that lets others have the same; None: nobody may.

    Raises:
        PortInUse: If somebody else has the address and UDP port.
        FabricError: If the address or the interface is not there.
        PrivilegeError: If this user may not do that.
    """
    where = _where(interface, address, udp_port)
    if interface and not _INTERFACE.match(interface):
        raise FabricError(f"port udp:{interface}", "that is no name of an interface")
    try:
        sock = socket.socket(
            socket.AF_INET6 if is_ipv6(address) else socket.AF_INET,
            socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC,
        )
    except OSError as error:
        raise FabricError(where, f"cannot open a socket ({error.strerror})") from error
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
                "see: ip address; one that is tentative cannot be used yet"
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
    """Switch on what older kernels do not have; tell whether it is on."""
    try:
        sock.setsockopt(level, option, 1)
    except OSError:
        return False
    return True


def _bind_to_interface(sock: socket.socket, interface: str, where: str) -> None:
    """Keep packets of other interfaces out, where this user may ask for that."""
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
    """Refuse an interface that is not there."""
    request = struct.pack("16s24x", interface.encode())
    try:
        fcntl.ioctl(sock, _SIOCGIFINDEX, request)
    except OSError as error:
        raise FabricError(
            where, f"there is no interface {interface}", "see: ip link"
        ) from error


def allow_descriptors(more: int) -> None:
    """Raise the soft limit on open files, as far as the hard one goes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < hard:
        wanted = soft + more if hard == resource.RLIM_INFINITY else hard
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
