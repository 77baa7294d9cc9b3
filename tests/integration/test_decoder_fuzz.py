"""A part of the fuzz test of ``tests/soak``, for ``CHAKRAM_FUZZ_SECONDS``."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.fuzzing import fuzz

SECONDS = float(os.environ.get("CHAKRAM_FUZZ_SECONDS", "10"))


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 60)
def test_decoders_read_find_or_refuse(chakram_data: Path) -> None:
    fuzzed = fuzz(chakram_data / "traces", seed=7, seconds=SECONDS)
    assert fuzzed.inputs > 50 * SECONDS
    # The inputs are not all alike: every ending is met.
    assert {
        "findings",
        "unharmed",
        "TruncatedTrace",
        "GarbageTrace",
        "OversizedRecord",
        "UnsupportedTrace",
        "TraceError",
    } == set(fuzzed.outcomes)
