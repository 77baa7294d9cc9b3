"""Millions of damaged packets."""

from __future__ import annotations

import pytest

from chakram._compiled import status as compiled_status
from tests.port_fuzzing import fuzz_conversation, fuzz_decoder, fuzz_port

IS_COMPILED = compiled_status().is_compiled()
PARTS = 10
PACKETS = 1_000_000 if IS_COMPILED else 100_000
"""For each part: ten million in all, or a million where nothing is compiled."""


@pytest.mark.parametrize("part", range(PARTS))
def test_damaged_packets_raise_nothing_and_are_accounted_for(part: int) -> None:
    assert fuzz_port(PACKETS, seed=1_000 + part)["served"] > 0


def test_damaged_packets_decode_correctly_or_are_refused() -> None:
    assert fuzz_decoder(PACKETS, seed=2_000) > 0


@pytest.mark.parametrize("part", range(PARTS))
def test_transfer_continues_despite_damaged_packets(part: int) -> None:
    """Ten million in all again, of which a third is genuine."""
    assert fuzz_conversation(PACKETS, seed=3_000 + part) > 0
