"""Preflight over random fabrics, idle and busy: findings need evidence."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.e2e.rewriting import missing_bpf
from tests.preflight_draws import Judgment, busy_cores, draw, judged, place_for_labs
from tests.support import missing_program, require, why_no_lab

if TYPE_CHECKING:
    from collections.abc import Iterator

SEEDS = range(5000, 5020)
LOOPS_PER_CORE = 4


def judgments(*, is_planted: bool) -> Iterator[Judgment]:
    require("netns", why_no_lab())
    require("netns", missing_program("tc"))
    require("bpf", missing_bpf())
    with place_for_labs() as folder:
        for seed in SEEDS:
            yield judged(draw(seed, is_planted=is_planted), folder)


@pytest.mark.timeout(0)
@pytest.mark.parametrize("loops_per_core", [0, LOOPS_PER_CORE], ids=["idle", "busy"])
def test_sound_fabrics_have_no_findings(loops_per_core: int) -> None:
    with busy_cores(loops_per_core):
        found = list(judgments(is_planted=False))

    verdicts = Counter(each.verdict for each in found)
    listed = "\n".join(map(str, found))
    assert verdicts["accused"] == 0, listed
    assert verdicts["unproven"] <= (3 if loops_per_core else 0), listed


@pytest.mark.timeout(0)
@pytest.mark.parametrize("loops_per_core", [0, LOOPS_PER_CORE], ids=["idle", "busy"])
def test_planted_faults_are_named_with_port_and_type(loops_per_core: int) -> None:
    with busy_cores(loops_per_core):
        found = list(judgments(is_planted=True))

    verdicts = Counter(each.verdict for each in found)
    listed = "\n".join(map(str, found))
    assert verdicts["wrong"] == 0, listed
    assert verdicts["named"] >= (14 if loops_per_core else len(SEEDS)), listed
