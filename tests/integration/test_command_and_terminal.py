"""The command and its surroundings: terminals that close, devices that are full."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from chakram.observe.manifest import FAILED
from tests.waiting import PATIENCE_S

CHAKRAM = (sys.executable, "-m", "chakram")
ENDLESS = """\
version: 1
name: endless
jobs:
  - {name: a, trace: {synth: incast, ranks: 3, size: 64KiB}}
iterations: {warmup: 0, measured: 1000000}
fabric:
  kind: namespaces
  topology: {single_switch: {hosts: 3}}
  links: {host: {rate: 1Gbit}}
"""


def ignoring_hangups() -> None:
    """Do as ``nohup`` does."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def on_the_terminal() -> None:
    """Make standard input the terminal of this session."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def test_a_simulation_whose_terminal_closes_ends_in_order(tmp_path: Path) -> None:
    experiment = tmp_path / "endless.yaml"
    experiment.write_text(ENDLESS)
    master, slave = os.openpty()
    try:
        process = subprocess.Popen(
            [*CHAKRAM, "simulate", str(experiment), "--runs", str(tmp_path / "runs")],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=on_the_terminal,
        )
        os.close(slave)
        shown = b""
        # Its first iterations: by then signals are seen to.
        while b"of 1000000" not in shown and b"/1000000" not in shown:
            shown += os.read(master, 4096)
    finally:
        os.close(master)
    assert process.wait(PATIENCE_S) == 130
    (directory,) = (tmp_path / "runs").iterdir()
    manifest = json.loads((directory / "run.json").read_text())
    assert manifest["status"] == FAILED
    assert manifest["reason"] == "simulation: interrupted by SIGHUP"


def test_what_nohup_started_outlives_its_terminal(tmp_path: Path) -> None:
    experiment = tmp_path / "endless.yaml"
    experiment.write_text(ENDLESS)
    with subprocess.Popen(
        [*CHAKRAM, "simulate", str(experiment), "--runs", str(tmp_path / "runs")],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        preexec_fn=ignoring_hangups,
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if b"iteration" in line:
                break
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
        assert b"interrupted by SIGTERM" in process.stderr.read()
        assert process.wait(PATIENCE_S) == 130


def test_ctrl_c_while_the_command_is_loaded_prints_no_traceback(tmp_path: Path) -> None:
    # Found before the real one: what is imported first gets the signal.
    (tmp_path / "typer.py").write_text(
        "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n"
    )
    found = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    ended = subprocess.run(
        [*CHAKRAM, "--version"],
        env={**os.environ, "PYTHONPATH": found},
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (-signal.SIGINT, b"")


@pytest.mark.parametrize("arguments", [("dcqcn",), ("--version",)])
def test_a_full_device_is_told_in_a_sentence(arguments: tuple[str, ...]) -> None:
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run(
            [*CHAKRAM, *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=PATIENCE_S,
            check=False,
        )
    assert ended.returncode == 3
    assert ended.stderr == (
        b"chakram: error: standard output: cannot be written: No space left on device\n"
    )
