"""What all ports have in common: bursts of packets go out, bursts come in.

A port does no protocol: it takes the bytes of one burst (equal segments, the last one
possibly shorter) and hands out the bytes of what has arrived in the same form.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chakram_agent.dataplane.port_options import PortCapabilities

__all__ = ["Port"]


class Port:
    """A place where packets leave and enter; each kind of port is a subclass.

    Attributes:
        buffer: Begins with the bytes of the last arrival.
        length: How many they are.
        segment_size: Length of each packet in them but the last; 0: it is one packet.
        marked: Whether they are marked "congestion experienced".
        source_port: UDP port that they were sent from.
        source_high: Address that they were sent from, as two numbers: see
            ``chakram.foundation.ip_addresses.address_halves``.
        source_low: Likewise.
        send_retries: How often there was no room to send, or the interface was down.
        segments: Whether the packets of one send stay together until the kernel or the
            interface takes them apart, and numbers them in the IPv4 identification.
            If not, each leaves by a send of its own, with identification 0. A port
            that cannot may find out only when it sends.
        socket_drops: What was dropped for want of room to receive.
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
        """What this port can do."""
        raise NotImplementedError

    def fileno(self) -> int:
        """Return a descriptor that is readable when something has arrived."""
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
        """Send the bytes of one burst; False if there is no room now.

        If it is now that the port finds out that it cannot segment, it says so in
        ``segments``, sends nothing, and returns False, too: the packets that it was
        given carry ICRCs for other identifications than they would get.

        Args:
            view: The packets, one behind the other.
            segment_size: Length of each of them but the last, which may be shorter.
            destination: Index into the destinations that the port was opened with.
            source_port: One of the source ports that it was opened with.
            kind: A ``BurstKind``, which decides about the class, unless the source port
                does.
            marked: Whether it leaves marked "congestion experienced"; one packet only.

        Raises:
            AgentError: If the port cannot be used any more.
        """
        raise NotImplementedError

    def receive_burst(self) -> bool:
        """Put the next arrival into the attributes; False if there is none now.

        False may also mean that there was none a moment ago: go on when ``fileno`` is
        readable.

        Raises:
            AgentError: If the port cannot be used any more.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Release everything; nothing happens the second time."""
        raise NotImplementedError
