"""ECMP hashes other than Linux's: CRCs as in switch chips, and the ns-3 hash.

These hashes show how switches of these types distribute flows, with Chakram's addresses
and seeds. They do not predict the path of a flow through real chips, whose hash fields
and seeds differ.
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
    """ECMP choice of switches that hash with a CRC, each with a different seed.

    Attributes:
        bits: One of ``CRC_BITS``.
        seed: Seed from which the seeds of the switches are derived.
    """

    bits: int
    seed: int

    def chooser(self, flow: Flow) -> Callable[[int, int], int]:
        """Return the function that chooses a flow's next hops (see ``EcmpHash``)."""
        key = _wire_key(flow)

        def choose(switch: int, count: int) -> int:
            value = crc_hash(key, bits=self.bits, seed=hash_seed(self.seed, switch))
            return value % count

        return choose


def crc_hash(key: bytes, *, bits: int, seed: int) -> int:
    """Return the hash of the header fields that a chip reads from a packet.

    A CRC is linear: if only its initial value differs, the hashes of all flows differ
    in the same bits. A second tier that chooses by the same bits could then not spread
    the flows that the first tier sends to it (hash polarization). Therefore the seed
    also sets the bit at which the choice starts, like the hash offset of chips.

    Args:
        key: Addresses, protocol and ports.
        bits: 16 (CCITT) or 32 (as in Ethernet).
        seed: Seed of the switch. The low bits are the initial value, and the top bits
            are the offset.
    """
    if bits == CRC_BITS[0]:
        value, offset = crc_hqx(key, seed & 0xFFFF), seed >> 28
    else:
        value, offset = zlib.crc32(key, seed & _MASK), seed >> 27
    return value >> offset | (value << (bits - offset)) & ((1 << bits) - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ns3Paths:
    """ECMP choice in ns-3's RDMA model, as in HPCC and ASTRA-sim's fork.

    Attributes:
        first_switch: Number of the first switch among all nodes. A switch's seed is its
            node number, and hosts have the lowest numbers.
    """

    first_switch: int

    def chooser(self, flow: Flow) -> Callable[[int, int], int]:
        """Return the function that chooses a flow's next hops (see ``EcmpHash``)."""
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
    """Return a factory of choosers for a flow between two ns-3 hosts.

    Hosts are numbered from 0, and their addresses start at 11.0.0.1. Switch numbers
    follow the host numbers, and the seed of a switch is its number.
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

    Source: A. Appleby, MurmurHash3 (public domain).
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
    """Return the header fields that identify a flow, as bytes in network order."""
    return (
        ip_address(flow.source).packed
        + ip_address(flow.destination).packed
        + bytes([UDP])
        + flow.source_port.to_bytes(2)
        + flow.destination_port.to_bytes(2)
    )
