"""Bytes on the wire, counted by hand."""

import pytest

from chakram.plan.wire_cost import (
    AETH_BYTES,
    PACKET_OVERHEAD_BYTES,
    first_packet_wire_bytes,
    overhead_bytes_of,
    packets_of,
    serialisation_ns,
    wire_bytes,
)


@pytest.mark.parametrize(
    ("size", "packets"), [(0, 1), (1, 1), (4096, 1), (4097, 2), (8192, 2)]
)
def test_number_of_packets_is_rounded_up(size: int, packets: int) -> None:
    assert packets_of(size, path_mtu=4096) == packets


@pytest.mark.parametrize(
    ("size", "wanted"),
    [
        (0, 58 + 16 + 4),
        (1, 4 + 58 + 16 + 4),
        (4096, 4096 + 58 + 16 + 4),
        (4097, 4100 + 2 * 58 + 16 + 4),
        (2**21, 2**21 + 512 * 58 + 16 + 4),
    ],
)
def test_a_write_has_a_header_first_and_an_immediate_last(
    size: int, wanted: int
) -> None:
    assert wire_bytes(size, path_mtu=4096) == wanted
    assert wire_bytes(size, path_mtu=4096, verb="send") == wanted - 16


def test_the_first_packet_is_the_longest() -> None:
    assert first_packet_wire_bytes(100, path_mtu=1024) == 100 + 58 + 16 + 4
    assert first_packet_wire_bytes(1024, path_mtu=1024) == 1024 + 58 + 16 + 4
    assert first_packet_wire_bytes(1025, path_mtu=1024) == 1024 + 58 + 16
    assert first_packet_wire_bytes(1025, path_mtu=1024, verb="send") == 1024 + 58


def test_an_acknowledgement_has_an_aeth() -> None:
    assert PACKET_OVERHEAD_BYTES + AETH_BYTES == 62


def test_every_packet_of_ipv6_has_20_bytes_more() -> None:
    assert overhead_bytes_of("ipv4") == PACKET_OVERHEAD_BYTES
    more = overhead_bytes_of("ipv6")
    assert more == 14 + 40 + 8 + 12 + 4
    plain = wire_bytes(4097, path_mtu=4096)
    assert wire_bytes(4097, path_mtu=4096, overhead_bytes=more) == plain + 2 * 20
    for size in 100, 1025:
        first = first_packet_wire_bytes(size, path_mtu=1024, overhead_bytes=more)
        assert first == first_packet_wire_bytes(size, path_mtu=1024) + 20


def test_time_at_a_rate_is_rounded_up() -> None:
    assert serialisation_ns(125, rate_bps=10**9) == 1000
    assert serialisation_ns(1, rate_bps=3 * 10**9) == 3
    assert serialisation_ns(10**9, rate_bps=None) == 0
