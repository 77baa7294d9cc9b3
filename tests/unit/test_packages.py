"""Requirements of packages in `pyproject.toml`; `make installed` tests them all."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from tests.support import REPO_ROOT

PROJECT = tomllib.loads((REPO_ROOT / "pyproject.toml").read_text())["project"]
CONTROL = REPO_ROOT / "emulator/chakram/control"


def lower_bound(package: str) -> tuple[int, ...]:
    (bound,) = (
        found[1]
        for requirement in PROJECT["dependencies"]
        if (found := re.match(rf"{package}>=([\d.]+)", requirement))
    )
    return tuple(map(int, bound.split(".")))


GENERATED = sorted((REPO_ROOT / "emulator/chakram").rglob("*_pb2.py"))


@pytest.mark.parametrize("file", GENERATED, ids=lambda file: file.name)
def test_generated_code_runs_with_the_lowest_protobuf(file: Path) -> None:
    found = re.search(r"^# Protobuf Python Version: ([\d.]+)", file.read_text(), re.M)
    assert found is not None
    assert lower_bound("protobuf") >= tuple(map(int, found[1].split(".")))


def test_generated_code_refuses_no_version_at_import() -> None:
    # Output of newer compilers compares versions, and refuses protobuf 4 and 5.
    for file in CONTROL.glob("*_pb2*.py"):
        assert not re.search(r"runtime_version|GENERATED_VERSION", file.read_text())
