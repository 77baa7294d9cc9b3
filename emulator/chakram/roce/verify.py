"""Check the ICRC of a sample of the packets that arrive.

A UDP socket does not see the IPv4 identification that the ICRC covers. Packets of our
own kind, and of kernels that send with don't-fragment from unconnected sockets, have
the number of the segment in its send, or 0; so these two are tried. A packet of a
sender that numbers otherwise fails the check: sample only between such peers.
"""

from __future__ import annotations

from ipaddress import ip_address

from chakram.roce.constants import ICRC_BYTES, UDP_PORT
from chakram.roce.icrc import icrc, masked_headers

__all__ = ["IcrcVerifier"]


class IcrcVerifier:
    """Checks every k-th packet of a port, by full computation."""

    def __init__(
        self, *, local_address: str, every: int, udp_port: int = UDP_PORT
    ) -> None:
        """Check one packet in *every*.

        Raises:
            ValueError: If *every* is not positive.
        """
        if every < 1:
            raise ValueError(f"one packet in {every} cannot be checked")
        self._local = ip_address(local_address).packed
        self._udp_port = udp_port
        self._every = every
        self._until_next = every
        self._addresses: dict[int, bytes] = {}

    def set_destination(self, destination: int, address: str) -> None:
        """Say which address a queue pair's *destination* stands for."""
        self._addresses[destination] = ip_address(address).packed

    def is_due(self) -> bool:
        """Count one packet; tell whether it is one to check."""
        self._until_next -= 1
        if self._until_next > 0:
            return False
        self._until_next = self._every
        return True

    def is_valid(
        self, packet: bytes, *, peer: int, source_port: int, segment: int
    ) -> bool:
        """Tell whether the ICRC of *packet* is right.

        Args:
            packet: The UDP payload.
            peer: The sender: the destination index of the queue pair.
            source_port: UDP port that it was sent from.
            segment: Its number among the segments that were received with it.
        """
        address = self._addresses.get(peer)
        if address is None:
            return False
        identifications = (segment, 0) if segment and len(address) == 4 else (0,)
        return any(
            icrc(
                masked_headers(
                    source=address,
                    destination=self._local,
                    source_port=source_port,
                    udp_payload_bytes=len(packet),
                    udp_port=self._udp_port,
                    identification=identification,
                ),
                packet[:-ICRC_BYTES],
            )
            == packet[-ICRC_BYTES:]
            for identification in identifications
        )
