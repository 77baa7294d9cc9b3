"""Commands run by an unprivileged user; needs root."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from functools import cache

from tests.support import REPO_ROOT, missing_root, require
from tests.waiting import PATIENCE_S

NOBODY = 65534

ONLY_ROOT = "only root may run this interpreter, or read this checkout"


def run_as_nobody(
    command: list[str], *, timeout_s: float = PATIENCE_S, **variables: str
) -> tuple[int, str]:
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
        timeout=timeout_s,
        check=False,
    )
    return done.returncode, done.stdout


def interpreter() -> str:
    """Return an interpreter like ours that everybody may run, with the packages.

    Where there is none the test is skipped; see `tests.support.require`.
    """
    require("root", missing_root())
    found = _interpreter()
    require("netns", None if found else ONLY_ROOT)
    return found


@cache
def _interpreter() -> str:
    """Return the result of `interpreter`; empty if there is none."""
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    for name in (sys.executable, f"/usr/bin/{version}", shutil.which(version)):
        # Started twice over: programs started by it must find it as well.
        again = "import subprocess, sys; subprocess.run([sys.executable, '-V'])"
        command = [name or "", "-c", f"import chakram.cli, chakram_agent; {again}"]
        try:
            if name and run_as_nobody(command, PYTHONPATH=python_path())[0] == 0:
                return name
        except OSError:
            continue
    return ""


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
