"""Five hundred draws, or ``CHAKRAM_DRAWS``, and a fifth as many clean ones."""

from __future__ import annotations

import os
import random
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import pytest

from tests.diagnosis.cases import Outcome, judged, table

DRAWS = int(os.environ.get("CHAKRAM_DRAWS", "500"))
SEED = int(os.environ.get("CHAKRAM_DRAWS_FROM", random.randrange(10**6, 10**9)))

HIT = 0.95
RIGHT = 0.95
"""Of the savings that are printed."""


def _judged(seeds: range, folder: Path, *, clean: bool | None = None) -> list[Outcome]:
    places = [folder / str(seed) for seed in seeds]
    spawn = get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count(), mp_context=spawn) as pool:
        return list(pool.map(partial(judged, clean=clean), seeds, places))


@pytest.mark.timeout(0)
def test_what_draws_plant_is_named_first(tmp_path: Path) -> None:
    outcomes = _judged(range(SEED, SEED + DRAWS), tmp_path)
    misses = [each.line() for each in outcomes if not each.is_hit]
    said = "\n".join([*misses, table(outcomes)])
    assert len(misses) <= (1 - HIT) * DRAWS, said
    savings = [each.is_saving_right for each in outcomes]
    known = [each for each in savings if each is not None]
    assert sum(known) >= RIGHT * len(known), said


@pytest.mark.timeout(0)
def test_clean_draws_are_not_accused(tmp_path: Path) -> None:
    outcomes = _judged(range(SEED, SEED + DRAWS // 5), tmp_path, clean=True)
    assert all(each.is_hit for each in outcomes), table(outcomes)
