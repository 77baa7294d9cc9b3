"""Twenty thousand damaged inputs of all readers, or ``CHAKRAM_DAMAGED_INPUTS``."""

from __future__ import annotations

import os
import tempfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from tests.damaged_inputs import KINDS, Judged, fuzz, make_sound
from tests.support import why_no_lab

INPUTS = int(os.environ.get("CHAKRAM_DAMAGED_INPUTS", "20000"))
SEED = int(os.environ.get("CHAKRAM_DAMAGED_SEED", "0"))


def _fuzz(seed: int, inputs: int) -> Judged:
    with tempfile.TemporaryDirectory() as folder:
        make_sound(Path(folder), with_lab=why_no_lab() is None)
        return fuzz(Path(folder), seed=seed, inputs=inputs)


@pytest.mark.timeout(0)
def test_damaged_inputs_are_read_or_refused() -> None:
    processes = os.cpu_count() or 1
    share = -(-INPUTS // processes)
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        running = [
            pool.submit(_fuzz, SEED + number, share) for number in range(processes)
        ]
        judged = [each.result() for each in running]
    assert sum(each.inputs for each in judged) >= INPUTS
    kinds = {kind for each in judged for kind, _ in each.ends}
    assert kinds == set(KINDS)
