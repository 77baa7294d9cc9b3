"""Runs interrupted by Ctrl-C, SIGTERM or a closed terminal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from chakram.cli import main
from chakram.execution.session import Session
from chakram.run_directory.manifest import COMPLETE, FAILED, PARTIAL
from chakram.run_directory.reader import open_run
from tests.e2e.endings import check_next_run, check_nothing_is_left, check_results
from tests.e2e.processes import RunProcess, gone
from tests.e2e.runs import fabric, moe, write_experiment
from tests.waiting import PATIENCE_S, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("netns")

INTERRUPTED = 130
IGNORING_SIGINT = ("env", "--ignore-signal=INT")
"""As what a shell script starts in the background."""


def to_the_group(run: RunProcess) -> None:
    """Press Ctrl-C: the terminal signals every process of the foreground group."""
    os.killpg(run.process.pid, signal.SIGINT)


def to_the_controller(run: RunProcess) -> None:
    run.process.send_signal(signal.SIGINT)


def by_a_supervisor(run: RunProcess) -> None:
    run.process.send_signal(signal.SIGTERM)


def by_a_closed_terminal(run: RunProcess) -> None:
    os.killpg(run.process.pid, signal.SIGHUP)


@pytest.mark.parametrize(
    ("stop", "name"),
    [
        (to_the_group, "SIGINT"),
        pytest.param(to_the_controller, "SIGINT", marks=pytest.mark.soak),
        pytest.param(by_a_supervisor, "SIGTERM", marks=pytest.mark.soak),
        pytest.param(by_a_closed_terminal, "SIGHUP", marks=pytest.mark.soak),
    ],
)
def test_an_interrupted_run_keeps_its_results(
    going: RunProcess,
    endless: Path,
    state_root: Path,
    stop: Callable[[RunProcess], None],
    name: str,
) -> None:
    family = going.family()

    stop(going)

    ended = going.wait()
    assert ended.code == INTERRUPTED
    assert ended.sentence == f"run: interrupted by {name}"
    assert gone(family)
    check_nothing_is_left(state_root)
    assert check_results(ended.directory, PARTIAL) == ended.sentence
    assert f"PARTIAL: {ended.sentence}" in ended.output
    assert ended.results.links()


@pytest.mark.parametrize(
    ("stop", "phase"),
    [
        (to_the_group, "building the fabric"),
        (to_the_controller, "preparing agents"),
        pytest.param(to_the_controller, "building the fabric", marks=pytest.mark.soak),
        pytest.param(to_the_group, "preparing agents", marks=pytest.mark.soak),
    ],
)
def test_a_run_is_interrupted_before_it_has_begun(
    endless: Path, state_root: Path, stop: Callable[[RunProcess], None], phase: str
) -> None:
    with RunProcess(endless) as run:
        wait_until(lambda: phase in run.errors, phase)
        family = run.family()

        stop(run)

        ended = run.wait()
        assert ended.code == INTERRUPTED
        assert ended.sentence == "run: interrupted by SIGINT"
        assert gone(family)
    check_nothing_is_left(state_root)
    # A slow machine may have been quicker to begin than this test to interrupt.
    began = "replaying" in ended.errors
    assert ended.results.manifest.status == (PARTIAL if began else FAILED)
    assert bool(ended.output) is began


def test_second_interrupt_ends_the_run_at_once(
    going: RunProcess, endless: Path, state_root: Path
) -> None:
    family = going.family()

    for _ in range(3):
        to_the_group(going)

    ended = going.wait()
    assert ended.code == INTERRUPTED
    assert gone(family)
    check_nothing_is_left(state_root)
    assert ended.results.manifest.status == PARTIAL
    check_next_run(endless)


@pytest.mark.parametrize(
    ("stop", "name", "prefix"),
    [
        pytest.param(to_the_controller, "SIGINT", (), marks=pytest.mark.soak),
        (to_the_controller, "SIGINT", IGNORING_SIGINT),
        (by_a_supervisor, "SIGTERM", ()),
    ],
)
def test_interrupted_simulation_is_marked_in_its_directory(
    endless: Path,
    stop: Callable[[RunProcess], None],
    name: str,
    prefix: tuple[str, ...],
) -> None:
    with RunProcess(endless, verb="simulate", prefix=prefix) as simulation:
        wait_until(lambda: "simulating: " in simulation.errors, "its start")

        stop(simulation)

        ended = simulation.wait()
    assert ended.code == INTERRUPTED
    assert ended.sentence == f"simulation: interrupted by {name}"
    manifest = ended.results.manifest
    assert (manifest.status, manifest.reason) == (FAILED, ended.sentence)


def test_run_continues_when_its_output_pipe_closes(tmp_path: Path) -> None:
    experiment = write_experiment(tmp_path, [moe(4)], fabric("loopback", 4))
    reader, writer = os.pipe()
    os.close(reader)

    process = subprocess.Popen(
        [sys.executable, "-m", "chakram", "run", str(experiment)],
        stdout=writer,
        stderr=writer,
    )
    os.close(writer)

    assert process.wait(PATIENCE_S) == 0
    (directory,) = (tmp_path / "runs").iterdir()
    assert open_run(directory).manifest.status == COMPLETE


def test_an_error_of_chakram_leaves_a_run_that_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(session: Session) -> None:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr(Session, "run", fail)
    monkeypatch.chdir(tmp_path)
    experiment = write_experiment(tmp_path, [moe(4)], fabric("loopback", 4))
    assert main(["run", str(experiment)]) == 1
    (directory,) = (tmp_path / "runs").iterdir()
    manifest = open_run(directory).manifest
    assert manifest.status == FAILED
    assert manifest.reason == "run: internal error: ZeroDivisionError: planted"
