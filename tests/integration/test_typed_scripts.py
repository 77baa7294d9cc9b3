"""Scripts that use the public names pass strict type checks; mistakes do not.

``make installed`` checks the same script with the installed wheel.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support import REPO_ROOT, require

SCRIPT = REPO_ROOT / "docs/examples/compare_windows.py"
MISTAKES = """\
import chakram

number: int = chakram.simulate("quickstart.yaml").path
chakram.run("quickstart.yaml", wrong=1)
chakram.missing
"""


def mypy(script: Path) -> subprocess.CompletedProcess[str]:
    """Check a script like the documentation does, outside of the checkout."""
    require("mypy", None if find_spec("mypy") else "mypy is not installed")
    options = ("--strict", "--follow-imports=silent", "--config-file=")
    # The cache makes all runs but the first cheap.
    cache = REPO_ROOT / ".mypy_cache" / "scripts"
    return subprocess.run(
        [sys.executable, "-m", "mypy", *options, f"--cache-dir={cache}", str(script)],
        cwd=script.parent,
        env={"MYPYPATH": f"{REPO_ROOT}/emulator:{REPO_ROOT}/agents"},
        capture_output=True,
        text=True,
        check=False,
    )


# ``make installed`` checks it with the wheel each time.
@pytest.mark.soak
def test_the_example_passes_strict_checks() -> None:
    done = mypy(SCRIPT)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.soak
def test_mistakes_are_found(tmp_path: Path) -> None:
    script = tmp_path / "mistakes.py"
    script.write_text(MISTAKES)
    found = mypy(script).stdout
    for line, code in ((3, "assignment"), (4, "call-arg"), (5, "attr-defined")):
        assert any(
            f"mistakes.py:{line}: " in each and f"[{code}]" in each
            for each in found.splitlines()
        ), found


@pytest.mark.parametrize("package", ["emulator/chakram", "agents/chakram_agent"])
def test_packages_declare_their_types(package: str) -> None:
    assert (REPO_ROOT / package / "py.typed").is_file()
