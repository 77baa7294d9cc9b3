"""The Linux kernel's choice among equal-cost next hops, exactly.

What ``net.ipv4.fib_multipath_hash_policy`` (and its twin of IPv6) does with the value
1, addresses, protocol and ports, where ``fib_multipath_hash_seed`` is set: Linux 6.11
and later, little-endian machines.  Both directions of a flow have the same hash; flow
labels do not count.  Packets that have a hash of the kernel's own already keep that:
from a socket's automatic flow label, or from receive packet steering.

Source: ``fib_multipath_hash`` and ``fib_select_multipath`` in ``net/ipv4``,
``rt6_multipath_hash`` and ``fib6_select_path`` in ``net/ipv6``, ``flow_hash_from_keys``
in ``net/core/flow_dissector.c``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache
from ipaddress import ip_address

from chakram.switch.siphash import siphash

UDP = 17
"""Protocol number."""

HASH_BITS = 31
"""Bits of what next hops share out."""

# Of the kernel's ``struct flow_keys``, from what is hashed on: where its parts begin.
_PROTOCOL_AT = 2
_PORTS_AT, _PORTS_END = 28, 32
_ADDRESSES_AT = 36
_IPV4_BYTES = 4
_KEYS_BYTES = {_IPV4_BYTES: 48, 16: 72}
"""By the size of an address: whole words, so four bytes more than IPv6 needs."""


def hash_seed(seed: int, number: int) -> int:
    """Return the seed of a switch's ECMP hash, from 1 to 2**32 - 1.

    Switches differ, or a second tier would send all that it gets on one path; 0 would
    mean a seed of the kernel's own.

    Args:
        seed: Of the lab.
        number: Of the switch in it.
    """
    mixed = (seed * 0x9E37_79B1 + (number + 1) * 0x85EB_CA6B) & 0xFFFF_FFFF_FFFF
    mixed ^= mixed >> 16
    return mixed * 0xC2B2_AE35 % 0xFFFF_FFFF + 1


def kernel_hash(
    seed: int,
    *,
    source: str,
    destination: str,
    source_port: int,
    destination_port: int,
    protocol: int = UDP,
) -> int:
    """Return the 31-bit hash of a flow.

    Args:
        seed: ``fib_multipath_hash_seed`` of the switch's namespace, not 0.
        source: Address of the sender, without a zone.
        destination: Of the receiver, of the same family.
        source_port: Of the sender.
        destination_port: Of the receiver.
        protocol: That the ports are of.
    """
    near, far = _packed(source), _packed(destination)
    # The smaller one first: of addresses of IPv4 and of ports as a little-endian
    # machine reads them, of addresses of IPv6 byte by byte.
    numeric = len(near) == _IPV4_BYTES
    keys = bytearray(_KEYS_BYTES[len(near)])
    keys[_PROTOCOL_AT] = protocol
    keys[_PORTS_AT:_PORTS_END] = _ordered(
        source_port.to_bytes(2), destination_port.to_bytes(2), numeric=True
    )
    addresses = _ordered(near, far, numeric=numeric)
    keys[_ADDRESSES_AT : _ADDRESSES_AT + len(addresses)] = addresses
    half = seed << 32 | seed
    return (siphash((half, half), bytes(keys)) & 0xFFFF_FFFF or 1) >> 1


@lru_cache(maxsize=1 << 13)
def _packed(address: str) -> bytes:
    return ip_address(address).packed


def _ordered(a: bytes, b: bytes, *, numeric: bool) -> bytes:
    """Return both, the smaller one first; numbers have their lowest byte in front."""
    is_first = a[::-1] <= b[::-1] if numeric else a <= b
    return a + b if is_first else b + a


def upper_bounds(weights: Sequence[int]) -> list[int]:
    """Return the largest hash of each next hop, in the order of the route.

    Args:
        weights: Their shares; the last bound is always the largest hash there is.
    """
    total = sum(weights)
    bounds: list[int] = []
    before = 0
    for weight in weights:
        before += weight
        # Rounded to nearest, halves up, as the kernel divides.
        bounds.append(((before << HASH_BITS) + total // 2) // total - 1)
    return bounds


def next_hop(value: int, bounds: Sequence[int]) -> int:
    """Return the index of the next hop that a flow of this hash takes."""
    return bisect_left(bounds, value)
