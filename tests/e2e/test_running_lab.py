"""Successive runs in a running lab leave it unchanged."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from chakram.fabric.labs.lab import down, lab_status
from chakram.fabric.labs.running_labs import claimed
from chakram.run_directory.reader import open_run
from tests.e2e.runs import LAB, chakram, completed, moe, run, star, write_experiment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chakram.fabric.labs.lab import LabStatus

pytestmark = pytest.mark.usefixtures("netns")


@pytest.fixture
def experiment(tmp_path: Path, state_root: Path) -> Iterator[Path]:
    """Yield an experiment whose lab is running."""
    del state_root  # only asked for: its labs are there
    path = write_experiment(tmp_path, [moe()], star(4, rate="200Mbit"))
    assert chakram("fabric", "up", path, runs=tmp_path / "runs").code == 0
    try:
        yield path
    finally:
        asyncio.run(down(LAB))


def standing() -> LabStatus:
    found = lab_status(LAB)
    assert found is not None
    assert found.alive
    return found


def what_is_there(status: LabStatus) -> tuple[object, ...]:
    """Return possible leftovers of a run in a lab: files, processes, sockets."""
    assert status.state is not None
    folder = Path(status.state.directory)
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))
    return status.state, files, status.processes


def test_runs_leave_a_lab_that_is_up_as_they_found_it(experiment: Path) -> None:
    before = what_is_there(standing())
    last: dict[tuple[str, str], int] = {}
    for number in range(2):
        runs = experiment.parent / f"runs-{number}"
        ended = completed(experiment, "--lab", LAB, "--runs", runs)
        assert f"using the running lab {LAB}" in ended.errors
        assert what_is_there(standing()) == before
        (directory,) = runs.iterdir()
        for link in open_run(directory).links():
            ends = link.link, link.direction
            assert link.bytes == link.bytes_after - link.bytes_before > 0
            # What was carried before is no part of it.
            assert link.bytes_before >= last.get(ends, 0)
            last[ends] = link.bytes_after
    refused_while_in_use(experiment)
    refused_for_another_fabric(experiment)
    assert what_is_there(standing()) == before


def refused_while_in_use(experiment: Path) -> None:
    with claimed(LAB, os.getpid()):
        assert standing().in_use
        ended = run(experiment)
        everything = chakram("fabric", "down", "--all", runs=ended.runs)
        assert f"in use by runs, not removed: {LAB}" in everything.output
    assert ended.code == 3
    assert f"lab {LAB}: another run uses it (process {os.getpid()})" in ended.sentence
    assert not standing().in_use


def refused_for_another_fabric(experiment: Path) -> None:
    ended = run(experiment, "--set", "fabric.links.host.rate=100Mbit")
    assert ended.code == 3
    assert "is up, but differs from the fabric of the experiment: h0-s0, h1-s0" in (
        ended.sentence
    )
    assert "have 200Mbit/s with a queue of 2MiB, but 100M" in ended.sentence
