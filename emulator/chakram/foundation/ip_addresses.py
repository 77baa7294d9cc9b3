"""Helpers for the IPv4 and IPv6 addresses of a fabric."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address

IPV4 = "ipv4"
IPV6 = "ipv6"
FAMILIES = (IPV4, IPV6)
"""Names of the address families."""

LOOPBACK_IPV6 = "::1"
"""The only IPv6 loopback address, which all ports of a loopback fabric share."""

IPV6_EXTRA_BYTES = 20
"""Bytes by which an IPv6 header (40 bytes) is longer than an IPv4 header (20)."""


def is_ipv6(address: str) -> bool:
    """Return whether *address*, which must be valid, is an IPv6 address."""
    return ":" in address


def family_of(address: str) -> str:
    """Return the family of *address*, ``ipv4`` or ``ipv6``."""
    return IPV6 if is_ipv6(address) else IPV4


@lru_cache(maxsize=4096)
def address_halves(address: str) -> tuple[int, int]:
    """Return an address as two 64-bit numbers, the first of which is 0 for IPv4.

    Two addresses of one family can then be compared without creating address objects.
    """
    number = int(ip_address(address.partition("%")[0]))
    return number >> 64, number & 0xFFFFFFFFFFFFFFFF


def address_of_halves(high: int, low: int, *, is_ipv6: bool) -> str:
    """Return the address that `address_halves` converted to these numbers."""
    return str(IPv6Address(high << 64 | low) if is_ipv6 else IPv4Address(low))


def socket_text(address: str, port: int) -> str:
    """Return an address with a UDP or TCP port in the usual notation.

    Source: RFC 5952, section 6: ``[2001:db8::1]:4791``.
    """
    return f"[{address}]:{port}" if is_ipv6(address) else f"{address}:{port}"


def is_encodable(host: str) -> bool:
    """Return whether a host may have this name or address, which may be empty.

    A part of a name must not be empty or longer than 63 bytes.
    """
    try:
        host.encode("idna")
    except UnicodeError:
        return False
    return True


def has_port(address: str) -> bool:
    """Return whether an address has both a host and a port, as ``host:port``."""
    host, _, port = address.rpartition(":")
    is_number = port.isascii() and port.isdigit()
    is_port = is_number and len(port) <= 5 and int(port) < 1 << 16
    return is_port and is_encodable(host)


def why_unusable(address: str) -> str | None:
    """Return the reason why a port cannot have *address*, or None if it can.

    Raises:
        ValueError: If *address* is not an IP address.
    """
    parsed = ip_address(address)
    if isinstance(parsed, IPv6Address):
        if parsed.scope_id is not None or parsed.is_link_local:
            return "a link-local address may belong to another host on every link"
        if parsed.ipv4_mapped is not None:
            return "it represents an IPv4 address; use the IPv4 address"
    is_broadcast = str(parsed) == "255.255.255.255"
    if parsed.is_multicast or parsed.is_unspecified or is_broadcast:
        return "it is not the address of a single port"
    return None


def is_loopback(listen: str) -> bool:
    """Return whether an ``address:port`` can be reached from this machine only."""
    host = listen.rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
