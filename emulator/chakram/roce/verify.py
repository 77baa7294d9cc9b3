"""Check the ICRC of a sample of the packets that arrive.

A UDP socket does not see the IPv4 identification that the ICRC covers. A sender of our
kind, that is one with don't-fragment and unconnected sockets, has the number of the
segment in its send there. Which one that was cannot be told when neighbours were lost,
so any of the possible numbers will do: a wrong ICRC is still taken for right only once
in 2**25. A packet of a sender that numbers otherwise fails the check.
"""

from __future__ import annotations

from ipaddress import ip_address

from chakram.roce.constants import ICRC_BYTES, UDP_PORT
from chakram.roce.icrc import icrc, identification_table, masked_headers

__all__ = ["IcrcVerifier"]

_MAX_SEGMENTS = 128
"""The kernel numbers no more segments of one send."""


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

    def is_valid(self, packet: bytes, *, peer: int, source_port: int) -> bool:
        """Tell whether the ICRC of *packet* is right.

        Args:
            packet: The UDP payload.
            peer: The sender: the destination index of the queue pair.
            source_port: UDP port that it was sent from.
        """
        address = self._addresses.get(peer)
        if address is None:
            return False
        headers = masked_headers(
            source=address,
            destination=self._local,
            source_port=source_port,
            udp_payload_bytes=len(packet),
            udp_port=self._udp_port,
        )
        expected = icrc(headers, packet[:-ICRC_BYTES])
        found = packet[-ICRC_BYTES:]
        if found == expected:
            return True
        if len(address) != 4:
            return False
        # What an identification changes does not depend on anything but the length.
        changes = identification_table(8 + len(packet) - ICRC_BYTES)
        difference = int.from_bytes(expected, "little") ^ int.from_bytes(
            found, "little"
        )
        return difference in changes[:_MAX_SEGMENTS]
