"""Several sweeps in one folder share the cells, and a killed sweep blocks no cell."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from chakram.config.suite import load_suite
from chakram.sweep.folder import CellRun, cell_runs
from tests.udp_ports import free_udp_ports
from tests.unit.cli.test_sweep import EXPERIMENT, files, written
from tests.waiting import PATIENCE_S

FOLDER = "sweeps/sizes"
HOLD = """\
import json, sys
from pathlib import Path
from chakram.sweep.folder import CellClaims, CellRun, keep_outcome
run = CellRun(*json.loads(sys.argv[2]))
folder = Path(sys.argv[1])
with CellClaims(folder) as claims:
    assert claims.claim(run)
    print("claimed", flush=True)
    outcome = json.loads(sys.stdin.readline())
    keep_outcome(folder, run, {**outcome, "digest": run.digest})
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return written(tmp_path)


@contextmanager
def sweeping(
    folder: Path, *options: str, start_new_session: bool = False
) -> Iterator[subprocess.Popen[str]]:
    """Sweep in *folder* while the body runs."""
    with subprocess.Popen(
        [sys.executable, "-m", "chakram", "sweep", "suite.yaml", *options],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=start_new_session,
    ) as sweep:
        try:
            yield sweep
        finally:
            sweep.kill()


def sweep_twice(folder: Path, *options: str) -> list[str]:
    """Return the output of two concurrent sweeps; both succeed."""
    with sweeping(folder, *options) as one, sweeping(folder, *options) as other:
        outputs = [sweep.communicate(timeout=PATIENCE_S) for sweep in (one, other)]
        assert [one.returncode, other.returncode] == [0, 0], outputs
    return [printed for printed, _ in outputs]


def run_directories(folder: Path) -> int:
    return len(list((folder / FOLDER / "runs").glob("*/*/run.json")))


def runs_of(folder: Path) -> list[CellRun]:
    return cell_runs(load_suite(folder / "suite.yaml"), folder / FOLDER)


@contextmanager
def holding(folder: Path, run: CellRun) -> Iterator[subprocess.Popen[str]]:
    """Claim a cell in another process while the body runs."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder / FOLDER), json.dumps(run)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "claimed\n"
        yield holder
    finally:
        holder.kill()
        holder.communicate()


@pytest.mark.parametrize("jobs", [pytest.param("1", marks=pytest.mark.soak), "2"])
def test_two_sweeps_in_one_folder_run_each_cell_once(folder: Path, jobs: str) -> None:
    one, other = sweep_twice(folder, "--jobs", jobs)
    assert run_directories(folder) == len(runs_of(folder)) == 16
    assert one == other


def test_sweep_uses_the_result_of_a_cell_that_another_sweep_runs(
    folder: Path,
) -> None:
    run = runs_of(folder)[3]
    with holding(folder, run) as holder, sweeping(folder) as sweep:
        assert sweep.stderr is not None
        told = [next(sweep.stderr) for _ in range(16)]
        assert told[-1] == "waiting for 1 cells of another sweep in this folder\n"
        assert not any(f"{run.name} repetition {run.repetition}:" in x for x in told)
        holder.communicate('{"status": "failed", "reason": "too hot"}\n')
        _, rest = sweep.communicate(timeout=PATIENCE_S)
    assert rest.startswith(
        f"16/16 {run.name} repetition {run.repetition}: failed: too hot\n"
    )
    assert sweep.returncode == 4
    assert run_directories(folder) == 15


def test_cells_of_a_killed_sweep_are_run_by_the_other(folder: Path) -> None:
    run = runs_of(folder)[3]
    with holding(folder, run) as holder, sweeping(folder, "--jobs", "2") as sweep:
        assert sweep.stderr is not None
        while "another sweep" not in next(sweep.stderr):
            pass
        holder.kill()
        _, told = sweep.communicate(timeout=PATIENCE_S)
    assert f"{run.name} repetition {run.repetition}: complete" in told
    assert sweep.returncode == 0
    assert run_directories(folder) == 16


@pytest.mark.soak
def test_a_killed_sweep_does_not_block_the_next(folder: Path) -> None:
    with sweeping(folder) as killed:
        assert killed.stderr is not None
        next(killed.stderr)
        killed.kill()
    with sweeping(folder) as sweep:
        _, told = sweep.communicate(timeout=PATIENCE_S)
    assert sweep.returncode == 0, told
    assert files(folder / FOLDER)


def test_one_sweep_at_a_time_runs_cells_on_a_fabric(folder: Path) -> None:
    """Two sweeps would disturb each other's measurements."""
    suite = "version: 1\nname: sizes\nbase: base.yaml\nworld: run\nrepetitions: 2\n"
    (folder / "suite.yaml").write_text(suite)
    (folder / "base.yaml").write_text(
        EXPERIMENT.partition("fabric:")[0]
        + f"fabric: {{kind: loopback, udp_port: {free_udp_ports()}}}\n"
    )
    sweep_twice(folder)
    assert run_directories(folder) == 2
