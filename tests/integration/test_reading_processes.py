"""Traces that other processes read: results, errors, and ends of the processes."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from chakram.cli import main
from chakram.foundation.errors import RunFailed
from chakram.preparation.workers import readers
from chakram.synth.synthesize import write_synthesis
from tests.experiments import moe, of_files

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]  # interpreters start


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    write_synthesis(tmp_path / "traces", moe(ranks=4, ep=2, dp=2))
    path = tmp_path / "e.yaml"
    path.write_text(of_files(tmp_path / "traces"))
    return path


def test_plan_and_findings_do_not_depend_on_processes(
    experiment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plans, texts = set(), set()
    for jobs in ("1", "2", "3"):
        saved = experiment.with_name(jobs)
        assert main(["plan", str(experiment), "--save", str(saved), "-j", jobs]) == 0
        plans.add(saved.read_bytes())
        words = ["trace", "lint", str(experiment.parent / "traces"), "--jobs", jobs]
        assert main([*words, "--json"]) == 0
        texts.add(capsys.readouterr().out)
    assert (len(plans), len(texts)) == (1, 1)


def test_error_does_not_depend_on_processes(
    experiment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for rank in (1, 3):
        path = next(experiment.parent.glob(f"traces/*.{rank}.et"))
        path.write_bytes(path.read_bytes()[:-3])
    texts = set()
    for jobs in ("1", "2"):
        assert main(["plan", str(experiment), "--jobs", jobs]) == 2
        texts.add(capsys.readouterr().err)
    (text,) = texts
    assert ".1.et: offset" in text
    assert multiprocessing.active_children() == []


def test_interrupt_does_not_wait_for_processes() -> None:
    def interrupted() -> None:
        with readers(2, None) as workers:
            assert workers is not None
            assert workers.submit(os.getpid).result() != os.getpid()
            for _ in range(5):
                workers.submit(time.sleep, 600)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert multiprocessing.active_children() == []


def test_a_killed_process_is_one_sentence() -> None:
    def killed() -> None:
        with readers(2, None) as workers:
            assert workers is not None
            workers.submit(os._exit, 1).result()

    with pytest.raises(RunFailed, match="--jobs 2: a process was killed"):
        killed()
    assert multiprocessing.active_children() == []


@pytest.mark.skipif(sys.platform != "linux", reason="needs prctl")
def test_processes_end_with_their_parent(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import os, time\n"
        "from chakram.preparation.workers import readers\n"
        "if __name__ == '__main__':\n"
        "    with readers(2, None) as workers:\n"
        "        print(workers.submit(os.getpid).result(), flush=True)\n"
        "        workers.submit(time.sleep, 600).result()\n"
    )
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert int(parent.stdout.readline()) != parent.pid
        parent.kill()
        # The worker has the same pipe, so the end of the pipe is that of the worker.
        assert parent.stdout.read() == b""
