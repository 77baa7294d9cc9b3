"""The experiments in ``configs``: each one is read, and planned where it can be."""

from __future__ import annotations

from pathlib import Path

import pytest

from chakram.config.experiment import load_experiment
from chakram.preparation.job_loading import load_jobs
from chakram.preparation.plan_summary import summarize_plan
from tests.experiments import planned_run
from tests.support import REPO_ROOT

CONFIGS = sorted((REPO_ROOT / "configs").glob("*.yaml"))
SELF_CONTAINED = [path for path in CONFIGS if path.stem != "mixtral-stage"]


def test_there_are_ready_experiments() -> None:
    assert {path.stem for path in CONFIGS} >= {
        "quickstart",
        "single-switch",
        "loopback",
        "external",
        "mixtral-stage",
    }


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_a_ready_experiment_is_read_and_named_like_its_file(path: Path) -> None:
    experiment = load_experiment(path)
    text = path.read_text(encoding="utf-8")
    assert experiment.name == path.stem or path.stem == "external"
    assert text.startswith("#"), "says what it is for"
    assert "$schema=schema/experiment.schema.json" in text


@pytest.mark.parametrize("path", SELF_CONTAINED, ids=lambda path: path.stem)
def test_a_ready_experiment_can_be_planned(path: Path) -> None:
    experiment = load_experiment(path)
    jobs = load_jobs(experiment)
    plan = planned_run(experiment, jobs, "r")
    summary = summarize_plan(plan, jobs)
    assert summary.warnings == ()
    assert summary.payload_bytes > 0


def test_the_quickstart_is_quick() -> None:
    experiment = load_experiment(REPO_ROOT / "configs/quickstart.yaml")
    jobs = load_jobs(experiment)
    plan = planned_run(experiment, jobs, "r")
    summary = summarize_plan(plan, jobs)
    assert summary.least_iteration_ns is not None
    # A kernel fabric may need three times what the busiest port does.
    assert 3 * summary.iterations * summary.least_iteration_ns < 60 * 10**9


def test_the_mixtral_experiment_fits_the_trace_of_stage(chakram_data: Path) -> None:
    trace = chakram_data / "traces/stage/moe_mixtral_ep4_tp2_8r"
    experiment = load_experiment(
        REPO_ROOT / "configs/mixtral-stage.yaml",
        overrides={"jobs.0.trace.path": str(trace)},
    )
    jobs = load_jobs(experiment)
    plan = planned_run(experiment, jobs, "r")
    summary = summarize_plan(plan, jobs)
    largest = max(line.trace_bytes for line in summary.collectives)
    # 131,072,000 elements of two bytes, as the trace states its all-reduces.
    assert largest == 262_144_000
    assert max(line.size_bytes for line in summary.collectives) == 2_621_440
    assert summary.jobs[0].ranks == 8
