"""Requirements of packages in `pyproject.toml`; `make installed` tests them all."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from bokeh.resources import Resources

import chakram
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


def test_the_version_is_the_same_everywhere() -> None:
    version = chakram.__version__
    citation = (REPO_ROOT / "CITATION.cff").read_text()
    changelog = (REPO_ROOT / "CHANGELOG.md").read_text()
    released = re.search(r"^## \[(\d[^]]*)\] - (\S+)$", changelog, re.M)
    assert released is not None
    assert released[1] == version
    assert f"\nversion: {version}\ndate-released: {released[2]}\n" in citation
    supported = ".".join(version.split(".")[:2])
    assert f"| {supported} | yes |" in (REPO_ROOT / "SECURITY.md").read_text()


def test_licenses_are_part_of_the_wheels() -> None:
    assert PROJECT["license-files"] == ["LICENSE", "LICENSES/*"]
    assert {path.name for path in (REPO_ROOT / "LICENSES").iterdir()} == {
        "README.md",
        "BSD-3-Clause-Bokeh.txt",
    }
    # Pages hold BokehJS, with its notice.
    notice = (REPO_ROOT / "LICENSES/BSD-3-Clause-Bokeh.txt").read_text().split()
    script = Resources(mode="inline", components=["bokeh"]).render_js()
    words = [word for word in script[:5000].split() if word != "*"]
    assert " ".join(notice) in " ".join(words)


def test_no_library_of_others_is_in_the_packages() -> None:
    roots = ("emulator", "agents", "configs", "dashboards", "deploy", "docs/examples")
    suffixes = {
        path.suffix
        for root in roots
        for path in (REPO_ROOT / root).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert not suffixes & {".js", ".css", ".woff", ".woff2", ".ttf", ".otf", ".map"}
