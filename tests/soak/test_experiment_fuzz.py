"""Twenty thousand broken experiments, or ``CHAKRAM_FUZZ_EXPERIMENTS``."""

from __future__ import annotations

import os
import tempfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from tests.experiment_fuzzing import Fuzzed, fuzz

INPUTS = int(os.environ.get("CHAKRAM_FUZZ_EXPERIMENTS", "20000"))


def _fuzz(seed: int, inputs: int) -> Fuzzed:
    with tempfile.TemporaryDirectory() as folder:
        return fuzz(seed=seed, inputs=inputs, folder=Path(folder))


@pytest.mark.timeout(0)
def test_any_experiment_runs_or_is_refused() -> None:
    processes = os.cpu_count() or 1
    share = -(-INPUTS // processes)
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        running = [pool.submit(_fuzz, seed, share) for seed in range(processes)]
        assert sum(each.result().ends.total() for each in running) >= INPUTS
