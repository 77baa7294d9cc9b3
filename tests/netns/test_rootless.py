"""All that holds for labs holds for a user without any rights as well."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support import REPO_ROOT, missing_root, require

if TYPE_CHECKING:
    from collections.abc import Iterator

NOBODY = 65534
HERE = Path(__file__).parent
WITHOUT_ROOT = (
    "test_lab.py",
    "test_parts.py",
    "test_capture.py::test_both_directions_of_every_host_are_in_its_file",
    "test_capture.py::test_a_capture_ends_with_its_starter",
)


def run_as_nobody(command: list[str], **variables: str) -> tuple[int, str]:
    """Return exit status and output of a command run by a user without rights."""
    done = subprocess.run(
        command,
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        cwd=REPO_ROOT,
        env={"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1", **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=110,
        check=False,
    )
    return done.returncode, done.stdout


def interpreter() -> str:
    """Return an interpreter like ours that everybody may run."""
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    for name in (sys.executable, f"/usr/bin/{version}", shutil.which(version)):
        # Started twice over: programs started by it must find it as well.
        again = "import subprocess, sys; subprocess.run([sys.executable, '-V'])"
        try:
            if name and run_as_nobody([name, "-c", again])[0] == 0:
                return name
        except OSError:
            continue
    return ""


@pytest.fixture
def python() -> str:
    require("root", missing_root())
    name = interpreter()
    require("netns", None if name else "only root may run this interpreter")
    return name


@pytest.fixture
def nobodys_root() -> Iterator[str]:
    """Return a directory for the labs of nobody."""
    root = tempfile.mkdtemp(prefix="ck-")
    os.chown(root, NOBODY, NOBODY)
    yield root
    shutil.rmtree(root)


def python_path() -> str:
    """Return where the packages are, for another interpreter."""
    folders = [REPO_ROOT / "emulator", REPO_ROOT / "agents", REPO_ROOT]
    return os.pathsep.join(
        [
            *map(str, folders),
            sysconfig.get_path("platlib"),
            sysconfig.get_path("purelib"),
        ]
    )


@pytest.mark.slow
def test_labs_hold_without_root(python: str) -> None:
    status, output = run_as_nobody(
        [
            *(python, "-m", "pytest"),
            *(str(HERE / test) for test in WITHOUT_ROOT),
            *("-q", "-x", "-p", "no:cacheprovider"),
        ],
        PYTHONPATH=python_path(),
        CHAKRAM_REQUIRE="netns",
        CHAKRAM_COMPILED="off",
    )
    assert status == 0, output


NO_USER_NAMESPACE = """
import asyncio, sys
from chakram.errors import ChakramError
from chakram.fabric.lab import start_lab
from chakram.fabric.netns import CLONE_NEWUSER, unshare
from tests.netns.labs import star
unshare(CLONE_NEWUSER)  # nobody is mapped in it, so it may not make further ones
try:
    asyncio.run(start_lab(star(2), lab_name="refused"))
except ChakramError as error:
    print(type(error).__name__, error.exit_code, error)
"""

NO_NET_NAMESPACES = """
import asyncio, pathlib, sys
from chakram.errors import ChakramError
from chakram.fabric.lab import start_lab
from chakram.fabric.userns import enter_new_user_namespace
from tests.netns.labs import star
enter_new_user_namespace()
pathlib.Path("/proc/sys/user/max_net_namespaces").write_text("3")
try:
    asyncio.run(start_lab(star(8), lab_name="refused"))
except ChakramError as error:
    print(type(error).__name__, error.exit_code, error)
"""


@pytest.mark.parametrize(
    ("script", "found"),
    [
        (NO_USER_NAMESPACE, "PrivilegeError 3 fabric: cannot make a user namespace"),
        (
            NO_NET_NAMESPACES,
            "FabricError 3 fabric: namespace 3 of 9: unshare: No space",
        ),
    ],
)
def test_what_is_missing_is_said_in_one_sentence(
    python: str, nobodys_root: str, script: str, found: str
) -> None:
    status, output = run_as_nobody(
        [python, "-c", script],
        PYTHONPATH=python_path(),
        CHAKRAM_COMPILED="off",
        CHAKRAM_STATE_DIR=nobodys_root,
    )
    assert status == 0, output
    assert output.startswith(found), output
    assert len(output.splitlines()) == 1
    assert "(" in output  # what to do
