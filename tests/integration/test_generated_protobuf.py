"""Committed protobuf code equals the output of the generator."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import REPO_ROOT, require

SOURCE_ROOT = REPO_ROOT / "emulator"


def missing_generator() -> str | None:
    try:
        import grpc_tools  # noqa: F401
        import mypy_protobuf  # noqa: F401
    except ImportError as error:
        return f"{error.name} is not installed"
    return None


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
