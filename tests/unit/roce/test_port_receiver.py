"""The receiving side of a port: accepted, refused and dropped packets."""

from __future__ import annotations

from typing import Any

import pytest

from chakram.roce.burst import Burst
from chakram.roce.congestion.dcqcn import Dcqcn
from chakram.roce.constants import BurstKind
from chakram.roce.headers import Bth, Packet, Reth, encode_packet
from chakram.roce.opcodes import Opcode
from chakram.roce.port import PortEngine
from chakram.roce.receive_memory import MemoryRegion
from tests.virtual_wire import make_queue_pair

LINE_BPS = 10**10
CNP = bytes.fromhex("8100ffff4000000100000000") + bytes(20)
ACK = bytes.fromhex("1100ffff0000000100000000") + bytes.fromhex("1f000001") + bytes(4)


def make_port(**settings: Any) -> PortEngine:
    port = PortEngine(rate_bps=None, burst_bound_ns=0, max_burst_packets=4)
    port.add_queue_pair(make_queue_pair(1, 2, **settings))
    return port


def feed(port: PortEngine, data: bytes, *, ce: bool = False) -> None:
    port.receive_datagrams(data, len(data), 0, 0, ce)


def answers(port: PortEngine) -> list[Burst]:
    return list(iter(lambda: port.next_burst(0), None))


def request(opcode: int, psn: int, rest: bytes = b"") -> bytes:
    """Return a packet to queue pair 1 that asks for an ACK."""
    bth = bytes([opcode, 0, 0xFF, 0xFF, 0, 0, 0, 1, 0x80]) + psn.to_bytes(3, "big")
    return bth + rest + bytes(4)


def data(opcode: Opcode, psn: int, payload: bytes, reth: Reth | None = None) -> bytes:
    bth = Bth(opcode=opcode, destination_qpn=1, psn=psn, ack_request=True)
    return encode_packet(Packet(bth=bth, reth=reth, payload=payload))


@pytest.mark.parametrize(
    "packet",
    [
        CNP[:16],
        CNP[:-4],
        CNP + bytes(4),
        CNP[:-1],
        CNP[:1] + b"\x10" + CNP[2:],
        CNP[:1] + b"\x10" + CNP[2:] + b"\0",
        CNP[:4] + b"\0" + CNP[5:],
    ],
    ids=["bare", "short", "long", "odd", "short pad", "padded", "no BECN"],
)
def test_only_a_valid_notification_reduces_the_rate(packet: bytes) -> None:
    control = Dcqcn(line_rate_bps=LINE_BPS)
    port = make_port(congestion_control=control)
    feed(port, packet)
    assert control.rate_bps == LINE_BPS
    assert port.statistics().malformed == 1
    assert port.queue_pair(1).statistics().cnps_received == 0

    feed(port, CNP)
    assert control.rate_bps < LINE_BPS
    assert port.statistics().malformed == 1


@pytest.mark.parametrize(
    "packet",
    [ACK[:1] + b"\x10" + ACK[2:] + b"\0", ACK + b"\0", ACK[:-1], ACK + bytes(4)],
    ids=["padded", "odd", "short", "long"],
)
def test_only_a_valid_acknowledgement_completes(packet: bytes) -> None:
    port = make_port()
    port.post_send(1, 1, 100, 0)
    port.next_burst(0)
    feed(port, packet)
    assert port.statistics().malformed == 1
    assert port.queue_pair(1).statistics().messages_completed == 0

    feed(port, ACK)
    assert port.queue_pair(1).statistics().messages_completed == 1


@pytest.mark.parametrize("opcode", [0x0C, 0x13, 0x14, 0x15, *range(0x16, 0x20)])
def test_unsupported_requests_are_invalid(opcode: int) -> None:
    port = make_port()
    feed(port, request(opcode, 0, bytes(28)))

    (nak,) = answers(port)
    assert (nak.kind, nak.syndrome, nak.psn) == (BurstKind.NAK, 0x61, 0)
    assert f"opcode {opcode:#04x}" in (port.queue_pair(1).statistics().failure or "")
    assert port.statistics().unsupported == 1


@pytest.mark.parametrize("opcode", [0x0D, 0x10, 0x12, 0x20, 0x40, 0x64, 0x82, 0xFF])
def test_request_of_another_service_is_dropped(opcode: int) -> None:
    port = make_port()
    feed(port, request(opcode, 0, bytes(28)))

    assert answers(port) == []
    assert port.queue_pair(1).statistics().failure is None
    assert port.statistics().unsupported == 1


@pytest.mark.parametrize(("opcode", "size"), [(0x0C, 12), (0x13, 24), (0x14, 0)])
def test_a_request_without_its_headers_is_dropped(opcode: int, size: int) -> None:
    port = make_port()
    feed(port, request(opcode, 0, bytes(size)))

    assert answers(port) == []
    assert port.queue_pair(1).statistics().failure is None
    assert port.statistics().malformed == 1


def test_read_after_a_gap_causes_a_sequence_nak() -> None:
    port = make_port(cnp_interval_ns=0)
    feed(port, request(Opcode.READ_REQUEST, 5, bytes(16)), ce=True)

    cnp, nak = answers(port)
    assert (cnp.kind, nak.kind) == (BurstKind.CNP, BurstKind.NAK)
    assert (nak.psn, nak.syndrome) == (0, 0x60)
    assert port.queue_pair(1).statistics().failure is None


@pytest.mark.parametrize(
    "second",
    [
        data(Opcode.SEND_ONLY, 1, b"x"),
        data(
            Opcode.WRITE_ONLY,
            1,
            bytes(4),
            Reth(virtual_address=0, remote_key=9, dma_length_bytes=4),
        ),
    ],
    ids=["no receive", "wrong key"],
)
def test_sequence_is_checked_before_memory(second: bytes) -> None:
    port = make_port(memory=MemoryRegion(8192, key=7))
    reth = Reth(virtual_address=0, remote_key=7, dma_length_bytes=2048)
    feed(port, data(Opcode.WRITE_FIRST, 0, bytes(1024), reth))
    answers(port)
    feed(port, second)

    assert [each.syndrome for each in answers(port)] == [0x61]
    failure = port.queue_pair(1).statistics().failure or ""
    assert "a message begins inside another one" in failure


def test_sizes_are_checked_before_the_key() -> None:
    port = make_port(memory=MemoryRegion(8192, key=7))
    reth = Reth(virtual_address=0, remote_key=9, dma_length_bytes=2**31 + 1)
    feed(port, data(Opcode.WRITE_FIRST, 0, bytes(1024), reth))

    assert [each.syndrome for each in answers(port)] == [0x61]
    assert "too long" in (port.queue_pair(1).statistics().failure or "")


def test_marked_send_counts_without_a_posted_receive() -> None:
    memory = MemoryRegion(8192)
    port = make_port(memory=memory, cnp_interval_ns=0)
    feed(port, data(Opcode.SEND_ONLY, 0, b"x"), ce=True)

    assert [each.kind for each in answers(port)] == [BurstKind.CNP, BurstKind.NAK]
    counters = port.queue_pair(1).statistics()
    assert (counters.ce, counters.cnps_sent, counters.packets_received) == (1, 1, 1)
    assert counters.failure is None
