"""The page of the architecture, held against the folders and the import contracts."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib

from tests.support import REPO_ROOT

PAGE = REPO_ROOT / "docs" / "design" / "architecture.md"
PACKAGES = ("emulator/chakram", "agents/chakram_agent")


def blocks() -> list[str]:
    """Return the blocks without a language of the section about the layout."""
    section = PAGE.read_text("utf-8").split("\n## Layout\n")[1].split("\n## ")[0]
    return re.findall(r"```\n(.*?)```", section, flags=re.DOTALL)


def described() -> set[str]:
    """Return the files and folders of the page's tree, as paths from the root."""
    paths: set[str] = set()
    parents: list[tuple[int, str]] = []
    for line in blocks()[0].splitlines():
        indent = len(line) - len(line.lstrip())
        name = line.split()[0]
        if not name.endswith("/") and "." not in name.strip("."):
            continue  # the text of the line before, gone on
        while parents and parents[-1][0] >= indent:
            parents.pop()
        path = (parents[-1][1] if parents else "") + name
        parents.append((indent, path))
        paths.add(path.rstrip("/"))
    return paths


def test_every_folder_of_the_packages_is_described_and_no_other() -> None:
    there = {
        str(path.parent.relative_to(REPO_ROOT))
        for package in PACKAGES
        for path in (REPO_ROOT / package).rglob("*.py")
    }
    inside = {path for path in described() if path.startswith(PACKAGES)}
    folders = {path for path in inside if not path.endswith(".py")}
    assert folders == there


def test_no_function_has_more_than_100_lines() -> None:
    long = [
        f"{path.relative_to(REPO_ROOT)}: {node.name}"
        for folder in (*PACKAGES, "dashboards")
        for path in (REPO_ROOT / folder).rglob("*.py")
        if not path.name.endswith("_pb2.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno >= 100
    ]
    assert long == []


def test_what_runs_leave_behind_is_not_kept() -> None:
    done = subprocess.run(
        ["git", "ls-files", "*.parquet", "*/run.json", "*.log"],
        cwd=REPO_ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    # Unpacked from an archive there is nobody to ask.
    assert done.stdout == "" or done.returncode != 0


def test_whatever_else_is_described_is_there() -> None:
    assert {path for path in described() if not (REPO_ROOT / path).exists()} == set()


def test_top_level_modules_are_described() -> None:
    there = {
        str(path.relative_to(REPO_ROOT))
        for path in (REPO_ROOT / PACKAGES[0]).glob("[a-z]*.py")
    }
    assert there <= described()


def test_the_layers_are_those_of_the_contract() -> None:
    project = tomllib.loads((REPO_ROOT / "pyproject.toml").read_text("utf-8"))
    (contract,) = (
        each
        for each in project["tool"]["importlinter"]["contracts"]
        if each["type"] == "layers"
    )
    layers = [set(re.findall(r"\w+", layer)) for layer in contract["layers"]]
    told = [
        set(re.findall(r"\w+", line.split("|")[0])) for line in blocks()[1].splitlines()
    ]
    assert [layer for layer in layers if layer != {"_compiled"}] == told


def test_what_is_where_is_there() -> None:
    text = (REPO_ROOT / "CONTRIBUTING.md").read_text("utf-8")
    table = text.split("\n## Code by topic\n")[1].split("\n## ")[0]
    named = re.findall(r"`([\w./]+/[\w./]*)`", table)
    assert len(named) > 14
    roots = (REPO_ROOT, REPO_ROOT / "emulator" / "chakram")
    assert [
        name for name in named if not any((root / name).exists() for root in roots)
    ] == []
