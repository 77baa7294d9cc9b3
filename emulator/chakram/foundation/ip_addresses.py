"""Addresses of IPv4 and IPv6, as far as the two differ for a fabric."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address

IPV4 = "ipv4"
IPV6 = "ipv6"
FAMILIES = (IPV4, IPV6)
"""Names of the address families."""

LOOPBACK_IPV6 = "::1"
"""The one loopback address of IPv6: all ports of a loopback fabric share it."""

IPV6_EXTRA_BYTES = 20
"""The header of IPv6 has 40 bytes, that of IPv4 20."""


def is_ipv6(address: str) -> bool:
    """Tell whether *address*, which is one of either kind, is of IPv6."""
    return ":" in address


def family_of(address: str) -> str:
    """Return ``ipv4`` or ``ipv6``, whichever *address* is of."""
    return IPV6 if is_ipv6(address) else IPV4


def address_halves(address: str) -> tuple[int, int]:
    """Return an address as two numbers of 64 bits; the first one of IPv4 is 0.

    So two addresses of one family are compared without making an object of either.
    """
    number = int(ip_address(address.partition("%")[0]))
    return number >> 64, number & 0xFFFFFFFFFFFFFFFF


def address_of_halves(high: int, low: int, *, is_ipv6: bool) -> str:
    """Return the address of two numbers that `address_halves` has made."""
    return str(IPv6Address(high << 64 | low) if is_ipv6 else IPv4Address(low))


def socket_text(address: str, port: int) -> str:
    """Return an address with a UDP or TCP port as people write them.

    Source: RFC 5952, section 6: ``[2001:db8::1]:4791``.
    """
    return f"[{address}]:{port}" if is_ipv6(address) else f"{address}:{port}"


def why_unusable(address: str) -> str | None:
    """Return what keeps ports from having *address*, or None if nothing does.

    Raises:
        ValueError: If it is no address.
    """
    parsed = ip_address(address)
    if isinstance(parsed, IPv6Address):
        if parsed.scope_id is not None or parsed.is_link_local:
            return "link-local addresses mean another host on every link"
        if parsed.ipv4_mapped is not None:
            return "it stands for an IPv4 address; write that"
    is_broadcast = str(parsed) == "255.255.255.255"
    if parsed.is_multicast or parsed.is_unspecified or is_broadcast:
        return "it is not the address of a single port"
    return None
