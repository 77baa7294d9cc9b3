"""Ports: where bursts of packets leave and enter.

A port does no protocol: it takes the bytes of one burst (equal segments, the last one
possibly shorter) and hands out the bytes of what has arrived in the same form.  It is
opened by a specification such as ``udp:eth0`` (see ``open_port``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Port", "PortCapabilities", "PortOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PortOptions:
    """How a port is opened.

    Attributes:
        address: Local IPv4 address.
        udp_port: UDP port that it receives on and sends to.
        destinations: (address, UDP port) by the index that bursts carry.
        source_ports: UDP source ports that bursts may name.
        data_tos: Type-of-service byte of data packets: DSCP << 2 | ECN.
        control_tos: The same of ACKs, NAKs and CNPs.
        buffer_bytes: Socket buffer to ask for, per direction.
    """

    address: str
    udp_port: int
    destinations: Sequence[tuple[str, int]]
    source_ports: Sequence[int]
    data_tos: int
    control_tos: int
    buffer_bytes: int = 4 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class PortCapabilities:
    """What a port can do.

    Attributes:
        segmentation: One send carries many packets (UDP GSO).
        coalescing: One receive delivers many packets (UDP GRO).
        receive_buffer_bytes: What the kernel granted.
    """

    segmentation: bool
    coalescing: bool
    receive_buffer_bytes: int


class Port(Protocol):
    """What the data plane needs of a port.

    ``buffer`` holds the bytes of the last ``receive_burst``.
    """

    buffer: memoryview
    send_retries: int
    socket_drops: int

    @property
    def capabilities(self) -> PortCapabilities:
        """What this port can do."""

    def fileno(self) -> int:
        """Return a descriptor that is readable when something has arrived."""

    def send_burst(
        self,
        view: memoryview,
        segment_size: int,
        destination: int,
        source_port: int,
        control: bool,
    ) -> bool:
        """Send the bytes of one burst; False if there is no room now.

        Raises:
            OSError: If the port cannot be used any more.
        """

    def receive_burst(self) -> tuple[int, int, bool, int] | None:
        """Put what has arrived into ``buffer``; None if nothing has.

        Returns:
            Length; segment size (0: one packet); whether it is marked "congestion
            experienced"; UDP source port of the sender.
        """

    def close(self) -> None:
        """Release everything; nothing happens the second time."""
