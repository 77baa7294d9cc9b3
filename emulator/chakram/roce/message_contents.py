"""Bursts of messages with contents of their own: bytes by the readable form of packets.

What a packet carries is mostly of no interest, so `chakram.roce.packet_buffer` sends a
fixed pattern, whose share in the ICRC is known. Where a peer is to find certain bytes,
as in tests with other implementations, every byte goes through the CRC here: some ten
microseconds for a packet, which is too slow for load.
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


# By verb, whether a packet is the first and the last of its message, and whether it
# has immediate data.
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
    """Turns the bursts of one port that have contents into UDP payloads.

    All carry a right ICRC, whatever the port's mode for the pattern is.
    """

    def __init__(self, *, local_address: str) -> None:
        """Send from *local_address*, of IPv4 or IPv6."""
        self._local = ip_address(local_address).packed
        self._destinations: dict[int, tuple[bytes, int]] = {}
        self._is_numbered = True

    def set_destination(self, destination: int, address: str, udp_port: int) -> None:
        """Say which peer a queue pair's *destination* stands for."""
        self._destinations[destination] = (ip_address(address).packed, udp_port)

    def leave_alone(self) -> None:
        """Seal packets as what they will be; see `WireEncoder.leave_alone`."""
        self._is_numbered = False

    def encode(self, burst: Burst) -> tuple[memoryview, int]:
        """Return the UDP payloads of *burst*, as `WireEncoder.encode` does.

        Raises:
            ValueError: If it has no contents, or its destination is not known.
        """
        contents = burst.contents
        if contents is None or burst.destination not in self._destinations:
            raise ValueError(f"{burst!r} has no contents, or nowhere to go")
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
