"""CRCs of chips and the hash of ns-3, with their seeds."""

from __future__ import annotations

import zlib
from collections import Counter

import pytest

from chakram.switch.ecmp import EcmpHash, Flow
from chakram.switch.ecmp_hashes import CrcPaths, Ns3Paths, crc_hash, murmur3
from chakram.switch.kernel_hash import hash_seed


def flow(source_port: int, *, ipv6: bool = False) -> Flow:
    return Flow(
        sender=0,
        receiver=5,
        source="2001:2::1" if ipv6 else "198.18.0.1",
        destination="2001:2:0:1::2" if ipv6 else "198.18.1.2",
        source_port=source_port,
        destination_port=4791,
    )


PORTS = range(49152, 49152 + 1024)


@pytest.mark.parametrize(
    ("text", "seed", "expected"),
    [
        (b"", 0, 0),
        (b"", 1, 0x514E28B7),
        (b"test", 0, 0xBA6BD213),
        (b"test", 0x9747B28C, 0x704B81DC),
        (b"aaaa", 0x9747B28C, 0x5A97808A),
    ],
)
def test_published_values_of_murmur3(text: bytes, seed: int, expected: int) -> None:
    words = [
        int.from_bytes(text[at : at + 4], "little") for at in range(0, len(text), 4)
    ]
    assert murmur3(words, seed) == expected


def test_published_check_values_of_the_crcs() -> None:
    key = b"123456789"
    assert crc_hash(key, bits=16, seed=0) == 0x31C3
    assert crc_hash(key, bits=16, seed=0xFFFF) == 0x29B1
    assert crc_hash(key, bits=32, seed=0) == 0xCBF43926


def test_top_bits_of_a_seed_set_the_offset_of_the_choice() -> None:
    key = b"123456789"
    assert crc_hash(key, bits=16, seed=4 << 28) == 0x331C
    # All of a seed is the initial value of 32 bits, those of the offset, too.
    value = zlib.crc32(key, 8 << 27)
    assert crc_hash(key, bits=32, seed=8 << 27) == value >> 8 | (value & 0xFF) << 24


@pytest.mark.parametrize("bits", [16, 32])
@pytest.mark.parametrize(
    ("second", "paths"),
    [
        (0x1234, 4),  # the same
        (0x4321, 4),  # another initial value: linear, so the first choice decides
        (0x50001234, 16),
        (0x90004321, 16),
    ],
)
def test_two_tiers_are_independent_only_with_different_offsets(
    bits: int, second: int, paths: int
) -> None:
    used = set()
    for port in PORTS:
        key = port.to_bytes(2) + b"some fields that do not change"
        used.add(
            tuple(crc_hash(key, bits=bits, seed=seed) % 4 for seed in (0x1234, second))
        )
    assert len(used) == paths


@pytest.mark.parametrize("ipv6", [False, True])
@pytest.mark.parametrize(
    "paths",
    [
        CrcPaths(bits=16, seed=3),
        CrcPaths(bits=32, seed=3),
        Ns3Paths(first_switch=16),
    ],
)
def test_flows_use_all_paths_of_two_tiers(paths: EcmpHash, ipv6: bool) -> None:
    used: Counter[tuple[int, int]] = Counter()
    for port in PORTS:
        choose = paths.chooser(flow(port, ipv6=ipv6))
        used[choose(0, 4), choose(7, 4)] += 1
        assert choose(3, 1) == 0
    assert len(used) == 16


def test_ns3_switches_with_one_seed_choose_equally() -> None:
    used = set()
    for port in PORTS:
        choose = Ns3Paths(first_switch=16).chooser(flow(port))
        used.add((choose(2, 4), choose(2, 4)))
    assert len(used) == 4


def test_ns3_hashes_addresses_as_numbers_and_both_ports_in_a_word() -> None:
    choose = Ns3Paths(first_switch=16).chooser(flow(49153))
    words = [0xC6120001, 0xC6120102, 49153 | 4791 << 16]
    assert choose(1, 1 << 32) == murmur3(words, 17)


def test_chip_hashes_read_packet_fields() -> None:
    key = bytes.fromhex("c6120001c612010211c00112b7")
    choose = CrcPaths(bits=32, seed=3).chooser(flow(0xC001))
    assert choose(2, 1 << 32) == crc_hash(key, bits=32, seed=hash_seed(3, 2))
