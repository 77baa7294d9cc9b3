"""Damaged packets: a slice of what ``make soak`` does at length.

With ``CHAKRAM_FUZZ_SECONDS`` the compiled form gets them for that long.
"""

from __future__ import annotations

import os
import time

import pytest

from chakram._compiled import status as compiled_status
from chakram.roce.memory import MemoryRegion
from chakram.roce.verify import IcrcVerifier
from chakram.testing.fuzz import fuzz_conversation, fuzz_decoder, fuzz_port

IS_COMPILED = compiled_status().is_compiled()
PACKETS = 400_000 if IS_COMPILED else 60_000
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
def test_damaged_packets_decode_to_what_they_are_or_are_refused() -> None:
    assert fuzz_decoder(PACKETS // 2, seed=1) > PACKETS // 20


@pytest.mark.slow
def test_a_conversation_goes_on_amid_damaged_packets() -> None:
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
        (IcrcVerifier, "is_valid", lambda *_, **__: True),
        (MemoryRegion, "place", lambda *_, **__: None),
    ],
    ids=["ICRCs are not looked at", "contents go nowhere"],
)
def test_a_planted_fault_of_delivery_is_found(
    monkeypatch: pytest.MonkeyPatch, owner: type, method: str, planted: object
) -> None:
    monkeypatch.setattr(owner, method, planted)

    with pytest.raises(AssertionError):
        fuzz_conversation(20_000, seed=1)


def test_a_planted_fault_of_memory_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryRegion, "judge", lambda *_, **__: (0, ""))

    # A SEND without a receive, or a WRITE beyond the end.
    with pytest.raises((AssertionError, IndexError)):
        fuzz_port(100_000, seed=2, keeps=True)
