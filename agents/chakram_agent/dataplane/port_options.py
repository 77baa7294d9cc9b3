"""How ports are opened, and what they can do; see ``open_port``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from chakram_agent.dataplane.burst_port import Port

if TYPE_CHECKING:
    import socket

__all__ = ["Port", "PortCapabilities", "PortOptions", "of_class"]

_HAS_CLASS = 1 << 24


def of_class(source_port: int, tos: int) -> int:
    """Return what stands for a UDP source port in a class other than that of data."""
    return _HAS_CLASS | tos << 16 | source_port


def class_of(source_port: int) -> tuple[int, int | None]:
    """Return a UDP source port as it is, and its type of service if it has its own."""
    tos = source_port >> 16 & 0xFF if source_port & _HAS_CLASS else None
    return source_port & 0xFFFF, tos


@dataclass(frozen=True, slots=True, kw_only=True)
class PortOptions:
    """How a port is opened.

    Attributes:
        address: Local address, of IPv4 or IPv6.
        udp_port: UDP port that it receives on and sends to.
        destinations: (address, UDP port) by the index that bursts carry; of the same
            IP version.
        source_ports: UDP source ports that bursts may name; those in other classes as
            ``of_class`` has them.
        data_tos: Type-of-service byte, or traffic class, of data packets:
            DSCP << 2 | ECN.
        control_tos: The same of ACKs and NAKs.
        cnp_tos: The same of CNPs.
        buffer_bytes: Socket buffer to ask for, per direction.
        receiver: The socket to receive on, where the port is divided: others have
            theirs at the same place.  None: it is opened here.
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
    """What a port can do.

    Attributes:
        segmentation: One send carries many packets (UDP GSO).
        coalescing: One receive delivers many packets (UDP GRO).
        receive_buffer_bytes: What the kernel granted.
    """

    segmentation: bool
    coalescing: bool
    receive_buffer_bytes: int
