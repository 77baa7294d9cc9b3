"""Options and capabilities of ports (see ``open_port``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import socket

__all__ = ["PortCapabilities", "PortOptions", "of_class"]

_HAS_CLASS = 1 << 24


def of_class(source_port: int, tos: int) -> int:
    """Encode a UDP source port whose packets have a separate type of service."""
    return _HAS_CLASS | tos << 16 | source_port


def class_of(source_port: int) -> tuple[int, int | None]:
    """Decode a source port into the UDP port and its type of service, if separate."""
    tos = source_port >> 16 & 0xFF if source_port & _HAS_CLASS else None
    return source_port & 0xFFFF, tos


@dataclass(frozen=True, slots=True, kw_only=True)
class PortOptions:
    """Options of a port.

    Attributes:
        address: Local IPv4 or IPv6 address.
        udp_port: UDP port to receive on.
        destinations: Address and UDP port for each destination index of bursts. All
            addresses have the same IP version.
        source_ports: UDP source ports that bursts may use. ``of_class`` encodes ports
            with a separate class.
        data_tos: Type-of-service byte or traffic class of data packets: DSCP << 2 |
            ECN.
        control_tos: Type of service of ACKs and NAKs.
        cnp_tos: Type of service of CNPs.
        buffer_bytes: Socket buffer to request, per direction.
        receiver: Receiving socket of this part of a divided port. If it is None, the
            port opens a socket.
    """

    address: str
    udp_port: int
    destinations: Sequence[tuple[str, int]]
    source_ports: Sequence[int]
    data_tos: int
    control_tos: int
    cnp_tos: int
    buffer_bytes: int = 4 << 20
    receiver: socket.socket | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PortCapabilities:
    """Capabilities of a port.

    Attributes:
        segmentation: Whether one send can carry many packets (UDP GSO).
        coalescing: Whether one receive can deliver many packets (UDP GRO).
    """

    segmentation: bool
    coalescing: bool
