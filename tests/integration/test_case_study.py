"""The statements of the case study, on a short run of it."""

from __future__ import annotations

import importlib.util
import sys
from itertools import pairwise
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from chakram.api import simulate
from tests.support import REPO_ROOT

# On a busy machine the simulations take a minute or two.
pytestmark = pytest.mark.timeout(400)

SEEDS = (1,)
CONTROLS = {
    "none": "none",
    "dcqcn-nvidia": {"dcqcn": {"profile": "dcqcn-nvidia"}},
}
ALL_REDUCE = {"op": "all_reduce", "size": "8MiB", "count": 1}
ALL_TO_ALL = {"op": "all_to_all", "size": "2MiB", "count": 14}
CASES: dict[str, dict[str, Any]] = {
    "all-reduce-alone": {"jobs[0].trace.streams": [ALL_REDUCE]},
    "all-to-all-alone": {"jobs[0].trace.streams": [ALL_TO_ALL]},
    "mixed": {"jobs[0].trace.streams": [ALL_REDUCE, ALL_TO_ALL]},
    "classes-apart": {
        "jobs[0].trace.streams": [ALL_REDUCE, ALL_TO_ALL],
        "transport.class_of": [{"collective": "all_to_all", "class": 4}],
    },
}


def load_effects() -> ModuleType:
    path = REPO_ROOT / "docs/examples/case-study/effects.py"
    spec = importlib.util.spec_from_file_location("effects", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["effects"] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module


effects = load_effects()


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("runs")
    found: Any = {}
    for case, settings in CASES.items():
        for name, control in CONTROLS.items():
            if case.endswith("alone") and name != "none":
                continue  # next to nothing is marked
            if case == "classes-apart" and name == "none":
                continue
            for seed in SEEDS:
                overrides = {**settings, "transport.congestion_control": control}
                results = simulate(
                    REPO_ROOT / "configs/moe-mix/mix.yaml",
                    set={"seed": seed, **overrides},
                    runs=folder,
                )
                runs = found.setdefault((case, name), {})
                runs[seed] = effects.samples_of(results)
    return found


def record(op: str, start_ns: int, end_ns: int, iteration: int = 0) -> Any:
    return SimpleNamespace(
        identity=SimpleNamespace(op=op),
        iteration=iteration,
        start_ns=start_ns,
        end_ns=end_ns,
    )


def test_only_fully_overlapped_collectives_count() -> None:
    others = [record("b", 10, 20), record("b", 20, 40)]
    counts = {
        (start, end): effects.is_overlapped(record("a", start, end), others)
        for start, end in pairwise((5, 10, 15, 40, 45))
    }
    assert counts == {(5, 10): False, (10, 15): True, (15, 40): True, (40, 45): False}
    assert effects.is_overlapped(record("a", 0, 99), [record("a", 10, 20)])
    assert effects.is_overlapped(record("a", 0, 99), [record("b", 1, 2, iteration=1)])


def of_runs(study: Any, case: str, control: str, op: str) -> list[Any]:
    return [each[op] for each in study[case, control].values()]


def test_mix_slows_the_all_reduce_and_congestion_control_slows_it_more(
    study: Any,
) -> None:
    def bus(case: str, control: str) -> list[float]:
        return [
            float(each.busbw.mean())
            for each in of_runs(study, case, control, "all_reduce")
        ]

    alone, plain = bus("all-reduce-alone", "none"), bus("mixed", "none")
    controlled = bus("mixed", "dcqcn-nvidia")
    # Near line rate by itself, which is 50 GB/s.
    assert min(alone) > 40
    assert max(plain) < 0.5 * min(alone)
    assert max(controlled) < 0.9 * min(plain)
    # Traffic classes give most of that back.
    apart = bus("classes-apart", "dcqcn-nvidia")
    assert min(apart) > 1.1 * max(plain)
    assert max(apart) < 0.8 * min(alone)


def test_all_to_all_is_slowed_less_by_congestion_control_than_by_classes(
    study: Any,
) -> None:
    def tails(case: str, control: str) -> list[float]:
        runs = of_runs(study, case, control, "all_to_all")
        return [effects.tail(each) for each in runs]

    alone, plain = tails("all-to-all-alone", "none"), tails("mixed", "none")
    controlled = tails("mixed", "dcqcn-nvidia")
    assert min(plain) > 1.2 * max(alone)
    assert max(controlled) < min(plain)
    assert min(tails("classes-apart", "dcqcn-nvidia")) > max(controlled)


def test_pacing_causes_the_tail_of_the_all_reduce(study: Any) -> None:
    for each in of_runs(study, "mixed", "dcqcn-nvidia", "all_reduce"):
        assert each.tail_share("pace") > 0.1
    for each in of_runs(study, "mixed", "dcqcn-nvidia", "all_to_all"):
        assert each.tail_share("pace") < 0.05
    for each in of_runs(study, "mixed", "none", "all_reduce"):
        assert each.tail_share("pace") == 0


def test_tables_and_figures_name_every_case(study: Any) -> None:
    for op in effects.OPS:
        text = "\n".join([*effects.table(study, op), *effects.tails(study, op)])
        for case, control in study:
            if op in next(iter(study[case, control].values())):
                assert text.count(f"| {case} | {control} |") == 2
    names = [plot.figure.name for plot in effects.figures(study, "dcqcn-nvidia")]
    assert names == [
        "case-study-busbw-all-reduce",
        "case-study-busbw-all-to-all",
        "case-study-fct",
    ]
