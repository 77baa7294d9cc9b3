"""Ports on plain UDP sockets, with segmentation and coalescing by the kernel.

Facts that this rests on (Linux):

* An *unconnected* socket with path-MTU discovery DO sends IPv4 identification 0, and
  the segments of one send 0, 1, 2, ...  Only so can a valid ICRC be computed here, for
  it covers the identification.
* A switch spreads flows by their UDP source port, so every source port that the plan
  names is a socket of its own.  All of them send to, and one socket receives on, the
  RoCE port.
* A kernel bridge or veth passes a segmented send as one packet; a receiver without
  coalescing would make the sender cut it.
"""

from __future__ import annotations

import errno
import fcntl
import re
import resource
import socket
import struct
from typing import TYPE_CHECKING

from chakram.errors import AgentError, FabricError, PortInUse, PrivilegeError
from chakram_agent.dataplane.port import PortCapabilities

if TYPE_CHECKING:
    from chakram_agent.dataplane.port import PortOptions

__all__ = ["UdpPort"]

# Not in Python's socket module (linux/udp.h, linux/in.h).
_SOL_UDP = 17
_UDP_SEGMENT = 103
_UDP_GRO = 104
_IP_MTU_DISCOVER = 10
_IP_PMTUDISC_DO = 2
_IP_RECVTOS = 13
_SO_RXQ_OVFL = 40
_SO_SNDBUFFORCE = 32
_SO_RCVBUFFORCE = 33

_BUFFER_BYTES = 65_536
_ANCILLARY_BYTES = 3 * socket.CMSG_SPACE(4)
_CE = 3
_INTERFACE = re.compile(r"[A-Za-z0-9_.@-]{1,15}\Z")
# One socket per source port and one to receive, and as many again for the rest.
_SPARE_DESCRIPTORS = 256
_NO_ROOM = frozenset({errno.EAGAIN, errno.ENOBUFS})


class UdpPort:
    """A port on one address.

    Args:
        interface: Interface that packets must use; empty: what the routes say.
        options: Addresses, source ports, buffers.

    Raises:
        PortInUse: If somebody else has the address and UDP port.
        FabricError: If the address or the interface is not there.
        PrivilegeError: If this user may not do that.
    """

    def __init__(self, interface: str, options: PortOptions) -> None:
        if interface and not _INTERFACE.match(interface):
            raise FabricError(
                f"port udp:{interface}", "that is no name of an interface"
            )
        self.buffer = memoryview(bytearray(_BUFFER_BYTES))
        self.send_retries = 0
        self.socket_drops = 0
        self._buffers = [self.buffer]
        self._where = f"port udp:{interface} at {options.address}:{options.udp_port}"
        self._interface = interface
        self._options = options
        self._destinations = list(options.destinations)
        self._segmentation = True
        self._senders: dict[int, socket.socket] = {}
        # Ancillary data is the same for all sends with one segment size.
        self._ancillary: dict[int, list[tuple[int, int, bytes]]] = {}
        self._control_ancillary = (
            []
            if options.control_tos == options.data_tos
            else [
                (
                    socket.IPPROTO_IP,
                    socket.IP_TOS,
                    struct.pack("i", options.control_tos),
                )
            ]
        )
        _allow_descriptors(len(options.source_ports) + _SPARE_DESCRIPTORS)
        self._receiver = self._open(options.udp_port)
        try:
            self._coalescing = _try_option(self._receiver, _SOL_UDP, _UDP_GRO)
            self._receiver.setsockopt(socket.IPPROTO_IP, _IP_RECVTOS, 1)
            _try_option(self._receiver, socket.SOL_SOCKET, _SO_RXQ_OVFL)
            self._set_buffer(self._receiver, _SO_RCVBUFFORCE, socket.SO_RCVBUF)
            for number in sorted(set(options.source_ports)):
                sender = self._open(number)
                self._senders[number] = sender
                sender.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _IP_PMTUDISC_DO)
                sender.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, options.data_tos)
                self._set_buffer(sender, _SO_SNDBUFFORCE, socket.SO_SNDBUF)
                # Nothing is ever sent to it; what comes anyway must not pile up.
                sender.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        except BaseException:
            self.close()
            raise

    @property
    def capabilities(self) -> PortCapabilities:
        """What this port can do."""
        # The kernel doubles what is asked for, to account for its own structures.
        granted = self._receiver.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2
        return PortCapabilities(
            segmentation=self._segmentation,
            coalescing=self._coalescing,
            receive_buffer_bytes=granted,
        )

    def fileno(self) -> int:
        """Return the descriptor of the receiving socket."""
        return self._receiver.fileno()

    def send_burst(
        self,
        view: memoryview,
        segment_size: int,
        destination: int,
        source_port: int,
        control: bool,
    ) -> bool:
        """Send the bytes of one burst; False if there is no room now."""
        length = len(view)
        try:
            if control:
                ancillary = self._control_ancillary
            elif length <= segment_size:
                ancillary = _NOTHING
            elif self._segmentation:
                ancillary = self._segmented(segment_size)
            else:
                return self._send_singly(view, segment_size, destination, source_port)
            self._senders[source_port].sendmsg(
                [view], ancillary, 0, self._destinations[destination]
            )
        except BlockingIOError:
            self.send_retries += 1
            return False
        except OSError as error:
            return self._refused(error, view, segment_size, destination, source_port)
        return True

    def receive_burst(self) -> tuple[int, int, bool, int] | None:
        """Put what has arrived into ``buffer``; None if nothing has."""
        try:
            length, ancillary, _, sender = self._receiver.recvmsg_into(
                self._buffers, _ANCILLARY_BYTES
            )
        except BlockingIOError:
            return None
        except ConnectionRefusedError:
            return None  # an ICMP answer to something sent before
        segment_size = 0
        marked = False
        for level, kind, data in ancillary:
            if level == _SOL_UDP:
                segment_size = int.from_bytes(data[:4], "little")
            elif level == socket.IPPROTO_IP:
                marked = data[0] & _CE == _CE
            elif kind == _SO_RXQ_OVFL:
                self.socket_drops = int.from_bytes(data[:4], "little")
        return length, segment_size, marked, sender[1]

    def close(self) -> None:
        """Close all sockets."""
        self._receiver.close()
        for sender in self._senders.values():
            sender.close()

    def _segmented(self, segment_size: int) -> list[tuple[int, int, bytes]]:
        ancillary = self._ancillary.get(segment_size)
        if ancillary is None:
            ancillary = self._ancillary[segment_size] = [
                (_SOL_UDP, _UDP_SEGMENT, struct.pack("H", segment_size))
            ]
        return ancillary

    def _refused(
        self,
        error: OSError,
        view: memoryview,
        segment_size: int,
        destination: int,
        source_port: int,
    ) -> bool:
        if error.errno in _NO_ROOM:
            self.send_retries += 1
            return False
        if error.errno == errno.EIO and self._segmentation:
            # An interface without checksum offload cannot segment.
            self._segmentation = False
            return self._send_singly(view, segment_size, destination, source_port)
        address, udp_port = self._destinations[destination]
        hint = {
            errno.EMSGSIZE: "a packet is larger than an MTU on the way: lower path_mtu",
            errno.ENETUNREACH: "there is no route to it",
            errno.EHOSTUNREACH: "there is no route to it",
            errno.ENETDOWN: "the interface is down",
        }.get(error.errno or 0)
        raise AgentError(
            self._where, f"cannot send to {address}:{udp_port} ({error.strerror})", hint
        ) from error

    def _send_singly(
        self, view: memoryview, segment_size: int, destination: int, source_port: int
    ) -> bool:
        """Send the segments one by one; what finds no room counts as lost."""
        sender = self._senders[source_port]
        address = self._destinations[destination]
        for start in range(0, len(view), segment_size):
            try:
                sender.sendto(view[start : start + segment_size], address)
            except BlockingIOError:
                self.send_retries += 1
                # What has left cannot be taken back: the rest is lost on the way.
                return start > 0
        return True

    def _open(self, number: int) -> socket.socket:
        options = self._options
        sock = socket.socket(
            socket.AF_INET,
            socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC,
        )
        try:
            if self._interface:
                _bind_to_interface(sock, self._interface, self._where)
            sock.bind((options.address, number))
        except OSError as error:
            sock.close()
            if error.errno == errno.EADDRINUSE:
                raise PortInUse(
                    f"{options.address}:{number}",
                    "the UDP port is taken by another program",
                    "end it, or choose another fabric.udp_port",
                ) from error
            if error.errno == errno.EADDRNOTAVAIL:
                raise FabricError(
                    self._where,
                    "no interface has that address",
                    "see: ip address",
                ) from error
            if error.errno in (errno.EPERM, errno.EACCES):
                raise PrivilegeError(
                    self._where, f"cannot open UDP port {number} ({error.strerror})"
                ) from error
            raise FabricError(self._where, f"cannot open it ({error})") from error
        except BaseException:
            sock.close()
            raise
        return sock

    def _set_buffer(self, sock: socket.socket, forced: int, plain: int) -> None:
        """Ask for a large buffer, by force where that is allowed."""
        wanted = self._options.buffer_bytes
        try:
            sock.setsockopt(socket.SOL_SOCKET, forced, wanted)
        except PermissionError:
            sock.setsockopt(socket.SOL_SOCKET, plain, wanted)


_NOTHING: list[tuple[int, int, bytes]] = []


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
        fcntl.ioctl(sock, 0x8933, request)  # SIOCGIFINDEX
    except OSError as error:
        raise FabricError(
            where, f"there is no interface {interface}", "see: ip link"
        ) from error


def _allow_descriptors(more: int) -> None:
    """Raise the soft limit on open files, as far as the hard one goes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < hard:
        wanted = soft + more if hard == resource.RLIM_INFINITY else hard
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
