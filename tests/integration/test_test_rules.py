"""The rules of `tests/conftest.py`: markers, guards, leaks, data, features."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.support import REPO_ROOT

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow  # each runs pytest

RULES = (
    *("__init__", "simulation_bounds", "conftest", "documented"),
    *("command_server", "leaks", "support", "waiting"),
)
GRACE = "GRACE_S = 10.0"
"""What leaks use up whole."""

SAMPLES = {
    "tests/unit/test_pure.py": """\
import socket, time
import pytest

def test_marked(request):
    assert [mark.name for mark in request.node.iter_markers()] == ["unit"]

def test_sleeps():
    time.sleep(0)

def test_connects():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
""",
    "tests/integration/test_system.py": """\
import os, subprocess, threading

def test_tidy():
    thread = threading.Thread(target=threading.Event().wait, args=(0.1,))
    thread.start()  # ends on its own, soon

def test_leaks_descriptor():
    os.open("/etc/hostname", os.O_RDONLY)

def test_leaks_child():
    global child
    child = subprocess.Popen(["sleep", "20"])

def test_ends_the_child():
    child.kill()
    child.wait()
""",
    "tests/golden/test_golden.py": """\
import pytest
from tests.support import require

@pytest.fixture
def a_trace(chakram_data):
    return chakram_data / "a"

def test_reads_data(a_trace):
    assert a_trace.exists()

def test_has(): require("wheel", None)

def test_lacks(): require("wheel", "there is no wheel")

def test_lacks_what_is_required(): require("axle", "there is no axle")
""",
    "tests/bench/test_bench.py": "def test_speed(): pass\n",
    "tests/soak/test_soak.py": "def test_long(): pass\n",
    "tests/interop/test_interop.py": """\
import pytest

@pytest.mark.soak
def test_again(): pass
""",
}


def outcomes(root: Path, *arguments: str, **environment: str) -> dict[str, str]:
    """Run the samples under the rules; return the outcomes by name of the test."""
    for name, text in SAMPLES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    for name in RULES:
        shutil.copy(REPO_ROOT / f"tests/{name}.py", root / f"tests/{name}.py")
    leaks = root / "tests/leaks.py"
    rules = leaks.read_text()
    assert rules.count(GRACE) == 1
    leaks.write_text(rules.replace(GRACE, "GRACE_S = 0.5"))
    shutil.copy(REPO_ROOT / "pyproject.toml", root / "pyproject.toml")
    inherited = {k: v for k, v in os.environ.items() if k != "PYTEST_ADDOPTS"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-rA", "-p", "no:cacheprovider", *arguments],
        cwd=root,
        env={**inherited, "CHAKRAM_DATA": "nowhere", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    found = {
        name: outcome
        for outcome, name in re.findall(r"^([A-Z]+) \S+::(\w+)", done.stdout, re.M)
    }
    assert found, done.stdout + done.stderr
    return found | {"output": done.stdout}


def test_rules_of_tests_are_enforced(tmp_path: Path) -> None:
    found = outcomes(tmp_path, CHAKRAM_REQUIRE="axle,other")
    output = found.pop("output")
    assert found == {
        "test_marked": "PASSED",
        "test_sleeps": "FAILED",
        "test_connects": "FAILED",
        "test_tidy": "PASSED",
        "test_leaks_descriptor": "ERROR",
        "test_leaks_child": "ERROR",
        "test_ends_the_child": "PASSED",
        "test_has": "PASSED",
        "test_lacks_what_is_required": "FAILED",
    }
    assert "wheel: there is no wheel" in output
    assert "4 deselected" in output
    assert "1 tests deselected: they read real traces and captures" in output


def test_missing_data_is_reported_under_xdist(tmp_path: Path) -> None:
    shared = ("-n", "2", "--dist", "loadfile", "tests/golden", "tests/unit")
    output = outcomes(tmp_path, *shared)["output"]
    assert "1 tests deselected: they read real traces and captures" in output


def test_data_folder_and_optional_tests_can_be_selected(
    tmp_path: Path,
) -> None:
    (tmp_path / "data" / "a").mkdir(parents=True)
    wanted = ("-m", "soak or golden", "-k", "data or long or again")
    found = outcomes(tmp_path, *wanted, CHAKRAM_DATA="data")
    assert found.pop("output")
    assert found == dict.fromkeys(
        ("test_reads_data", "test_long", "test_again"), "PASSED"
    )
