"""Probe packets: RoCEv2 datagrams whose payload identifies the probe.

A probe is a SEND ONLY packet of the unreliable datagram service with a valid ICRC. Its
destination is a queue pair that does not exist, so an RDMA adapter drops the packet. A
switch classifies it like the packets of a run. This module does no I/O.
"""

from __future__ import annotations

import hashlib
import struct
from ipaddress import ip_address
from typing import NamedTuple

from chakram.roce.constants import BTH_BYTES, ICRC_BYTES
from chakram.roce.headers import Bth, Deth, Packet, encode_packet, size_bytes
from chakram.roce.icrc import icrc, masked_headers
from chakram.roce.opcodes import Opcode

# A QPN beyond the QPNs of any plan. It is near the highest QPN, which is for multicast.
_UNUSED_QPN = 0xFFFFF0
_UDP_BYTES = 8
_NAME = struct.Struct(">8sIIII")
_NAME_AT = BTH_BYTES + size_bytes(Deth)


class ProbeName(NamedTuple):
    """Identification of a probe (see ``chakram.plan.probes``)."""

    source: int
    destination: int
    packet: int
    path: int


def token_of(run_id: str) -> bytes:
    """Return the token that identifies the probes of one run."""
    return hashlib.blake2b(run_id.encode(), digest_size=8).digest()


def probe_datagram(
    name: ProbeName,
    *,
    token: bytes,
    size_bytes: int,
    local: tuple[str, int],
    remote: tuple[str, int],
) -> bytes:
    """Return the UDP payload of a probe.

    Args:
        name: Identification of the probe.
        token: Token of the run.
        size_bytes: Length of the whole IP packet, rounded down to a multiple of 4.
        local: Source address and UDP port.
        remote: Destination address and UDP port.
    """
    source, destination = ip_address(local[0]), ip_address(remote[0])
    ip_bytes = 20 if source.version == 4 else 40
    datagram_bytes = size_bytes // 4 * 4 - ip_bytes - _UDP_BYTES
    payload = _NAME.pack(token, *name)
    room_bytes = datagram_bytes - _NAME_AT - ICRC_BYTES
    packet = Packet(
        bth=Bth(
            opcode=Opcode.UD_SEND_ONLY, destination_qpn=_UNUSED_QPN, psn=name.packet
        ),
        deth=Deth(queue_key=0, source_qpn=_UNUSED_QPN),
        payload=payload.ljust(room_bytes, b"\0"),
    )
    transport = encode_packet(packet)[:-ICRC_BYTES]
    headers = masked_headers(
        source=source.packed,
        destination=destination.packed,
        source_port=local[1],
        udp_payload_bytes=len(transport) + ICRC_BYTES,
        udp_port=remote[1],
    )
    return transport + icrc(headers, transport)


def name_of(datagram: bytes | memoryview, *, token: bytes) -> ProbeName | None:
    """Return a probe's identification, or None if it is not a probe of this run."""
    if len(datagram) < _NAME_AT + _NAME.size or datagram[0] != Opcode.UD_SEND_ONLY:
        return None
    found, *numbers = _NAME.unpack_from(datagram, _NAME_AT)
    return ProbeName(*numbers) if found == token else None
