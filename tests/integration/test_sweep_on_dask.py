"""A sweep on a Dask cluster equals a local one, even with a killed worker."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from chakram.cli import main
from tests.unit.cli.test_sweep import EXPERIMENT, files

pytest.importorskip("distributed", reason="the extra dask is not installed")

SUITE = """\
version: 1
name: many
base: base.yaml
matrix:
  size: [16KiB, 32KiB]
  algorithm: [ring, tree]
repetitions: 2
"""


@contextmanager
def started(folder: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    """Run a Dask program in its own process group; end the whole group."""
    process = subprocess.Popen(
        [sys.executable, "-m", *words],
        cwd=folder,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):  # all have ended, and were waited for
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert process.stderr is not None
        process.stderr.close()


@contextmanager
def dask_scheduler(folder: Path) -> Iterator[str]:
    """Run a scheduler, and yield its address."""
    words = ("--host=127.0.0.1", "--port=0", "--no-dashboard")
    with started(folder, "distributed.cli.dask_scheduler", *words) as scheduler:
        assert scheduler.stderr is not None
        found = (
            re.search(r"Scheduler at:\s+(tcp://\S+)", line) for line in scheduler.stderr
        )
        yield next(each for each in found if each)[1]


@contextmanager
def dask_worker(
    folder: Path, address: str, *options: str
) -> Iterator[subprocess.Popen[str]]:
    """Run a worker with one thread, and wait until the scheduler knows it."""
    words = (address, "--nthreads=1", "--no-dashboard", "--no-nanny", *options)
    with started(folder, "distributed.cli.dask_worker", *words) as worker:
        assert worker.stderr is not None
        assert any("Registered to" in line for line in worker.stderr)
        yield worker


def sweep(folder: Path, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "chakram", "sweep", "suite.yaml", *options],
        cwd=folder,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
@pytest.mark.timeout(300)  # five interpreters load Arrow, and two of them Dask
def test_cells_of_a_killed_worker_are_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "base.yaml").write_text(EXPERIMENT)
    (tmp_path / "suite.yaml").write_text(SUITE)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with ExitStack() as stack:
        address = stack.enter_context(dask_scheduler(elsewhere))
        workers = [
            stack.enter_context(dask_worker(elsewhere, address)) for _ in range(2)
        ]
        running = sweep(tmp_path, "--dask", address, "--out", "cluster")
        assert running.stderr is not None
        done = 0
        for line in running.stderr:
            done += ": complete" in line
            if done == 2 and workers[0].poll() is None:
                workers[0].kill()
        running.stderr.close()
        assert running.wait() == 0
    assert done == 8
    monkeypatch.chdir(tmp_path)
    assert main(["sweep", "suite.yaml", "--out", "here"]) == 0
    assert files(tmp_path / "cluster") == files(tmp_path / "here")
    assert len(list((tmp_path / "cluster/runs").glob("*/*/run.json"))) >= 8
    assert not (elsewhere / "cluster").exists()


class FailingCluster:
    """A cluster on which every cell ends with an error of Dask."""

    error: Exception

    def __init__(self, _address: str, timeout: str) -> None:
        pass

    def __enter__(self) -> FailingCluster:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def get_executor(self, **_: object) -> FailingCluster:
        return self

    def submit(self, *_: object) -> Future[Any]:
        found: Future[Any] = Future()
        found.set_exception(self.error)
        return found


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["killed worker", "closed connection", "end"])
def test_a_cluster_that_fails_is_one_sentence(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    kind: str,
) -> None:
    import distributed
    from distributed.comm import CommClosedError

    worker: Any = SimpleNamespace(address="tcp://w:1")
    FailingCluster.error = {
        "killed worker": distributed.KilledWorker("cell", worker, 3),
        "closed connection": CommClosedError("the connection is closed"),
        "end": CancelledError(),
    }[kind]
    monkeypatch.setattr(distributed, "Client", FailingCluster)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "base.yaml").write_text(EXPERIMENT)
    (tmp_path / "suite.yaml").write_text(SUITE)
    assert main(["sweep", "suite.yaml", "--dask", "tcp://s:1"]) == 4
    assert "--dask tcp://s:1: the cluster failed: " in capsys.readouterr().err
