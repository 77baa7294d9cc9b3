"""What `import chakram` offers is there, documented, and loaded when asked for."""

from __future__ import annotations

import inspect
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import chakram
from tests.support import REPO_ROOT

if TYPE_CHECKING:
    from pathlib import Path

INCAST = REPO_ROOT / "configs/incast.yaml"


@pytest.mark.parametrize("name", sorted(set(chakram.__all__) - {"__version__"}))
def test_what_is_public_is_there_and_documented(name: str) -> None:
    assert inspect.getdoc(getattr(chakram, name))
    assert name in dir(chakram)
    page = (REPO_ROOT / "docs/reference/python.md").read_text()
    assert f"`{name}" in page


def test_what_is_not_there_is_said_as_python_says_it() -> None:
    with pytest.raises(AttributeError, match="module 'chakram' has no attribute 'x'"):
        _ = chakram.x


def test_an_import_loads_none_of_it() -> None:
    script = (
        "import sys, chakram; "
        "print(*sorted(m for m in sys.modules if m.startswith('chakram')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["chakram", "chakram._compiled"]


def test_a_simulation_from_python(tmp_path: Path) -> None:
    results = chakram.simulate_experiment(
        INCAST,
        overrides={"iterations.measured": "1", "jobs[0].trace.fan_in": "2"},
        runs=tmp_path,
    )
    assert results.path.parent == tmp_path
    assert results.table("flows").num_rows > 0
    assert chakram.open_run(results.path).manifest == results.manifest


def test_a_mistake_is_an_error_of_ours(tmp_path: Path) -> None:
    with pytest.raises(chakram.ChakramError, match=r"--set transport\.windw=1KiB"):
        chakram.simulate_experiment(
            INCAST, overrides={"transport.windw": "1KiB"}, runs=tmp_path
        )
    assert not list(tmp_path.iterdir())
