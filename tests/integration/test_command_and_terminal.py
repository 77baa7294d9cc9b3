"""The command with closed terminals, closed pipes and full devices."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import termios
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from chakram.run_directory.manifest import COMPLETE, FAILED
from chakram.run_directory.reader import open_run
from tests.waiting import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator

CHAKRAM = (sys.executable, "-m", "chakram")
ENDLESS = """\
version: 1
name: endless
jobs:
  - {name: a, trace: {synth: incast, ranks: 3, size: 64KiB}}
iterations: {warmup: 0, measured: 1000000, sync: gap, gap: 20ms}
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


def test_simulation_ends_cleanly_when_its_terminal_closes(tmp_path: Path) -> None:
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


@contextmanager
def simulating(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], list[bytes]]]:
    """Yield a simulation started by ``nohup``, and its output so far.

    It has told of its first iterations, so signals are seen to.
    """
    experiment = tmp_path / "endless.yaml"
    experiment.write_text(ENDLESS)
    with subprocess.Popen(
        [*CHAKRAM, "simulate", str(experiment), "--runs", str(tmp_path / "runs")],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        preexec_fn=ignoring_hangups,
    ) as process:
        assert process.stderr is not None
        said = []
        for line in process.stderr:
            said.append(line)
            if b"iteration" in line:
                break
        assert said, f"it ended at once, with {process.wait(PATIENCE_S)}"
        yield process, said
        process.kill()


def test_nohup_run_survives_its_terminal(tmp_path: Path) -> None:
    with simulating(tmp_path) as (process, said):
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        said += process.stderr
        # The whole output shows any other reason for its end.
        assert (process.wait(PATIENCE_S), b"interrupted by SIGTERM" in said[-1]) == (
            130,
            True,
        ), b"".join(said).decode()


def test_abort_prints_a_message(tmp_path: Path) -> None:
    with simulating(tmp_path) as (process, said):
        process.send_signal(signal.SIGABRT)
        assert process.stderr is not None
        said += process.stderr
        assert process.wait(PATIENCE_S) == -signal.SIGABRT
    assert b"Fatal Python error: Aborted\n" in said


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
def test_full_device_is_reported_in_one_sentence(arguments: tuple[str, ...]) -> None:
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


PIPED = [
    ("dcqcn",),
    ("algorithms",),
    ("simulate", "--help"),
    ("--version",),
    ("show", "no-such-run"),
]


def piped(*arguments: str) -> subprocess.Popen[bytes]:
    """Start the command with output and errors in a pipe that has no reader left."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        return subprocess.Popen([*CHAKRAM, *arguments], stdout=writer, stderr=writer)
    finally:
        os.close(writer)


@pytest.mark.parametrize("arguments", PIPED, ids=" ".join)
def test_closed_output_pipe_does_not_change_the_exit_code(
    arguments: tuple[str, ...],
) -> None:
    read = subprocess.run(
        [*CHAKRAM, *arguments], capture_output=True, timeout=PATIENCE_S, check=False
    )
    assert read.stdout or read.stderr

    assert piped(*arguments).wait(PATIENCE_S) == read.returncode


def test_simulation_with_a_closed_output_pipe_keeps_its_results(tmp_path: Path) -> None:
    experiment = tmp_path / "short.yaml"
    experiment.write_text(ENDLESS.replace("1000000", "3"))
    runs = tmp_path / "runs"

    assert piped("simulate", str(experiment), "--runs", str(runs)).wait(PATIENCE_S) == 0

    (directory,) = runs.iterdir()
    assert open_run(directory).manifest.status == COMPLETE


@pytest.mark.parametrize("descriptor", [1, 2])
def test_a_closed_descriptor_is_no_error(descriptor: int) -> None:
    ended = subprocess.run(
        ["sh", "-c", f'exec "$@" {descriptor}>&-', "sh", *CHAKRAM, "dcqcn"],
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, b"")


def test_a_full_device_for_errors_does_not_end_a_simulation(tmp_path: Path) -> None:
    experiment = tmp_path / "short.yaml"
    experiment.write_text(ENDLESS.replace("1000000", "3"))
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run(
            [*CHAKRAM, "simulate", str(experiment), "--runs", str(tmp_path / "runs")],
            stdout=subprocess.DEVNULL,
            stderr=full,
            timeout=PATIENCE_S,
            check=False,
        )
    assert ended.returncode == 0


@pytest.mark.parametrize(
    ("before", "last"),
    [
        ("import atexit; atexit.register(print, 'handled')", "handled"),
        (
            "import threading; threading.Timer(1.5, print, ['joined']).start()",
            "joined",
        ),
    ],
)
def test_command_ends_after_exit_handlers_and_threads(before: str, last: str) -> None:
    script = f"{before}\nfrom chakram.__main__ import command\ncommand()"
    done = subprocess.run(
        [sys.executable, "-c", script, "--version"],
        capture_output=True,
        text=True,
        check=True,
    )
    # A slow machine prints the version after the thread.
    lines = done.stdout.splitlines()
    assert len(lines) == 2
    assert last in lines
