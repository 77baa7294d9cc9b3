"""Encoder for bursts whose messages have explicit contents.

`chakram.roce.packet_encoder` sends a fixed pattern with a known effect on the ICRC. Use
the encoder below if a peer must receive specific bytes, as in tests with other
implementations. It computes the CRC over every byte. This takes about ten microseconds
per packet, which is too slow to generate load.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING

from chakram.roce.constants import ICRC_BYTES, Verb
from chakram.roce.headers import Bth, ImmDt, Packet, Reth, encode_packet
from chakram.roce.icrc import icrc, masked_headers
from chakram.roce.opcodes import Opcode

if TYPE_CHECKING:
    from chakram.roce.burst import Burst


# Key: verb, is first packet, is last packet, has immediate data.
_OPCODES = {
    (verb, *place): Opcode[f"{verb.name}_{name}"]
    for verb in Verb
    for place, name in (
        ((True, False, False), "FIRST"),
        ((False, False, False), "MIDDLE"),
        ((False, True, False), "LAST"),
        ((False, True, True), "LAST_WITH_IMMEDIATE"),
        ((True, True, False), "ONLY"),
        ((True, True, True), "ONLY_WITH_IMMEDIATE"),
    )
}


class ContentsEncoder:
    """Encoder of one port's bursts with explicit contents.

    All packets carry a valid ICRC, whatever ICRC mode the port uses for the pattern.
    """

    def __init__(self, *, local_address: str) -> None:
        """Create an encoder of packets from an IPv4 or IPv6 *local_address*."""
        self._local = ip_address(local_address).packed
        self._destinations: dict[int, tuple[bytes, int]] = {}
        self._is_numbered = True

    def set_destination(self, destination: int, address: str, udp_port: int) -> None:
        """Set the address and UDP port of a *destination* index."""
        self._destinations[destination] = (ip_address(address).packed, udp_port)

    def send_unsegmented(self) -> None:
        """Compute ICRCs for packets sent one by one: see `WireEncoder`."""
        self._is_numbered = False

    def encode(self, burst: Burst) -> tuple[memoryview, int]:
        """Return the UDP payloads of *burst* and their size: see `WireEncoder.encode`.

        Raises:
            ValueError: If the burst has no contents, or its destination is unknown.
        """
        contents = burst.contents
        if contents is None or burst.destination not in self._destinations:
            raise ValueError(f"{burst!r} has no contents or no destination")
        packets = [
            self._packet(burst, contents, position) for position in range(burst.count)
        ]
        return memoryview(b"".join(packets)), len(packets[0])

    def _packet(self, burst: Burst, contents: bytes, position: int) -> bytes:
        index = burst.packet_index + position
        is_first = index == 0
        is_last = index == burst.message_packets - 1
        is_told = is_last and burst.message_id >= 0
        start = index * burst.path_mtu
        opcode = _OPCODES[Verb(burst.verb), is_first, is_last, is_told]
        packet = Packet(
            bth=Bth(
                opcode=opcode,
                destination_qpn=burst.destination_qpn,
                psn=(burst.psn + position) & 0xFFFFFF,
                ack_request=burst.ack_request and position == burst.count - 1,
                migrated=True,
            ),
            reth=Reth(
                virtual_address=burst.remote_address,
                remote_key=burst.remote_key,
                dma_length_bytes=burst.message_bytes,
            )
            if is_first and burst.verb == Verb.WRITE
            else None,
            immediate=ImmDt(value=burst.message_id) if is_told else None,
            payload=contents[start : start + burst.packet_payload_bytes(position)],
        )
        transport = encode_packet(packet)[:-ICRC_BYTES]
        address, udp_port = self._destinations[burst.destination]
        headers = masked_headers(
            source=self._local,
            destination=address,
            source_port=burst.source_port,
            udp_payload_bytes=len(transport) + ICRC_BYTES,
            udp_port=udp_port,
            identification=position if self._is_numbered else 0,
        )
        return transport + icrc(headers, transport)
