"""Hashes of other switches than Linux: CRCs, as switch chips have them, and ns-3's.

They say what the hash of such a switch does to flows, with our addresses and seeds; not
which path a flow takes through a given chip, whose fields and seeds are its own.
"""

from __future__ import annotations

import zlib
from binascii import crc_hqx
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING

from chakram.switch.kernel_hash import UDP, hash_seed

if TYPE_CHECKING:
    from chakram.switch.ecmp import Flow


CRC_BITS = (16, 32)

_MASK = 0xFFFF_FFFF
_FIRST_ADDRESS = 0x0B00_0001


@dataclass(frozen=True, slots=True, kw_only=True)
class CrcPaths:
    """What chips do that hash by a CRC, each with a seed of its own.

    Attributes:
        bits: One of ``CRC_BITS``.
        seed: That those of the switches come from.
    """

    bits: int
    seed: int

    def chooser(self, flow: Flow) -> Callable[[int, int], int]:
        """Return what chooses for a flow; see ``EcmpHash``."""
        key = _wire_key(flow)

        def choose(switch: int, count: int) -> int:
            value = crc_hash(key, bits=self.bits, seed=hash_seed(self.seed, switch))
            return value % count

        return choose


def crc_hash(key: bytes, *, bits: int, seed: int) -> int:
    """Return the hash of what a chip reads from a packet.

    A CRC is linear: where only its initial value differs, the hashes of all flows
    differ by the same bits, and a second tier that takes the same ones for its choice
    sees no more than what the first tier left.  So the seed also says at which bit the
    choice begins, as the hash offset of chips does.

    Args:
        key: Addresses, protocol and ports.
        bits: 16 (CCITT) or 32 (as of Ethernet).
        seed: Of the switch: the low bits are the initial value, the top ones the
            offset.
    """
    if bits == CRC_BITS[0]:
        value, offset = crc_hqx(key, seed & 0xFFFF), seed >> 28
    else:
        value, offset = zlib.crc32(key, seed & _MASK), seed >> 27
    return value >> offset | (value << (bits - offset)) & ((1 << bits) - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ns3Paths:
    """What the switches of ns-3's RDMA model do (HPCC's, and ASTRA-sim's fork).

    Attributes:
        first_switch: Number of the first switch among all nodes: a switch's seed is its
            number, and hosts come first.
    """

    first_switch: int

    def chooser(self, flow: Flow) -> Callable[[int, int], int]:
        """Return what chooses for a flow; see ``EcmpHash``."""
        words: list[int] = []
        for address in (flow.source, flow.destination):
            packed = ip_address(address).packed
            words += [
                int.from_bytes(packed[at : at + 4]) for at in range(0, len(packed), 4)
            ]
        words.append(flow.source_port | flow.destination_port << 16)
        return _murmur_choice(words, self.first_switch)


def ns3_chooser(
    source: int,
    destination: int,
    source_port: int,
    destination_port: int,
    *,
    hosts: int,
) -> Callable[[], Callable[[int, int], int]]:
    """Return what makes a chooser for a flow between two of ns-3's own nodes.

    Its hosts, numbered from 0, have addresses from 11.0.0.1 on; switches have the
    numbers behind them, and seeds that are their numbers.
    """
    words = [
        _FIRST_ADDRESS + (node // 256 << 16) + (node % 256 << 8)
        for node in (source, destination)
    ]
    words.append(source_port | destination_port << 16)
    return lambda: _murmur_choice(words, hosts)


def _murmur_choice(
    words: Sequence[int], first_switch: int
) -> Callable[[int, int], int]:
    def choose(switch: int, count: int) -> int:
        return murmur3(words, first_switch + switch) % count

    return choose


def murmur3(words: Sequence[int], seed: int) -> int:
    """Return MurmurHash3 (x86, 32 bits) of little-endian 32-bit words.

    Source: A. Appleby, MurmurHash3, which he gave to the public.
    """
    value = seed
    for word in words:
        part = word * 0xCC9E2D51 & _MASK
        part = (part << 15 | part >> 17) & _MASK
        value ^= part * 0x1B873593 & _MASK
        value = (value << 13 | value >> 19) & _MASK
        value = value * 5 + 0xE6546B64 & _MASK
    value ^= 4 * len(words)
    value = (value ^ value >> 16) * 0x85EBCA6B & _MASK
    value = (value ^ value >> 13) * 0xC2B2AE35 & _MASK
    return value ^ value >> 16


def _wire_key(flow: Flow) -> bytes:
    """Return what tells a flow from others, as it stands in its packets."""
    return (
        ip_address(flow.source).packed
        + ip_address(flow.destination).packed
        + bytes([UDP])
        + flow.source_port.to_bytes(2)
        + flow.destination_port.to_bytes(2)
    )
