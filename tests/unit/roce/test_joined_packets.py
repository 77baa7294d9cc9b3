"""Packets that the kernel joins: counters of each packet."""

from __future__ import annotations

import pytest

from chakram.roce.constants import BurstKind
from chakram.roce.headers import Bth, Packet, Reth, encode_packet
from chakram.roce.opcodes import Opcode
from chakram.roce.receive_memory import MemoryRegion
from tests.unit.roce.ports import MTU, drained, make_port

MESSAGE_BYTES = 6 * MTU


def packet(opcode: Opcode, psn: int, *, qpn: int = 1) -> bytes:
    reth = Reth(virtual_address=0, remote_key=0, dma_length_bytes=MESSAGE_BYTES)
    return encode_packet(
        Packet(
            bth=Bth(opcode=opcode, destination_qpn=qpn, psn=psn),
            reth=reth if opcode == Opcode.WRITE_FIRST else None,
            payload=bytes(MTU),
        )
    )


@pytest.mark.parametrize("keeps", [False, True], ids=["counted", "kept"])
def test_mark_on_joined_packets_counts_for_each(keeps: bool) -> None:
    memory = MemoryRegion(MESSAGE_BYTES) if keeps else None
    port = make_port(settings={"cnp_interval_ns": 0, "memory": memory})
    first = packet(Opcode.WRITE_FIRST, 0)
    port.receive_datagrams(first, len(first), 0, 0)
    joined = b"".join(packet(Opcode.WRITE_MIDDLE, 1 + n) for n in range(5))
    port.receive_datagrams(joined, len(joined), len(joined) // 5, 0, ce=True)

    counters = port.queue_pair(1).statistics()
    assert (counters.ce, counters.packets_received) == (5, 6)
    assert [each.kind for each in drained(port)] == [BurstKind.CNP]


def test_mark_counts_for_the_packets_of_every_queue_pair() -> None:
    port = make_port(qpns=(1, 2), settings={"cnp_interval_ns": 0})
    for qpn in (1, 2):
        first = packet(Opcode.WRITE_FIRST, 0, qpn=qpn)
        port.receive_datagrams(first, len(first), 0, 0)
    middles = [(1, 1), (1, 2), (2, 1), (2, 2), (2, 3), (1, 3)]
    joined = b"".join(packet(Opcode.WRITE_MIDDLE, psn, qpn=qpn) for qpn, psn in middles)
    port.receive_datagrams(joined, len(joined), len(joined) // 6, 0, ce=True)

    assert [port.queue_pair(qpn).statistics().ce for qpn in (1, 2)] == [3, 3]
    answers = [(each.kind, each.source_qpn) for each in drained(port)]
    assert answers == [(BurstKind.CNP, 1), (BurstKind.CNP, 2)]
