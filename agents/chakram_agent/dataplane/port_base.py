"""Base class of ports, which send and receive bursts of packets.

A burst is a sequence of segments of equal length, except that the last segment may be
shorter. A port implements no protocol. It sends the bytes of bursts and delivers
arrivals as bursts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chakram_agent.dataplane.port_options import PortCapabilities

__all__ = ["Port"]


class Port:
    """Base class of ports, which send and receive bursts of packets.

    Attributes:
        buffer: Buffer that begins with the bytes of the last arrival.
        length: Length of the last arrival in bytes.
        segment_size: Length of each packet in the arrival except the last packet. 0 if
            the arrival is a single packet.
        marked: Whether the arrival is marked "congestion experienced".
        source_port: UDP source port of the arrival.
        source_high: Upper half of the arrival's source address (see
            ``chakram.foundation.ip_addresses.address_halves``).
        source_low: Lower half of that address.
        send_retries: Number of sends that failed for lack of room or because the
            interface was down.
        segments: Whether the kernel or the interface splits a send into packets and
            numbers them in the IPv4 identification. If not, the port sends each packet
            separately with identification 0. Some ports can detect only during a send
            that they cannot segment.
        socket_drops: Number of packets dropped because the receive buffer was full.
    """

    __slots__ = (
        "buffer",
        "length",
        "marked",
        "segment_size",
        "segments",
        "send_retries",
        "socket_drops",
        "source_high",
        "source_low",
        "source_port",
    )

    def __init__(self) -> None:
        self.buffer: memoryview = memoryview(bytearray(1))
        self.length = 0
        self.segment_size = 0
        self.marked = False
        self.source_port = 0
        self.source_high = 0
        self.source_low = 0
        self.segments = True
        self.send_retries = 0
        self.socket_drops = 0

    @property
    def capabilities(self) -> PortCapabilities:
        """Capabilities of this port."""
        raise NotImplementedError

    def fileno(self) -> int:
        """Return a descriptor that is readable when packets have arrived."""
        raise NotImplementedError

    def send_burst(
        self,
        view: memoryview,
        segment_size: int,
        destination: int,
        source_port: int,
        kind: int,
        marked: bool = False,
    ) -> bool:
        """Send the bytes of one burst, or return False if there is no room now.

        If the port detects here that it cannot segment, it clears ``segments``, sends
        nothing and returns False. The caller must encode the burst again, because the
        ICRCs in it cover the IPv4 identifications of segmented packets.

        Args:
            view: The packets, without gaps between them.
            segment_size: Length of each packet except the last, which may be shorter.
            destination: Index into the destinations that the port was opened with.
            source_port: One of the source ports that the port was opened with.
            kind: A ``BurstKind``. It selects the traffic class, unless the source port
                selects the class.
            marked: Whether to mark the packet "congestion experienced". A marked burst
                must be a single packet.

        Raises:
            AgentError: If the port is no longer usable.
        """
        raise NotImplementedError

    def receive_burst(self) -> bool:
        """Store the next arrival in the attributes, or return False if there is none.

        If the port has checked the socket recently, it may return False without a
        check. Call this method again when ``fileno`` is readable.

        Raises:
            AgentError: If the port is no longer usable.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Release all resources. Later calls have no effect."""
        raise NotImplementedError
