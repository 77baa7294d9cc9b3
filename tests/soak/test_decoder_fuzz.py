"""Five million broken inputs for the decoders, or ``CHAKRAM_FUZZ_INPUTS``."""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from tests.fuzzing import Fuzzed, fuzz

INPUTS = int(os.environ.get("CHAKRAM_FUZZ_INPUTS", "5000000"))


def _fuzz(traces: Path, seed: int, inputs: int) -> Fuzzed:
    return fuzz(traces, seed=seed, inputs=inputs)


@pytest.mark.timeout(0)
def test_decoders_read_find_or_refuse_millions_of_inputs(chakram_data: Path) -> None:
    processes = os.cpu_count() or 1
    share = -(-INPUTS // processes)
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        running = [
            pool.submit(_fuzz, chakram_data / "traces", seed, share)
            for seed in range(processes)
        ]
        assert sum(each.result().inputs for each in running) >= INPUTS
