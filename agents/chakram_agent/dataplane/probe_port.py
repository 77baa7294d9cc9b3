"""A port for probes, which sends packets one by one and reads resulting ICMP errors.

The port uses the sockets of a run (``udp_sockets``), with three differences:

* The sockets ignore the path MTU in the kernel's cache. Otherwise, the kernel would
  refuse longer packets.
* The port receives packets one by one.
* The kernel queues ICMP errors, and the port reads them.
"""

from __future__ import annotations

import errno
import socket
import struct
import sys
from collections.abc import Iterator
from ipaddress import IPv4Address
from typing import TYPE_CHECKING, NamedTuple

from chakram_agent.dataplane.udp_sockets import SOL_UDP, UdpSockets

if TYPE_CHECKING:
    from chakram_agent.dataplane.port_options import PortOptions


# Missing from Python's socket module (linux/in.h, in6.h, udp.h, socket.h).
_UDP_GRO = 104
_IP_MTU_DISCOVER = 10
_IP_PMTUDISC_PROBE = 3
_IP_RECVERR = 11
_IPV6_MTU_DISCOVER = 23
_IPV6_PMTUDISC_PROBE = 3
_IPV6_RECVERR = 25
_MSG_ERRQUEUE = 0x2000
_SO_TIMESTAMPNS = 35
_SO_MEMINFO = 55
# Number of memory counters (SK_MEMINFO_*) of a socket. The last counter counts drops.
_MEMINFO_WORDS = 9

# struct sock_extended_err: errno, origin, type, code, pad, info, data.
_EXTENDED_ERROR = struct.Struct("=IBBBBII")
_TIMESPEC = struct.Struct("=qq")
_BUFFER_BYTES = 65_536
_ANCILLARY_BYTES = 512
_NO_ROOM = frozenset({errno.EAGAIN, errno.ENOBUFS})


class Answer(NamedTuple):
    """An ICMP or local error report about a sent packet.

    Attributes:
        number: Error number.
        mtu: Reported MTU, or 0 if the report contains none.
        address: IPv4 address of the reporting node as a number, or 0 if unknown.
        datagram: The part of the UDP payload that the report contains.
    """

    number: int
    mtu: int
    address: int
    datagram: bytes


class ProbePort:
    """The sockets of one port, opened in the calling thread's network namespace.

    Args:
        interface: Interface that packets must use. If empty, the routes decide.
        options: Addresses and source ports of the port.

    Raises:
        EnvironmentProblem: If the port cannot be opened.
    """

    def __init__(self, interface: str, options: PortOptions) -> None:
        self._sockets = UdpSockets(interface, options)
        self._buffer = bytearray(_BUFFER_BYTES)
        self.receiver = self._sockets.receiver
        try:
            self.receiver.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
            if self._sockets.coalescing:
                self.receiver.setsockopt(SOL_UDP, _UDP_GRO, 0)
            for sender in self._sockets.senders.values():
                self._let_everything_leave(sender)
        except BaseException:
            self._sockets.close()
            raise

    def _let_everything_leave(self, sender: socket.socket) -> None:
        if self._sockets.is_ipv6:
            level = socket.IPPROTO_IPV6
            sender.setsockopt(level, _IPV6_MTU_DISCOVER, _IPV6_PMTUDISC_PROBE)
            sender.setsockopt(level, _IPV6_RECVERR, 1)
        else:
            level = socket.IPPROTO_IP
            sender.setsockopt(level, _IP_MTU_DISCOVER, _IP_PMTUDISC_PROBE)
            sender.setsockopt(level, _IP_RECVERR, 1)

    @property
    def senders(self) -> dict[int, socket.socket]:
        """The sending sockets by UDP source port."""
        return self._sockets.senders

    def send(
        self, datagram: bytes, source_port: int, remote: tuple[str, int], tos: int
    ) -> int | None:
        """Send a datagram.

        Returns:
            0 if the datagram was sent, or the error number if the kernel refused it.
            None if there is no room now, so that the caller must try again later.
        """
        sender = self.senders[source_port]
        kind = (
            (socket.IPPROTO_IPV6, socket.IPV6_TCLASS)
            if self._sockets.is_ipv6
            else (socket.IPPROTO_IP, socket.IP_TOS)
        )
        # Try twice, because an ICMP error for an earlier packet makes one send fail.
        for last_try in (False, True):
            try:
                sender.sendmsg([datagram], [(*kind, struct.pack("i", tos))], 0, remote)
            except OSError as error:
                number = error.errno or errno.EIO
                if number in _NO_ROOM:
                    return None
                if last_try or number == errno.EMSGSIZE:
                    return number
            else:
                return 0
        return 0

    @property
    def socket_drops(self) -> int:
        """Number of packets dropped because the socket was full, 0 if unknown."""
        try:
            words = self.receiver.getsockopt(
                socket.SOL_SOCKET, _SO_MEMINFO, 4 * _MEMINFO_WORDS
            )
        except OSError:
            return 0
        return int.from_bytes(words[-4:], sys.byteorder)

    def arrivals(self, most: int) -> Iterator[tuple[memoryview, int, int]]:
        """Yield up to *most* datagrams, each with type of service and arrival time.

        The kernel records the arrival time, so the time is accurate even if the process
        is late. It is in ns since an arbitrary epoch, or 0 if unknown. A datagram is
        valid until you request the next one.
        """
        whole = memoryview(self._buffer)
        for _ in range(most):
            try:
                length, ancillary, _, _ = self.receiver.recvmsg_into(
                    [self._buffer], _ANCILLARY_BYTES
                )
            except (BlockingIOError, ConnectionRefusedError):
                return
            tos = stamp_ns = 0
            for level, kind, data in ancillary:
                if (level, kind) in (
                    (socket.IPPROTO_IP, socket.IP_TOS),
                    (socket.IPPROTO_IPV6, socket.IPV6_TCLASS),
                ):
                    tos = int.from_bytes(data, sys.byteorder)
                elif (level, kind) == (socket.SOL_SOCKET, _SO_TIMESTAMPNS):
                    seconds, rest_ns = _TIMESPEC.unpack(data)
                    stamp_ns = seconds * 10**9 + rest_ns
            yield whole[:length], tos, stamp_ns

    def answers(self, source_port: int) -> Iterator[Answer]:
        """Yield the new error reports about packets of one source port."""
        sender = self.senders[source_port]
        while True:
            try:
                datagram, ancillary, _, _ = sender.recvmsg(
                    _BUFFER_BYTES, _ANCILLARY_BYTES, _MSG_ERRQUEUE
                )
            except OSError:
                return
            for level, kind, data in ancillary:
                if (level, kind) in (
                    (socket.IPPROTO_IP, _IP_RECVERR),
                    (socket.IPPROTO_IPV6, _IPV6_RECVERR),
                ):
                    yield _answer(data, datagram)

    def close(self) -> None:
        """Close all sockets."""
        self._sockets.close()


def _answer(data: bytes, datagram: bytes) -> Answer:
    """Decode a record of the kernel's error queue (ip(7), IP_RECVERR)."""
    number, _, _, _, _, info, _ = _EXTENDED_ERROR.unpack_from(data)
    address = 0
    offender = data[_EXTENDED_ERROR.size :]
    if len(offender) >= 8 and struct.unpack_from("=H", offender)[0] == socket.AF_INET:
        address = int(IPv4Address(offender[4:8]))
    mtu = info if number == errno.EMSGSIZE else 0
    return Answer(number, mtu, address, datagram)
