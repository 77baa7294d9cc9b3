"""Runs from saved plans, and plans that do not match."""

from __future__ import annotations

import os
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from chakram.collectives.groups import WORLD, ProcessGroup
from chakram.config.experiment import Experiment, load_experiment
from chakram.foundation.errors import PlanError
from chakram.preparation.job_loading import load_jobs
from chakram.preparation.resolved_run import load_run
from chakram.preparation.saved_plans import load_plan, save_plan
from chakram.synth.settings.training import MoeTrace
from chakram.synth.synthesize import synthesize, write_synthesis
from tests.experiments import planned_run
from tests.made_plans import collective, program
from tests.unit.chakra.read.pytorch.test_pytorch_sets import (
    write_hosts,
    write_profiles,
)

CHECKOUT = Path(__file__).parents[3]

EXPERIMENT = """
version: 1
name: saved
jobs:
  - {name: moe, trace: {path: traces}, compute: {from: trace}}
collectives: {all_reduce: ring}
iterations: {warmup: 0, measured: 1}
fabric:
  kind: namespaces
  switch: kernel
  topology: {single_switch: {hosts: 4}}
  links: {host: {rate: 1Gbit}}
transport: {congestion_control: fixed_rate}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with an experiment and its traces."""
    synthesis = synthesize(MoeTrace(synth="moe", ranks=4, ep=2, dp=2, layers=2))
    write_synthesis(tmp_path / "traces", synthesis)
    (tmp_path / "e.yaml").write_text(EXPERIMENT)
    return tmp_path


def experiment_in(folder: Path, **overrides: str) -> Experiment:
    changed = {key.replace("__", "."): value for key, value in overrides.items()}
    return load_experiment(folder / "e.yaml", overrides=changed)


def saved(folder: Path) -> Path:
    experiment = experiment_in(folder)
    save_plan(folder / "p.plan", experiment, load_jobs(experiment))
    return folder / "p.plan"


def test_run_from_a_saved_plan_equals_the_run_from_traces(folder: Path) -> None:
    path = saved(folder)
    experiment = experiment_in(folder)
    of_traces = load_run(experiment).jobs
    of_file = load_run(experiment, plan_file=path).jobs
    plans = [planned_run(experiment, jobs, "run") for jobs in (of_traces, of_file)]
    assert plans[0] == plans[1]
    for field in ("name", "trace", "producer", "digest", "nodes", "warnings"):
        assert getattr(of_file[0], field) == getattr(of_traces[0], field)


def test_fabric_transport_and_placement_may_change(folder: Path) -> None:
    experiment = experiment_in(
        folder,
        fabric__links__host__rate="2Gbit",
        transport__window="32KiB",
        iterations__measured="7",
        jobs__0__placement__ranks_per_port="2",
    )
    (job,) = load_plan(saved(folder), experiment)
    assert job.placement.ranks_per_port == 2


def test_saved_plan_does_not_need_its_traces(folder: Path) -> None:
    path = saved(folder)
    for trace in (folder / "traces").iterdir():
        trace.unlink()
    assert load_plan(path, experiment_in(folder))[0].nranks == 4


@pytest.mark.parametrize(
    "change",
    [
        {"jobs__0__compute__scale": "2"},
        {"jobs__0__size_scale": "1/2"},
        {"collectives__all_reduce": "tree"},
        {"iterations__sync": "free"},
        {"jobs__0__trace__dependencies": "both"},
    ],
)
def test_a_plan_for_other_programs_is_refused(
    folder: Path, change: dict[str, str]
) -> None:
    path = saved(folder)
    with pytest.raises(
        PlanError, match="was saved for a different trace, or for different"
    ):
        load_plan(path, experiment_in(folder, **change))


def test_a_plan_of_other_jobs_is_refused(folder: Path) -> None:
    path = saved(folder)
    with pytest.raises(PlanError, match="has the jobs moe, but the experiment has"):
        load_plan(path, experiment_in(folder, jobs__0__name="other"))


def test_a_plan_is_refused_once_a_trace_has_changed(folder: Path) -> None:
    path = saved(folder)
    trace = folder / "traces" / "moe.2.et"
    trace.write_bytes(trace.read_bytes() + b"\x00")
    with pytest.raises(PlanError, match=r"moe\.2\.et has changed since it was saved"):
        load_plan(path, experiment_in(folder))


def test_group_file_next_to_an_archive_is_a_part_of_the_trace(folder: Path) -> None:
    groups = folder / "comm_group.json"
    (folder / "traces" / "comm_group.json").rename(groups)
    with tarfile.open(folder / "set.tar", "w") as archive:
        archive.add(folder / "traces", "traces")
    text = (folder / "e.yaml").read_text()
    (folder / "e.yaml").write_text(text.replace("path: traces", "path: set.tar"))
    path = saved(folder)
    groups.write_text(groups.read_text() + "\n")
    with pytest.raises(PlanError, match=r"comm_group\.json has changed"):
        load_plan(path, experiment_in(folder))


def test_profiles_are_a_part_of_the_trace(folder: Path) -> None:
    recorded = CHECKOUT / "docs/examples/own-trace/recorded.tar.gz"
    with tarfile.open(recorded) as archive:
        archive.extractall(folder / "recorded", filter="data")
    text = (folder / "e.yaml").read_text()
    (folder / "e.yaml").write_text(text.replace("path: traces", "path: recorded"))
    path = saved(folder)
    profile = folder / "recorded" / "kineto_2.json"
    profile.write_bytes(profile.read_bytes() + b"\n")
    with pytest.raises(PlanError, match=r"kineto_2\.json has changed"):
        load_plan(path, experiment_in(folder))


def test_plan_of_one_replicated_rank_needs_no_files_of_others(folder: Path) -> None:
    for rank in range(3):
        (folder / "traces" / f"moe.{rank}.et").unlink()
    text = (folder / "e.yaml").read_text()
    alone = "path: traces, replicate: 4, rank: 3"
    (folder / "e.yaml").write_text(text.replace("path: traces", alone))
    assert load_plan(saved(folder), experiment_in(folder))[0].nranks == 4


def test_changed_input_files_of_synthetic_traces_are_detected(folder: Path) -> None:
    splits = folder / "splits.json"
    tokens = '{"unit": "tokens", "dispatches": [[[3, 1], [2, 2]]]}'
    splits.write_text(tokens)
    made_up = (
        "{synth: moe, ranks: 2, ep: 2, dp: 1, micro_batch: 1, sequence: 4, top_k: 1, "
        "routing: {law: recorded, splits: %s}}"
    )
    text = (folder / "e.yaml").read_text()
    (folder / "e.yaml").write_text(text.replace("{path: traces}", made_up % splits))
    path = saved(folder)
    assert load_plan(path, experiment_in(folder))[0].nranks == 2
    splits.write_text(tokens + "\n")
    with pytest.raises(PlanError, match=r"splits\.json has changed"):
        load_plan(path, experiment_in(folder))


STREAM = (
    "{synth: collectives, ranks: 2, streams: [{op: all_to_all, splits: %s, count: 1}]}"
)


def test_changed_splits_of_streams_are_detected(folder: Path) -> None:
    splits = folder / "splits.txt"
    splits.write_text("1 2\n3 4\n")
    text = (folder / "e.yaml").read_text()
    (folder / "e.yaml").write_text(text.replace("{path: traces}", STREAM % splits))
    path = saved(folder)
    splits.write_text("1 2\n3 40\n")
    with pytest.raises(PlanError, match=r"splits\.txt has changed"):
        load_plan(path, experiment_in(folder))


def test_changed_traces_in_a_folder_of_splits_are_detected(folder: Path) -> None:
    uneven = MoeTrace.model_validate(
        {"synth": "moe", "ep": 2, "dp": 1, "routing": {"law": "hot_expert"}}
    )
    write_synthesis(folder / "splits", synthesize(uneven))
    text = (folder / "e.yaml").read_text()
    (folder / "e.yaml").write_text(
        text.replace("{path: traces}", STREAM % (folder / "splits"))
    )
    path = saved(folder)
    trace = folder / "splits" / "moe.1.et"
    # The folder itself does not change if a file in it is overwritten.
    trace.write_bytes(trace.read_bytes() + b"\x00")
    with pytest.raises(PlanError, match=r"moe\.1\.et has changed"):
        load_plan(path, experiment_in(folder))


@pytest.mark.parametrize("key", ["", ", kineto: profiles"])
def test_changed_profiles_are_detected(folder: Path, key: str) -> None:
    profiles = folder / "profiles" if key else folder / "kineto"
    write_hosts(folder / "hosts")
    write_profiles(profiles, "host")
    text = (folder / "e.yaml").read_text()
    (folder / "e.yaml").write_text(
        text.replace("{path: traces}", f"{{path: hosts{key}}}")
    )
    path = saved(folder)
    assert load_plan(path, experiment_in(folder))[0].nranks == 3
    profile = profiles / "host_1.json"
    profile.write_bytes(profile.read_bytes() + b"\n")
    with pytest.raises(PlanError, match=r"host_1\.json has changed"):
        load_plan(path, experiment_in(folder))


def test_plan_of_a_replicated_rank_needs_no_other_rank(folder: Path) -> None:
    for trace in (folder / "traces").glob("moe.*.et"):
        if trace.name != "moe.2.et":
            trace.unlink()
    text = (folder / "e.yaml").read_text()
    replicated = "{path: traces/moe.2.et, replicate: 4, rank: 2}"
    (folder / "e.yaml").write_text(text.replace("{path: traces}", replicated))
    assert load_plan(saved(folder), experiment_in(folder))[0].nranks == 4


def test_missing_plan_is_reported(folder: Path) -> None:
    with pytest.raises(PlanError, match="cannot be read: No such file"):
        load_plan(folder / "p.plan", experiment_in(folder))


@pytest.mark.slow
def test_plan_that_cannot_be_read_back_is_not_written(folder: Path) -> None:
    experiment = experiment_in(folder)
    (job,) = load_jobs(experiment)
    # The place of a rank in an irregular group has to be searched.
    ranks = (1, 0, *range(2, 17_000))
    group = ProcessGroup(name=WORLD, ranks=ranks)
    first = program(0, [group], [collective("all_reduce", 64)])
    many = tuple(replace(first, rank=rank) for rank in range(17_000))
    job = replace(job, programs=many)
    with pytest.raises(PlanError, match="would not be readable: 288966002 members"):
        save_plan(folder / "p.plan", experiment, [job])
    assert not list(folder.glob("p.plan*"))


def test_a_plan_does_not_replace_folders_and_pipes(folder: Path) -> None:
    experiment = experiment_in(folder)
    pipe = folder / "pipe"
    os.mkfifo(pipe)
    for place in (Path(), folder, pipe):
        with pytest.raises(PlanError, match="is not a file"):
            save_plan(place, experiment, load_jobs(experiment))
    assert pipe.is_fifo()


def test_failure_to_write_a_plan_is_reported(folder: Path) -> None:
    experiment = experiment_in(folder)
    with pytest.raises(PlanError, match="cannot be written: No such file"):
        save_plan(folder / "no" / "p.plan", experiment, load_jobs(experiment))
    assert not (folder / "no").exists()
