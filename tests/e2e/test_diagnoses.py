"""Draws of planted causes, and the verdicts of the judge."""

from __future__ import annotations

import copy
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.diagnosis import bases
from tests.diagnosis.cases import judged
from tests.diagnosis.draws import Draw, draw
from tests.diagnosis.judge import judge
from tests.diagnosis.namespaces import enacted
from tests.diagnosis.plants import LEAST, MOST
from tests.diagnosis.virtual import Simulations

NAMED = (1006, 1007)
"""Seeds whose plants are corruption and a pause."""


@pytest.mark.slow
@pytest.mark.parametrize("seed", NAMED)
def test_planted_cause_of_a_random_draw_is_ranked_first(
    tmp_path: Path, seed: int
) -> None:
    outcome = judged(seed, tmp_path / "draw")
    assert outcome.is_hit, outcome.line()
    assert outcome.is_saving_right is not False, outcome.line()


@pytest.mark.slow
def test_clean_draw_has_no_cause(tmp_path: Path) -> None:
    outcome = judged(3, tmp_path / "draw", clean=True)
    assert outcome.is_hit, outcome.line()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Draw:
    return draw(1, Simulations(tmp_path_factory.mktemp("draw")), kind="slow compute")


def test_draw_repeats_with_its_seed_and_its_fault_has_the_stated_cost(
    tmp_path: Path, made: Draw
) -> None:
    look = Simulations(tmp_path)
    again = draw(1, look, kind="slow compute")
    assert (again.design, again.describe()) == (made.design, made.describe())
    (saving,) = {*made.savings(0)}
    assert LEAST <= saving <= MOST
    assert look(made.design).mean_ns == made.time_ns


def test_judge_compares_an_answer_with_the_planted_cause(made: Draw) -> None:
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


@pytest.mark.slow
@pytest.mark.parametrize("is_graph", [False, True])
def test_interface_names_of_links_equal_those_of_labs(
    tmp_path: Path, is_graph: bool
) -> None:
    look = Simulations(tmp_path)
    kinds = set()
    for seed in range(6):
        drawn = bases.drawn(random.Random(seed), (), bases.NAMESPACES)
        design = replace(drawn, is_graph=is_graph, measured=1)
        kinds.add(design.shape.kind)
        for way, use in look(design).links.items():
            name, _, direction = way.rpartition(" ")
            assert ":".join(design.sender(name, direction)) == use.port
    assert len(kinds) > 2


def test_declared_faults_are_not_planted_and_planted_ones_not_declared(
    made: Draw,
) -> None:
    name = made.design.shape.wires[0].name
    fault = {"kind": "loss", "link": name, "direction": "up", "probability": 0.25}
    storm = {"kind": "pause_storm", "link": name, "at": "1ms", "for": "1ms"}
    slow = replace(made.design, links=(fault, storm), own_rates_bps={name: 1_000_000})
    hidden = 0
    for seed in range(8):
        how = enacted(replace(made, seed=seed, design=slow), "lab")
        assert storm in how.design.links
        assert not how.design.own_rates_bps
        node, port = slow.sender(name, "up")
        assert ("-n", f"lab-{node}") == how.commands[0][1:3]
        assert {"rate", "1000000bit", port} <= {*how.commands[0]}
        losing = [each for each in how.commands if "nft" in each]
        assert (fault in how.design.links) == (not losing)
        hidden += len(losing)
    assert 0 < hidden < 8


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
