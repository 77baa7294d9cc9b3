"""Predictions where nobody knows the paths: several draws, and what is made of them."""

from __future__ import annotations

from chakram.collectives.groups import world_group
from chakram.config.transport import Faults
from chakram.controller.predictions import DRAWS, medians, path_draws, simulate_draws
from chakram.fabric.kinds.loopback import LoopbackFabric
from chakram.fabric.shapes import single_switch
from chakram.results.run_records import CollectiveKey
from chakram.switch.ecmp import DrawnPaths, KernelPaths
from chakram.switch.profiles import Switching
from tests.leaf_spines import clos
from tests.made_plans import collective, make_plan, program

FABRIC = LoopbackFabric.model_validate({"kind": "loopback"})
CLOS = clos(2, 2, 4, 10**9, 10**9)


def test_paths_that_are_known_or_no_choice_need_one_simulation() -> None:
    known = KernelPaths(seed=9)
    (told,) = path_draws(FABRIC, CLOS, 3, known=known)
    assert told.ecmp == known
    star = single_switch(4, 10**9)
    (drawn,) = path_draws(FABRIC, star, 3, known=None)
    assert drawn.ecmp == DrawnPaths(seed=3)


def test_paths_that_nobody_knows_are_drawn() -> None:
    draws = path_draws(FABRIC, CLOS, 3, known=None)
    assert [each.ecmp for each in draws] == [
        DrawnPaths(seed=3 + number) for number in range(DRAWS)
    ]


def test_every_draw_is_a_prediction_of_its_own() -> None:
    rows = [collective("all_to_all", 100_000)]
    group = world_group(8)
    plan = make_plan([program(rank, group, rows) for rank in range(8)], CLOS)
    healthy = Faults()
    drawn = [Switching(ecmp=DrawnPaths(seed=1))]
    one, notes = simulate_draws(plan, CLOS, 1, drawn, healthy)
    assert notes == ()
    assert list(one) == ["simulate"]
    draws = [Switching(ecmp=DrawnPaths(seed=seed)) for seed in (1, 2, 3, 4)]
    several, _ = simulate_draws(plan, CLOS, 1, draws, healthy)
    assert list(several) == [f"simulate.{number}" for number in range(4)]
    assert several["simulate.0"] == one["simulate"]
    assert len({tuple(times.values()) for times in several.values()}) > 1


def test_draws_of_one_source_are_taken_together() -> None:
    key, other = CollectiveKey("j", "g", 0), CollectiveKey("j", "g", 1)
    found = medians(
        {
            "simulate.0": {key: 10, other: 5},
            "simulate.1": {key: 40},
            "simulate.2": {key: 20},
            "elsewhere": {key: 7},
        }
    )
    assert found == {"simulate": {key: 20, other: 5}, "elsewhere": {key: 7}}
