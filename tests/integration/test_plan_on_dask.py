"""Traces that Dask workers read give the same plan, even with a killed worker."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from chakram.cli import main
from chakram.synth.synthesize import write_synthesis
from tests.experiments import moe, of_files
from tests.integration.test_sweep_on_dask import dask_scheduler, dask_worker

pytest.importorskip("distributed", reason="the extra dask is not installed")

KILL = """\
import os, signal
from chakram.chakra.sets import parallel_reading

def read_part(*_):
    os.kill(os.getpid(), signal.SIGKILL)

parallel_reading.read_part = read_part
"""
"""Module of a worker that is killed while it reads its first files."""


@pytest.mark.slow
@pytest.mark.timeout(300)  # four interpreters start, and three of them load Dask
def test_files_of_a_killed_worker_are_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_synthesis(tmp_path / "traces", moe(ranks=8, ep=2, dp=4))
    (tmp_path / "e.yaml").write_text(of_files("traces").replace("hosts: 4", "hosts: 8"))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kill.py").write_text(KILL)
    monkeypatch.chdir(tmp_path)
    with ExitStack() as stack:
        address = stack.enter_context(dask_scheduler(elsewhere))
        stack.enter_context(dask_worker(elsewhere, address))
        killed = stack.enter_context(
            dask_worker(elsewhere, address, "--preload=kill.py")
        )
        words = ["plan", "e.yaml", "--save", "cluster", "--dask", address]
        done = subprocess.run([sys.executable, "-m", "chakram", *words], check=False)
        assert done.returncode == 0
        assert killed.poll() == -9
    assert main(["plan", "e.yaml", "--save", "here"]) == 0
    assert (tmp_path / "cluster").read_bytes() == (tmp_path / "here").read_bytes()
