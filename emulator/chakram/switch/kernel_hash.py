"""The Linux kernel's exact choice among equal-cost next hops.

This module reproduces ``net.ipv4.fib_multipath_hash_policy`` (or its IPv6 counterpart)
with the value 1, which hashes addresses, protocol and ports. It requires
``fib_multipath_hash_seed`` (Linux 6.11 or later) and a little-endian machine. Both
directions of a flow have the same hash, and flow labels have no effect.

Packets that already have a kernel hash keep it. That hash comes from a socket's
automatic flow label or from receive packet steering.

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
"""IP protocol number."""

HASH_BITS = 31
"""Number of bits in a hash. Each next hop has a range of hashes."""

# Offsets in the kernel's ``struct flow_keys``, from the start of the hashed part.
_PROTOCOL_AT = 2
_PORTS_AT, _PORTS_END = 28, 32
_ADDRESSES_AT = 36
_IPV4_BYTES = 4
_KEYS_BYTES = {_IPV4_BYTES: 48, 16: 72}
"""Size of the keys by address size. Whole words make the IPv6 keys 4 bytes larger."""


def hash_seed(seed: int, number: int) -> int:
    """Return the seed of a switch's ECMP hash, from 1 to 2**32 - 1.

    Switches have different seeds. Otherwise a second tier would send all its traffic on
    one path. With a seed of 0, the kernel would choose a random seed.

    Args:
        seed: Seed of the lab.
        number: Number of the switch in the lab.
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
        source: Address of the sender, without an IPv6 zone.
        destination: Address of the receiver, in the same family.
        source_port: Port of the sender.
        destination_port: Port of the receiver.
        protocol: Protocol of the ports.
    """
    near, far = _packed(source), _packed(destination)
    # The smaller value comes first. IPv4 addresses and ports are compared as a
    # little-endian machine reads them. IPv6 addresses are compared byte by byte.
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
    """Return both values, smaller first. *numeric* means little-endian comparison."""
    is_first = a[::-1] <= b[::-1] if numeric else a <= b
    return a + b if is_first else b + a


def upper_bounds(weights: Sequence[int]) -> list[int]:
    """Return the largest hash of each next hop, in the order of the route.

    Args:
        weights: Shares of the next hops. The last bound is always the maximum hash.
    """
    total = sum(weights)
    bounds: list[int] = []
    before = 0
    for weight in weights:
        before += weight
        # Round to the nearest integer, and round halves up, as the kernel does.
        bounds.append(((before << HASH_BITS) + total // 2) // total - 1)
    return bounds


def next_hop(value: int, bounds: Sequence[int]) -> int:
    """Return the index of the next hop for a flow with this hash."""
    return bisect_left(bounds, value)
