"""Forged packets of senders that are no peers, with correct ICRCs."""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING, NamedTuple

from chakram.roce.constants import ICRC_BYTES
from chakram.roce.headers import (
    Aeth,
    Bth,
    ImmDt,
    Packet,
    Reth,
    encode_packet,
)
from chakram.roce.icrc import icrc, masked_headers
from chakram.roce.opcodes import NakCode, Opcode

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["FORGERIES", "Way", "sealed"]


class Way(NamedTuple):
    """Where a packet claims to come from, and where it goes."""

    source: str
    destination: str
    source_port: int = 0xC000
    udp_port: int = 4791


def _ack(qpn: int, psn: int) -> Packet:
    bth = Bth(opcode=Opcode.ACKNOWLEDGE, destination_qpn=qpn, psn=psn)
    return Packet(bth=bth, aeth=Aeth(syndrome=0x1F, msn=1))


def _nak(qpn: int, psn: int) -> Packet:
    bth = Bth(opcode=Opcode.ACKNOWLEDGE, destination_qpn=qpn, psn=psn)
    return Packet(bth=bth, aeth=Aeth(syndrome=NakCode.PSN_SEQUENCE_ERROR, msn=1))


def _fatal(qpn: int, psn: int) -> Packet:
    bth = Bth(opcode=Opcode.ACKNOWLEDGE, destination_qpn=qpn, psn=psn)
    return Packet(bth=bth, aeth=Aeth(syndrome=NakCode.REMOTE_ACCESS_ERROR, msn=1))


def _cnp(qpn: int, psn: int) -> Packet:
    bth = Bth(opcode=Opcode.CNP, destination_qpn=qpn, psn=psn, backward_congestion=True)
    return Packet(bth=bth, payload=bytes(16))


def _data(qpn: int, psn: int) -> Packet:
    return Packet(
        bth=Bth(
            opcode=Opcode.WRITE_ONLY_WITH_IMMEDIATE,
            destination_qpn=qpn,
            psn=psn,
            ack_request=True,
        ),
        reth=Reth(virtual_address=0, remote_key=0, dma_length_bytes=4),
        immediate=ImmDt(value=0),
        payload=b"forg",
    )


def _read(qpn: int, psn: int) -> Packet:
    return Packet(
        bth=Bth(opcode=Opcode.READ_REQUEST, destination_qpn=qpn, psn=psn),
        reth=Reth(virtual_address=0, remote_key=0, dma_length_bytes=4),
    )


FORGERIES: dict[str, Callable[[int, int], Packet]] = {
    "ack": _ack,
    "nak": _nak,
    "fatal nak": _fatal,
    "cnp": _cnp,
    "data": _data,
    "read": _read,
}
"""By name, what makes one for a queue pair number and a PSN."""


def sealed(packet: Packet, way: Way) -> bytes:
    """Return the UDP payload of *packet* with its ICRC."""
    transport = encode_packet(packet)[:-ICRC_BYTES]
    headers = masked_headers(
        source=ip_address(way.source).packed,
        destination=ip_address(way.destination).packed,
        source_port=way.source_port,
        udp_payload_bytes=len(transport) + ICRC_BYTES,
        udp_port=way.udp_port,
    )
    return transport + icrc(headers, transport)
