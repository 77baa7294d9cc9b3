"""An interrupted sweep ends within seconds and keeps the results of finished cells."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from tests.integration.test_shared_sweep_folder import FOLDER, sweeping
from tests.unit.cli.test_sweep import written
from tests.waiting import PATIENCE_S, wait_until

SUITE = """\
version: 1
name: sizes
base: base.yaml
matrix: {iterations.measured: [2, 999999, 1000000]}
repetitions: 1
"""
INTERRUPTED = 130


@pytest.mark.parametrize(
    "to_group", [False, pytest.param(True, marks=pytest.mark.soak)]
)
def test_interrupted_sweep_ends_its_processes_and_keeps_results(
    tmp_path: Path, to_group: bool
) -> None:
    folder = written(tmp_path)
    (folder / "suite.yaml").write_text(SUITE)
    with sweeping(folder, "--jobs", "2", start_new_session=True) as sweep:
        assert sweep.stderr is not None
        assert "1/3" in next(sweep.stderr)
        wait_until(
            lambda: len(list((folder / FOLDER).glob("runs/*/*/run.json"))) == 3,
            "the simulations of the other cells",
        )
        (os.killpg if to_group else os.kill)(sweep.pid, signal.SIGINT)
        _, told = sweep.communicate(timeout=PATIENCE_S)
    # The processes had the same standard error, so all of them have ended.
    assert told.splitlines()[-1] == (
        "chakram: error: sweep: was interrupted (run the same command again to resume)"
    )
    assert "Traceback" not in told
    assert sweep.returncode == INTERRUPTED
    results = [path.read_text() for path in (folder / FOLDER / "cells").iterdir()]
    assert [json.loads(each)["status"] for each in results].count("complete") == 1
