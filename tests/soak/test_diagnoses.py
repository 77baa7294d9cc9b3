"""Five hundred draws, or ``CHAKRAM_DRAWS``, a fifth as many clean ones, and labs."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import pytest

from chakram.fabric.labs.lab_files import STATE_ROOT_VARIABLE
from tests.diagnosis.bases import NAMESPACES
from tests.diagnosis.cases import Outcome, judged, table
from tests.support import require, why_no_lab

DRAWS = int(os.environ.get("CHAKRAM_DRAWS", "500"))
SEED = int(os.environ.get("CHAKRAM_DRAWS_FROM", random.randrange(10**6, 10**9)))

HIT = 0.95
RIGHT = 0.95
"""Of the savings that are printed."""


LAB_HIT = 0.85
LAB_DRAWS, CLEAN_LAB_DRAWS = 60, 20
LAB_SECONDS = 2 * 3600


@pytest.fixture
def labs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Require labs, in a directory with a short path because of socket names."""
    require("netns", why_no_lab())
    root = Path(tempfile.mkdtemp(prefix="ck-"))
    monkeypatch.setenv(STATE_ROOT_VARIABLE, str(root))
    yield
    shutil.rmtree(root)


def _judged(seeds: range, folder: Path, *, clean: bool | None = None) -> list[Outcome]:
    places = [folder / str(seed) for seed in seeds]
    spawn = get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count(), mp_context=spawn) as pool:
        return list(pool.map(partial(judged, clean=clean), seeds, places))


@pytest.mark.timeout(0)
def test_planted_cause_of_a_draw_is_ranked_first(tmp_path: Path) -> None:
    outcomes = _judged(range(SEED, SEED + DRAWS), tmp_path)
    misses = [each.line() for each in outcomes if not each.is_hit]
    said = "\n".join([*misses, table(outcomes)])
    assert len(misses) <= (1 - HIT) * DRAWS, said
    savings = [each.is_saving_right for each in outcomes]
    known = [each for each in savings if each is not None]
    assert sum(known) >= RIGHT * len(known), said


@pytest.mark.timeout(0)
def test_clean_draws_have_no_cause(tmp_path: Path) -> None:
    outcomes = _judged(range(SEED, SEED + DRAWS // 5), tmp_path, clean=True)
    assert all(each.is_hit for each in outcomes), table(outcomes)


@pytest.mark.usefixtures("labs")
@pytest.mark.timeout(LAB_SECONDS)
def test_planted_cause_in_a_lab_is_ranked_first(tmp_path: Path) -> None:
    outcomes = [
        judged(seed, tmp_path / "draw", world=NAMESPACES)
        for seed in range(SEED, SEED + LAB_DRAWS)
    ]
    misses = [each.line() for each in outcomes if not each.is_hit]
    said = "\n".join([*misses, table(outcomes)])
    assert len(misses) <= (1 - LAB_HIT) * LAB_DRAWS, said


@pytest.mark.usefixtures("labs")
@pytest.mark.timeout(LAB_SECONDS)
def test_clean_labs_have_no_cause(tmp_path: Path) -> None:
    for seed in range(SEED, SEED + CLEAN_LAB_DRAWS):
        outcome = judged(seed, tmp_path / "draw", world=NAMESPACES, clean=True)
        assert outcome.is_hit, outcome.line()
