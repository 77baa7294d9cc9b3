"""Wrong input gives exactly the answers in ``errors``; see the README there."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from chakram.cli import main
from tests.golden.bad_traces import TRACES
from tests.leaks import own_lab
from tests.support import require

ERRORS = Path(__file__).parent / "errors"
CASES = sorted(ERRORS.glob("*.yaml"))

INPUT, ENVIRONMENT = 2, 3


def settings_of(text: str) -> dict[str, str]:
    """Return what the comments on top of a case say."""
    settings = {}
    for line in text.splitlines():
        if not line.startswith("# "):
            break
        key, _, value = line[2:].partition(":")
        settings[key.strip()] = value.strip()
    return settings


@pytest.fixture
def taken_ports() -> Iterator[dict[str, int]]:
    """Hold a TCP and a UDP port, as another program does."""
    with ExitStack() as stack:
        tcp = stack.enter_context(socket.socket())
        tcp.bind(("127.0.0.1", 0))
        tcp.listen()
        udp = stack.enter_context(socket.socket(type=socket.SOCK_DGRAM))
        # The address of the first loopback port.
        udp.bind(("127.18.0.1", 0))
        yield {
            "$TCP_PORT": tcp.getsockname()[1],
            "$UDP_PORT": udp.getsockname()[1],
        }


def run_unprivileged(arguments: list[str], state: Path) -> tuple[int, str]:
    """Run the command in a user namespace that maps nobody: root, but of nothing.

    What it keeps about its labs goes to *state*.
    """
    command = ["unshare", "--user", sys.executable, "-m", "chakram", *arguments]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "CHAKRAM_STATE_DIR": str(state)},
    )
    return done.returncode, done.stderr


def why_not_unprivileged() -> str | None:
    probe = subprocess.run(
        ["unshare", "--user", "true"], capture_output=True, text=True, check=False
    )
    return probe.stderr.strip() if probe.returncode else None


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_wrong_input_is_answered_by_one_sentence(
    case: Path,
    tmp_path: Path,
    taken_ports: dict[str, int],
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = case.read_text(encoding="utf-8")
    settings = settings_of(text)
    if "trace" in settings:
        TRACES[settings["trace"]](tmp_path / "trace")
    for name, port in taken_ports.items():
        text = text.replace(name, str(port))
    file = tmp_path / case.name
    file.write_text(text.replace("$DIR", str(tmp_path)), encoding="utf-8")
    arguments = [settings["run"], str(file)]
    if settings["run"] != "plan":
        arguments += ["--lab", own_lab("golden")]
    if settings["run"] == "simulate":
        arguments = arguments[:2]
    if "unprivileged" in settings:
        require("userns", why_not_unprivileged())
        code, told = run_unprivileged(arguments, tmp_path / "state")
    else:
        code = main(arguments)
        told = capsys.readouterr().err
    # What a run has told before it ended is no part of its answer.
    answer = told[told.index("chakram: error: ") :]
    answer = answer.replace(str(tmp_path), "$DIR")
    for name, port in taken_ports.items():
        answer = answer.replace(str(port), name)
    answer = f"exit code {code}\n{answer}"
    expected = case.with_suffix(".txt")
    if os.environ.get("CHAKRAM_UPDATE_GOLDEN"):
        expected.write_text(answer, encoding="utf-8")
    assert answer == expected.read_text(encoding="utf-8")
    assert code in (INPUT, ENVIRONMENT)
    assert "Traceback" not in told


def test_every_answer_has_its_question() -> None:
    assert {path.stem for path in ERRORS.glob("*.txt")} == {path.stem for path in CASES}
