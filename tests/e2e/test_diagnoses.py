"""What draws plant, and what the judge accepts of answers about it."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from tests.diagnosis.cases import judged
from tests.diagnosis.draws import Draw, draw
from tests.diagnosis.judge import judge
from tests.diagnosis.plants import LEAST, MOST
from tests.diagnosis.virtual import Simulations

NAMED = (1002, 1006, 1007)
"""Seeds whose plants are a slow rank, corruption and a pause."""


@pytest.mark.slow
@pytest.mark.parametrize("seed", NAMED)
def test_what_a_draw_plants_is_named_first(tmp_path: Path, seed: int) -> None:
    outcome = judged(seed, tmp_path / "draw")
    assert outcome.is_hit, outcome.line()
    assert outcome.is_saving_right is not False, outcome.line()


@pytest.mark.slow
def test_a_clean_draw_is_not_accused(tmp_path: Path) -> None:
    outcome = judged(3, tmp_path / "draw", clean=True)
    assert outcome.is_hit, outcome.line()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Draw:
    return draw(1, Simulations(tmp_path_factory.mktemp("draw")), kind="slow compute")


def test_a_draw_follows_from_its_seed_and_its_plant_costs_what_it_says(
    tmp_path: Path, made: Draw
) -> None:
    look = Simulations(tmp_path)
    again = draw(1, look, kind="slow compute")
    assert (again.design, again.describe()) == (made.design, made.describe())
    (saving,) = {*made.savings(0)}
    assert LEAST <= saving <= MOST
    assert look(made.design).mean_ns == made.time_ns


def test_the_judge_holds_an_answer_to_the_plant(made: Draw) -> None:
    (place, *_) = made.plants[0].places
    share = made.savings(0)[0]
    right = _answer("slow compute", f"{place}, forward0", share)
    verdict = judge(made, right)
    assert verdict.is_hit
    assert verdict.is_saving_right
    for change in (
        {"cause": "slow link"},
        {"place": f"{place}9, forward0"},
        {"place": "rank 77"},
    ):
        wrong = _changed(right, **change)
        assert not judge(made, wrong).is_hit
    off = _saving(share + 0.05)
    assert judge(made, _changed(right, saving=off)).is_saving_right is False
    wide = off | {"low": share - 0.01}
    assert judge(made, _changed(right, saving=wide)).is_saving_right
    nothing = right | {"first": None, "causes": []}
    assert not judge(made, nothing).is_hit


def _saving(share: float) -> dict[str, float]:
    return {"share": share, "low": share, "high": share}


def _answer(cause: str, place: str, share: float) -> dict[str, Any]:
    named = {
        "cause": cause,
        "class": "fault",
        "place": place,
        "share": share,
        "saving": _saving(share),
        "rivals": [],
    }
    return {"schema": 2, "verified": True, "first": named, "causes": [named]}


def _changed(answer: dict[str, Any], **change: Any) -> dict[str, Any]:
    changed = copy.deepcopy(answer)
    changed["causes"][0] |= change
    changed["first"] = changed["causes"][0]
    return changed
