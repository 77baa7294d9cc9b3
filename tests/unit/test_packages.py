"""Requirements of packages in `pyproject.toml`; `make installed` tests them all."""

from __future__ import annotations

import re
import tomllib

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


@pytest.mark.parametrize(
    ("package", "file", "pattern"),
    [
        ("protobuf", "chakram_pb2.py", r"^# Protobuf Python Version: ([\d.]+)"),
        (
            "grpcio",
            "chakram_pb2_grpc.py",
            r"^GRPC_GENERATED_VERSION = '([\d.]+)'",
        ),
    ],
)
def test_generated_code_runs_with_the_lowest_version(
    package: str, file: str, pattern: str
) -> None:
    # It refuses a runtime that is older than its generator.
    found = re.search(pattern, (CONTROL / file).read_text(), re.M)
    assert found is not None
    assert lower_bound(package) >= tuple(map(int, found[1].split(".")))
