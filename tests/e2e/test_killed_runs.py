"""Runs whose processes are killed: traffic ends and results are kept."""

from __future__ import annotations

import re
import signal
from typing import TYPE_CHECKING

import pytest

from chakram.fabric.labs.lab import status
from chakram.run_directory.manifest import COMPLETE, KILLED, PARTIAL, RUNNING
from chakram.run_directory.reader import open_run
from tests.e2e.endings import (
    check_next_run,
    check_nothing_is_left,
    check_results,
)
from tests.e2e.processes import (
    AGENT,
    FORK_SERVER,
    HOLDER,
    SHARD,
    TRAFFIC_ENDS_S,
    RunProcess,
    gone,
)
from tests.e2e.runs import LAB, chakram, moe, star, write_experiment
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.processes import Member

pytestmark = pytest.mark.usefixtures("netns")

RUN_FAILED = 4


def wait_for_the_end_of_traffic(family: list[Member]) -> None:
    wait_until(
        lambda: gone(family, SHARD),
        "the end of traffic",
        timeout_s=TRAFFIC_ENDS_S,
        processes=[each.pid for each in family],
    )


def test_killed_controller_ends_all_its_processes(
    going: RunProcess, endless: Path, state_root: Path
) -> None:
    family = going.family()
    assert {
        text
        for text in (AGENT, FORK_SERVER, SHARD, HOLDER)
        for each in family
        if text in each.command
    } == {AGENT, FORK_SERVER, SHARD, HOLDER}

    (directory,) = going.runs.iterdir()
    assert open_run(directory).manifest.status == RUNNING

    going.process.kill()

    wait_for_the_end_of_traffic(family)
    wait_until(lambda: gone(family), "the end of all processes")
    assert not any(each.alive for each in status())
    going.process.wait()
    chakram("fabric", "down", LAB, runs=going.runs)
    check_nothing_is_left(state_root)
    check_results(directory, KILLED)
    check_next_run(endless)


def test_a_run_that_was_measured_is_complete_without_the_holder_of_its_lab(
    tmp_path: Path, state_root: Path
) -> None:
    # It computes for long enough for the holder to be killed before it ends.
    job = moe(4, attention="500ms") | {"compute": {"from": "trace"}}
    job |= {"size_scale": "1/16"}
    experiment = write_experiment(
        tmp_path, [job], star(4), iterations={"warmup": 0, "measured": 2}
    )
    with RunProcess(experiment) as going:
        wait_until(lambda: "replaying" in going.errors, "the start of the run")
        holder = going.member(HOLDER)

        holder.signal(signal.SIGKILL)

        ended = going.wait()
    assert ended.code == 0, ended.errors
    manifest = ended.results.manifest
    assert manifest.status == COMPLETE
    assert any(
        text.startswith("the counters of the links are unknown: lab ")
        for text in manifest.banners
    )
    assert {each.iteration for each in ended.results.ranks()} == {0, 1}
    check_nothing_is_left(state_root)


@pytest.mark.parametrize(
    ("victim", "sentence"),
    [
        (AGENT, r"run: agent local: the connection was lost \(it has ended, "),
        pytest.param(
            SHARD,
            r"run: agent local: the process of shard \d was killed by signal 9: ",
            marks=pytest.mark.soak,
        ),
        pytest.param(
            FORK_SERVER,
            "run: agent local: the process that starts shards was killed by signal 9",
            marks=pytest.mark.soak,
        ),
    ],
    ids=["agent", "shard", "fork-server"],
)
def test_run_that_loses_a_process_ends_with_the_reason(
    going: RunProcess, state_root: Path, victim: str, sentence: str
) -> None:
    family = going.family()

    going.member(victim).signal(signal.SIGKILL)

    wait_for_the_end_of_traffic(family)
    ended = going.wait()
    assert ended.code == RUN_FAILED
    assert re.match(sentence, ended.sentence)
    assert gone(family)
    check_nothing_is_left(state_root)
    assert check_results(ended.directory, PARTIAL) == ended.sentence
