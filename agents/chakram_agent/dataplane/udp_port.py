"""Ports on UDP sockets, with Python's socket module or the faster ``_batch``."""

from __future__ import annotations

import errno
import socket
import struct
import sys
from functools import lru_cache
from types import ModuleType

from chakram.foundation.ip_addresses import address_halves
from chakram.roce.constants import BurstKind
from chakram_agent.dataplane.port_base import Port
from chakram_agent.dataplane.port_options import PortCapabilities, PortOptions, class_of
from chakram_agent.dataplane.udp_sockets import (
    SO_RXQ_OVFL,
    SOL_UDP,
    UDP_SEGMENT,
    UdpSockets,
)

_batch: ModuleType | None
try:
    from chakram_agent.dataplane import _batch
except ImportError:  # the extension is not built, or is disabled
    _batch = None


_BUFFER_BYTES = 65_536
_ANCILLARY_BYTES = 3 * socket.CMSG_SPACE(4)
_CE = 3
_DATA = int(BurstKind.DATA)
_IP_LEVELS = (socket.IPPROTO_IP, socket.IPPROTO_IPV6)

# The cache has a limit, because packets may come from any address.
_halves = lru_cache(maxsize=4096)(address_halves)

_Ancillary = list[tuple[int, int, bytes]]
_NOTHING: _Ancillary = []


def _type_of_service(tos: int, *, is_ipv6: bool) -> tuple[int, int, bytes]:
    if is_ipv6:
        return socket.IPPROTO_IPV6, socket.IPV6_TCLASS, struct.pack("i", tos)
    return socket.IPPROTO_IP, socket.IP_TOS, struct.pack("i", tos)


def open_udp_port(interface: str, options: PortOptions) -> Port:
    """Open a port in the calling thread's network namespace (see ``UdpSockets``)."""
    sockets = UdpSockets(interface, options)
    try:
        if _batch is None:
            return UdpPort(sockets)
        port: Port = _batch.BatchPort(sockets)
        return port
    except BaseException:
        sockets.close()
        raise


class UdpPort(Port):
    """A port that uses Python's socket module."""

    def __init__(self, sockets: UdpSockets) -> None:
        super().__init__()
        self._bytes = memoryview(bytearray(_BUFFER_BYTES))
        self.buffer = self._bytes
        self._buffers = [self._bytes]
        self._sockets = sockets
        self.segments = sockets.segmentation
        self._destinations = list(sockets.options.destinations)
        # Ancillary data of a send, by segment size.
        self._ancillary: dict[int, _Ancillary] = {}
        self._control_ancillary = [
            _NOTHING
            if tos is None
            else [_type_of_service(tos, is_ipv6=sockets.is_ipv6)]
            for tos in map(sockets.tos_of, BurstKind)
        ]

    @property
    def capabilities(self) -> PortCapabilities:
        """Capabilities of this port."""
        return self._sockets.capabilities()

    def fileno(self) -> int:
        """Return the descriptor of the receiving socket."""
        return self._sockets.receiver.fileno()

    def send_burst(
        self,
        view: memoryview,
        segment_size: int,
        destination: int,
        source_port: int,
        kind: int,
        marked: bool = False,
    ) -> bool:
        """Send the bytes of one burst, or return False if there is no room now."""
        if marked:
            tos = self._sockets.marked_tos(kind, source_port)
            ancillary = [_type_of_service(tos, is_ipv6=self._sockets.is_ipv6)]
        elif kind != _DATA:
            has_class = class_of(source_port)[1] is not None
            ancillary = _NOTHING if has_class else self._control_ancillary[kind]
        elif len(view) <= segment_size:
            ancillary = _NOTHING
        elif self.segments:
            ancillary = self._segmented(segment_size)
        else:
            return self._send_singly(view, segment_size, destination, source_port)
        try:
            self._sockets.senders[source_port].sendmsg(
                [view], ancillary, 0, self._destinations[destination]
            )
        except OSError as error:
            number = error.errno or 0
            if number == errno.EIO and self.segments:
                # The interface has no checksum offload, so it cannot segment.
                self.segments = self._sockets.segmentation = False
                return False
            if not self._sockets.has_no_room(number, destination):
                raise self._sockets.cannot_send(number, destination) from error
            self.send_retries += 1
            return False
        return True

    def receive_burst(self) -> bool:
        """Store the next arrival in the attributes. Return False if there is none."""
        receiver = self._sockets.receiver
        try:
            length, ancillary, _, sender = receiver.recvmsg_into(
                self._buffers, _ANCILLARY_BYTES
            )
        except (BlockingIOError, ConnectionRefusedError):
            return False  # ConnectionRefused reports an ICMP error
        except OSError as error:
            raise self._sockets.cannot_receive(error.errno or 0) from error
        self.length = length
        self.segment_size = 0
        self.marked = False
        self.source_port = sender[1]
        self.source_high, self.source_low = _halves(sender[0])
        for level, kind, data in ancillary:
            if level == SOL_UDP:
                self.segment_size = int.from_bytes(data[:4], "little")
            elif level in _IP_LEVELS:
                # The data are one byte for IPv4, and an int for IPv6.
                self.marked = int.from_bytes(data, sys.byteorder) & _CE == _CE
            elif kind == SO_RXQ_OVFL:
                self.socket_drops = int.from_bytes(data[:4], "little")
        return True

    def close(self) -> None:
        """Close all sockets."""
        self._sockets.close()

    def _segmented(self, segment_size: int) -> _Ancillary:
        ancillary = self._ancillary.get(segment_size)
        if ancillary is None:
            ancillary = self._ancillary[segment_size] = [
                (SOL_UDP, UDP_SEGMENT, struct.pack("H", segment_size))
            ]
        return ancillary

    def _send_singly(
        self, view: memoryview, segment_size: int, destination: int, source_port: int
    ) -> bool:
        """Send the segments one by one. Segments after a failure count as lost."""
        sender = self._sockets.senders[source_port]
        address = self._destinations[destination]
        for start in range(0, len(view), segment_size):
            try:
                sender.sendto(view[start : start + segment_size], address)
            except OSError as error:
                number = error.errno or 0
                if not self._sockets.has_no_room(number, destination):
                    raise self._sockets.cannot_send(number, destination) from error
                self.send_retries += 1
                # If earlier segments have left, the others count as lost, because the
                # port must not send the burst again.
                return start > 0
        return True
