"""Data-plane processes have priority if a core remains for the run."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.e2e.processes import SHARD, RunProcess
from tests.e2e.runs import moe, write_experiment
from tests.process_priority import urgent
from tests.support import require

if TYPE_CHECKING:
    from pathlib import Path

CORES = len(os.sched_getaffinity(0))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shards", "niceness"), [(CORES - 1, -20), (CORES, 0)], ids=["a-core", "no-core"]
)
def test_data_plane_processes_have_priority_if_a_core_remains(
    shards: int, niceness: int, tmp_path: Path
) -> None:
    require("cores", None if CORES > 1 else "there is one core only")
    experiment = write_experiment(
        tmp_path,
        [moe(4)],
        {"kind": "loopback", "rate": "20Mbit"},
        iterations={"warmup": 0, "measured": 1_000_000},
        agents={"shards": shards},
    )
    with urgent(), RunProcess(experiment) as going:
        going.wait_for_records()
        pids = [each.pid for each in going.family() if SHARD in each.command]
        found = {os.getpriority(os.PRIO_PROCESS, pid) for pid in pids}
    assert found == {niceness}
