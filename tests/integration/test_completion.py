"""Shells complete commands with the script that ``chakram completion`` prints."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support import REPO_ROOT, missing_program, require
from tests.waiting import PATIENCE_S

ENVIRONMENT = {
    "PYTHONPATH": f"{REPO_ROOT}/emulator:{REPO_ROOT}/agents",
    "HOME": "/nonexistent",
    "TERM": "dumb",
    "PS1": "$ ",
}


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Return an environment in which ``chakram`` is this checkout's command."""
    command = tmp_path / "bin" / "chakram"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m chakram "$@"\n')
    command.chmod(0o755)
    path = f"{command.parent}:{os.environ['PATH']}"
    return {**ENVIRONMENT, "PATH": path}


def script_of(shell: str, environment: dict[str, str]) -> str:
    done = subprocess.run(
        ["chakram", "completion", shell],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shell", "named"),
    [
        ("bash", "complete -o default -F"),
        ("zsh", "#compdef chakram"),
        ("fish", "complete --command chakram"),
    ],
)
def test_each_shell_has_a_script(
    shell: str, named: str, environment: dict[str, str]
) -> None:
    script = script_of(shell, environment)
    assert named in script
    assert f"_CHAKRAM_COMPLETE=complete_{shell}" in script


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "completions"),
    [
        ("chakram tr", ["trace"]),
        ("chakram bug", ["bug-report"]),
        ("chakram trace sy", ["synth"]),
        ("chakram simulate --lev", ["--level"]),
        ("chakram completion ", ["bash", "zsh", "fish"]),
    ],
)
def test_bash_gets_the_words_that_fit(
    words: str, completions: list[str], environment: dict[str, str]
) -> None:
    done = subprocess.run(
        ["chakram"],
        env=environment
        | {
            "_CHAKRAM_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": str(words.count(" ")),
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == completions
    assert done.stderr == ""


@pytest.mark.slow
def test_tab_completes_a_verb_in_bash(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    require("bash", missing_program("bash"))
    script = tmp_path / "chakram.bash"
    script.write_text(script_of("bash", environment))
    parent, child = pty.openpty()
    with subprocess.Popen(
        ["bash", "--norc", "--noprofile", "-i"],
        stdin=child,
        stdout=child,
        stderr=child,
        env=environment,
        start_new_session=True,
    ) as shell:
        os.close(child)
        try:
            os.write(parent, f"source {script}\nchakram tr\t".encode())
            shown, until = b"", time.monotonic() + PATIENCE_S
            while b"chakram trace " not in shown and time.monotonic() < until:
                if select.select([parent], [], [], 1)[0]:
                    shown += os.read(parent, 4096)
            assert b"chakram trace " in shown, shown
        finally:
            shell.kill()
            os.close(parent)
