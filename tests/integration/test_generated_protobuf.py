"""Committed protobuf code equals the output of the generator."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from tools.generate_proto import COMPILER, run_compiler

from tests.support import REPO_ROOT, require

SOURCE_ROOT = REPO_ROOT / "emulator"


def missing_generator() -> str | None:
    """Return why the compiler cannot run here: it comes from the package index."""
    if find_spec("mypy_protobuf") is None:
        return "mypy_protobuf is not installed"
    try:
        done = run_compiler("--version", capture_output=True)
    except OSError:
        return "uv is not installed"
    return None if done.returncode == 0 else f"uv cannot install {COMPILER}"


@pytest.mark.slow
def test_the_generated_code_is_up_to_date(tmp_path: Path) -> None:
    require("protoc", missing_generator())
    subprocess.run(
        [sys.executable, REPO_ROOT / "tools/generate_proto.py", "--out", tmp_path],
        check=True,
        timeout=60,
    )
    generated = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    assert generated
    for path in generated:
        committed = SOURCE_ROOT / path.relative_to(tmp_path)
        assert committed.read_text() == path.read_text(), f"{committed}: run make proto"
