"""Runs whose windows are smaller than what fits into a round trip."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING

import pytest

from chakram.cli import main
from chakram.run_directory.manifest import COMPLETE
from chakram.run_directory.reader import RunResults, open_run
from tests.e2e.processes import RunProcess
from tests.e2e.runs import moe, star, write_experiment
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.usefixtures("netns"), pytest.mark.timeout(300)]

PHASE = "simulating with the delays of the hosts\n"
BANNER = "simulated times are ranges"


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    # A packet takes 20 us here, and the system calls of both hosts take longer.
    return write_experiment(
        tmp_path,
        jobs=[moe(all_to_all="128KiB", all_reduce="128KiB")],
        fabric=star(4, rate="400Mbit"),
        transport={"path_mtu": 1024, "window": "1KiB"},
        predict=["bound", "simulate"],
    )


def result(run: RunProcess) -> RunResults:
    """Return the results of a run that has ended well."""
    ended = run.wait()
    assert ended.code == 0, ended.errors
    (path,) = ended.runs.iterdir()
    return open_run(path)


def test_a_healthy_run_has_a_range_and_no_slow_link(
    experiment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with RunProcess(experiment) as run:
        results = result(run)
        assert PHASE in run.errors
    assert any(BANNER in each for each in results.manifest.banners)
    for row in results.summary().rows:
        prediction = row.predictions["simulate"]
        if row.op != "barrier":
            assert prediction.draws == 2
            assert prediction.least_ns is not None
            assert prediction.most_ns is not None
            assert prediction.least_ns < prediction.time_ns < prediction.most_ns
            assert row.time_ns > 1.05 * prediction.least_ns

    capsys.readouterr()
    assert main(["why", str(results.path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["verified"], found["not_verified"]
    faults = {each["cause"] for each in found["causes"] if each["class"] == "fault"}
    assert faults <= {"generator slow"}


def test_an_interrupt_ends_this_simulation_only(experiment: Path) -> None:
    with RunProcess(experiment) as run:
        wait_until(lambda: PHASE in run.errors, "the simulation with delays")
        os.killpg(run.process.pid, signal.SIGINT)
        results = result(run)
    assert results.manifest.status == COMPLETE
    assert not any(BANNER in each for each in results.manifest.banners)
