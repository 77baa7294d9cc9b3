"""Damaged packets: a part of ``make soak``.

With ``CHAKRAM_FUZZ_SECONDS`` the compiled form gets them for that long.
"""

from __future__ import annotations

import os
import time
from dataclasses import fields
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from chakram._compiled import status as compiled_status
from chakram.roce.opcodes import Opcode
from chakram.roce.packet_verification import PacketVerifier
from chakram.roce.port import PortEngine
from chakram.roce.receive_memory import MemoryRegion
from chakram.roce.segment_parser import SERVED, SegmentParser
from tests import port_fuzzing
from tests.port_fuzzing import PATH_MTU, fuzz_conversation, fuzz_decoder, fuzz_port

IS_COMPILED = compiled_status().is_compiled()
PACKETS = 100_000 if IS_COMPILED else 30_000
SECONDS = float(os.environ.get("CHAKRAM_FUZZ_SECONDS", "0")) if IS_COMPILED else 0
PORTION = 20_000


@pytest.mark.slow
def test_damaged_packets_raise_nothing_and_are_accounted_for() -> None:
    totals = fuzz_port(PACKETS, seed=1)

    # All ways through the parser and the queue pair are taken.
    assert min(totals.values()) > PACKETS // 1_000


@pytest.mark.slow
def test_damaged_packets_write_nothing_outside_the_memory() -> None:
    totals = fuzz_port(PACKETS // 8, seed=1, keeps=True)

    assert min(totals.values()) > PACKETS // 8_000


@pytest.mark.slow
def test_damaged_packets_decode_correctly_or_are_refused() -> None:
    assert fuzz_decoder(PACKETS // 2, seed=1) > PACKETS // 20


@pytest.mark.slow
def test_transfer_continues_despite_damaged_packets() -> None:
    assert fuzz_conversation(PACKETS // 5, seed=1) > 100


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 60)
def test_damaged_packets_do_no_harm_for_a_while() -> None:
    seed = 10_000
    end_s = time.monotonic() + SECONDS
    while True:
        try:
            fuzz_port(PORTION, seed=seed, keeps=bool(seed & 1))
            fuzz_decoder(PORTION, seed=seed)
            fuzz_conversation(PORTION, seed=seed)
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error
        seed += 1
        if time.monotonic() >= end_s:
            return


@pytest.mark.parametrize(
    ("owner", "method", "planted"),
    [
        (port_fuzzing, "PacketVerifier", partial(PacketVerifier, every=10**9)),
        (MemoryRegion, "place", lambda *_, **__: None),
    ],
    ids=["ICRCs are not looked at", "contents go nowhere"],
)
def test_a_planted_fault_of_delivery_is_found(
    monkeypatch: pytest.MonkeyPatch, owner: object, method: str, planted: object
) -> None:
    monkeypatch.setattr(owner, method, planted)

    with pytest.raises(AssertionError):
        fuzz_conversation(20_000, seed=1)


def test_a_planted_fault_of_memory_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryRegion, "judge", lambda *_, **__: (0, ""))

    # A SEND without a receive, or a WRITE beyond the end.
    with pytest.raises((AssertionError, IndexError)):
        fuzz_port(100_000, seed=2, keeps=True)


class Lax(PortEngine):
    """A port that accepts its own sealed packets."""

    def mend(self, data: bytes) -> bytes:
        return data

    def receive_datagrams(
        self,
        buffer: bytes,
        length: int,
        segment_size: int,
        now_ns: int,
        ce: bool = False,
        source_port: int = 0,
    ) -> None:
        data = self.mend(buffer) if length >= 16 and not segment_size else buffer
        super().receive_datagrams(
            data, len(data), segment_size, now_ns, ce, source_port
        )


class WithoutPartitions(Lax):
    def mend(self, data: bytes) -> bytes:
        return data[:2] + b"\xff\xff" + data[4:]


class WithoutCongestionBits(Lax):
    def mend(self, data: bytes) -> bytes:
        is_cnp = data[0] == Opcode.CNP
        return data[:4] + b"\x40" + data[5:] if is_cnp else data


class WithAnySizes(Lax):
    def mend(self, data: bytes) -> bytes:
        is_middle = data[0] in (Opcode.SEND_MIDDLE, Opcode.WRITE_MIDDLE)
        is_packet = not data[1] & 0x3F and len(data) % 4 == 0
        if is_middle and is_packet:
            return data[:12] + bytes(PATH_MTU) + data[-4:]
        return data


class WithoutDuplicates(Lax):
    def queue_pair(self, qpn: int) -> Any:
        counters = super().queue_pair(qpn).statistics()
        held = SimpleNamespace(
            **{f.name: getattr(counters, f.name) for f in fields(counters)}
            | {"duplicates": 0}
        )
        return SimpleNamespace(statistics=lambda: held, unacknowledged_bytes=lambda: 0)


@pytest.mark.parametrize(
    ("planted", "found"),
    [
        (WithoutPartitions, "partition_key_errors"),
        (WithoutCongestionBits, "malformed"),
        (WithAnySizes, "invalid_requests|messages_received"),
        (WithoutDuplicates, "duplicates"),
    ],
)
def test_a_planted_fault_of_a_port_is_found(
    monkeypatch: pytest.MonkeyPatch, planted: type[Lax], found: str
) -> None:
    monkeypatch.setattr(port_fuzzing, "PortEngine", planted)

    with pytest.raises(AssertionError, match=found):
        fuzz_port(20_000, seed=1)


def test_port_without_a_fault_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(port_fuzzing, "PortEngine", Lax)

    assert fuzz_port(5_000, seed=1)["failed"] > 0


def test_parser_agrees_with_the_decoder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Lenient(SegmentParser):
        def parse(self, data: bytes, offset: int, length: int) -> int:
            verdict = super().parse(data, offset, length)
            is_answer = length > 12 and data[0] in (Opcode.ACKNOWLEDGE, Opcode.CNP)
            return SERVED if is_answer else verdict

    monkeypatch.setattr(port_fuzzing, "SegmentParser", Lenient)
    with pytest.raises(AssertionError):
        fuzz_decoder(20_000, seed=1)
