"""Jobs of synthetic traces, of files, and of one rank's trace replicated."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from chakram.config.experiment import parse_experiment
from chakram.foundation.errors import ConfigError, PlanError, TraceError
from chakram.preparation import job_loading
from chakram.preparation.job_loading import load_jobs
from chakram.program.program_check import ProgramChecks
from chakram.synth.synthesize import write_synthesis
from tests.experiments import EXPERIMENT, moe, of_files
from tests.trace_bytes import collective, metadata


def test_a_synthetic_job_is_the_same_as_its_files(tmp_path: Path) -> None:
    write_synthesis(tmp_path, moe(ranks=4, ep=2, dp=2))
    (made,) = load_jobs(parse_experiment(EXPERIMENT))
    (read,) = load_jobs(parse_experiment(of_files(tmp_path)))
    assert read.digest == made.digest
    assert read.programs == made.programs
    assert read.nranks == 4


def test_missing_trace_is_refused() -> None:
    experiment = parse_experiment(of_files("/nowhere/x"))
    with pytest.raises(TraceError, match="/nowhere"):
        load_jobs(experiment)


def test_too_large_model_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"jobs\[0\].trace.layers: .* nodes"):
        parse_experiment(
            EXPERIMENT.replace("layers: 1", "layers: 10000, micro_batches: 100")
            .replace("ranks: 4, ep: 2", "ranks: 2000, ep: 1000")
            .replace("{hosts: 4}", "{hosts: 2000}")
        )


def test_replicated_trace_is_reported(tmp_path: Path) -> None:
    write_synthesis(tmp_path / "t", moe(ranks=2, ep=2, dp=1))
    text = of_files(tmp_path / "t", ", replicate: 4, rank: 1")
    (job,) = load_jobs(parse_experiment(text))
    assert job.nranks == 4
    assert job.warnings[0].startswith(
        "REPLICATED: all 4 ranks do the same as the trace of "
    )


@pytest.mark.parametrize(
    ("trace", "expected"),
    [
        ("rank: 1", "trace.rank: has no effect without replicate"),
        ("groups: {'1': tp}", "trace.groups: has no effect without replicate"),
        (
            "replicate: 8, dimensions: {tp: 2, dp: 3}",
            "dimensions: make 2 x 3 = 6 ranks, but replicate is 8",
        ),
        (
            "replicate: 4, dimensions: {tp: 4}, groups: {'1': pp}",
            "there is no dimension 'pp' (choose from tp, all)",
        ),
        ("replicate: 4, groups: [tp]", "['tp'] is not a mapping of groups"),
        ("replicate: 4, groups: {1: 3}", "3 is not the name of a dimension"),
        ("replicate: 8", "needs ports 0 to 7, but the fabric has 4"),
    ],
)
def test_mistakes_of_replication_are_reported(trace: str, expected: str) -> None:
    text = of_files("x", f", {trace}")
    with pytest.raises(ConfigError) as error:
        parse_experiment(text)
    assert expected in str(error.value)


def test_dimensions_are_of_a_set_of_all_ranks_too(tmp_path: Path) -> None:
    for rank in range(4):
        record = collective(1, involved_dim=(False, True))
        (tmp_path / f"w.{rank}.et").write_bytes(metadata() + record)
    with pytest.raises(TraceError, match="of only some dimensions"):
        load_jobs(parse_experiment(of_files(tmp_path)))
    text = of_files(tmp_path, ", dimensions: {tp: 2, dp: 2}")
    (job,) = load_jobs(parse_experiment(text))
    groups = {group.ranks for program in job.programs for group in program.groups}
    assert groups == {(0, 1, 2, 3), (0, 2), (1, 3)}
    text = of_files(tmp_path, ", dimensions: {tp: 2, dp: 4}")
    with pytest.raises(TraceError, match="4 ranks, but the dimensions 2 x 4 have 8"):
        load_jobs(parse_experiment(text))


@pytest.mark.parametrize(
    ("keys", "is_copied"),
    [
        ("", True),
        ("    ordering: overlap\n", True),
        ("    resources: astra-sim\n", False),
    ],
)
def test_copies_need_no_common_order_of_ranks(
    monkeypatch: pytest.MonkeyPatch, keys: str, is_copied: bool
) -> None:
    text = EXPERIMENT.replace("    trace:", f"{keys}    trace:")
    (explicit,) = load_jobs(parse_experiment(text))
    monkeypatch.setattr("chakram.synth.synthesize.LEAST_NODES", 0)
    (job,) = load_jobs(parse_experiment(text))
    assert job.programs == explicit.programs
    assert job.nodes == explicit.nodes
    assert (job.digest != explicit.digest) == is_copied


@pytest.mark.parametrize(
    ("stream", "is_copied"),
    [
        ("{op: all_reduce, size: 1MiB, count: 2, barrier: true}", True),
        ("{op: all_to_all, size: 1MiB, members: 4, stride: 2, gap: 1ms}", True),
        ("{op: send_recv, size: 1MiB}", False),
    ],
)
def test_ranks_of_collectives_are_copied(
    monkeypatch: pytest.MonkeyPatch, stream: str, is_copied: bool
) -> None:
    streams = f"{stream}, {{op: all_gather, size: 64KiB}}"
    trace = f"{{synth: collectives, ranks: 8, streams: [{streams}]}}"
    text = EXPERIMENT.replace("{hosts: 4}", "{hosts: 8}")
    text = re.sub(r"trace: .*", f"trace: {trace}", text)
    (explicit,) = load_jobs(parse_experiment(text))
    monkeypatch.setattr("chakram.synth.synthesize.LEAST_RANKS", 8)
    (job,) = load_jobs(parse_experiment(text))
    assert job.programs == explicit.programs
    assert job.nodes == explicit.nodes
    assert (job.digest != explicit.digest) == is_copied


def test_copies_are_checked_and_warned_about(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chakram.synth.synthesize.LEAST_NODES", 0)
    monkeypatch.setattr(
        job_loading, "too_small_warnings", lambda programs: [f"{len(programs)} ranks"]
    )
    (job,) = load_jobs(parse_experiment(EXPERIMENT))
    assert job.warnings == ("1 ranks",)
    monkeypatch.setattr(
        ProgramChecks, "problems", lambda _, program: [f"rank {program.rank} is wrong"]
    )
    with pytest.raises(PlanError, match="rank 0 is wrong"):
        load_jobs(parse_experiment(EXPERIMENT))
