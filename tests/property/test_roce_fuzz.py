"""Damaged packets: a slice of what ``make soak`` does at length."""

from __future__ import annotations

import pytest

from chakram._compiled import status as compiled_status
from chakram.testing.fuzz import fuzz_conversation, fuzz_decoder, fuzz_port

PACKETS = 400_000 if compiled_status().is_compiled() else 60_000


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
