"""Runs and simulations killed at random moments, and all commands on them."""

from __future__ import annotations

import os
import random
import time
from typing import TYPE_CHECKING, Any

import pytest

from chakram.run_directory.manifest import COMPLETE, KILLED
from chakram.run_directory.reader import open_run
from tests.e2e.conftest import _private_network, state_root  # noqa: F401 - fixtures
from tests.e2e.processes import RunProcess
from tests.e2e.runs import moe, write_experiment
from tests.incomplete_runs import check_all
from tests.waiting import PATIENCE_S

if TYPE_CHECKING:
    from pathlib import Path

SEED = int(os.environ.get("CHAKRAM_SEED", "1"))
MOMENTS = 30
LATEST_S = 9.0
RENAMES = {"run": 45, "simulate": 25}
"""About how many files such a run puts in their places; later ones are complete."""


def job(attention: str) -> dict[str, Any]:
    found = moe(4, attention=attention)
    return found | {"compute": {"from": "trace"}, "size_scale": "1/64"}


def checked(run: RunProcess, folder: Path) -> None:
    """Ask all verbs about a run that was killed before its end, if it was."""
    run.process.wait(PATIENCE_S)
    # Before its directory is made there is nothing to ask about.
    for path in run.runs.glob("*/run.json"):
        status = open_run(path.parent).manifest.status
        assert status in (KILLED, COMPLETE)
        if status == KILLED:
            check_all(path.parent, folder / "out", status=status)


@pytest.mark.parametrize("moment", range(MOMENTS // 2))
def test_run_killed_after_a_random_time_is_readable(
    tmp_path: Path, moment: int
) -> None:
    draw = random.Random(f"{SEED} time {moment}")
    experiment = write_experiment(
        tmp_path,
        [job(draw.choice(["1ms", "50ms", "400ms"]))],
        {"kind": "loopback"},
        iterations={"warmup": draw.randrange(3), "measured": 100_000},
        agents={"shards": draw.choice([1, 2])},
    )
    with RunProcess(experiment) as run:
        time.sleep(draw.uniform(0, LATEST_S))
        run.process.kill()
        checked(run, tmp_path)


@pytest.mark.parametrize("moment", range(MOMENTS // 2))
def test_run_killed_before_a_random_rename_is_readable(
    tmp_path: Path, moment: int
) -> None:
    draw = random.Random(f"{SEED} file {moment}")
    verb = draw.choice(list(RENAMES))
    fabric = {"kind": "namespaces", "topology": {"single_switch": {"hosts": 4}}}
    experiment = write_experiment(
        tmp_path,
        [job("50ms")],
        {"kind": "loopback"} if verb == "run" else fabric,
        iterations={"warmup": draw.randrange(3), "measured": 8},
    )
    number = str(draw.randint(1, RENAMES[verb]))
    with RunProcess(experiment, verb=verb, killed_at=number) as run:
        checked(run, tmp_path)
