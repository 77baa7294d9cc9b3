"""Print the tests of pure code that are about modules which have a compiled form.

Those alone have something to say that a run of the plain form may contradict: unit
tests of their folders, and laws, where they import such a module or what uses it.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE_ROOTS = (ROOT / "emulator", ROOT / "agents")
TESTS = ("unit", "property")
PLACES = (*((root, "**/*.py") for root in SOURCE_ROOTS), (ROOT, "tests/*.py"))
"""Where modules lie that a test may import: those of the product, and helpers."""


def hot_modules() -> set[str]:
    """Return the names of the modules beside which a declaration lies."""
    return {
        ".".join(path.relative_to(root).with_suffix("").parts)
        for root in SOURCE_ROOTS
        for path in root.rglob("*.pxd")
    }


def imported(path: Path) -> set[str]:
    """Return the modules that a file imports, also as names of their packages."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def users(hot: set[str]) -> set[str]:
    """Return the modules that import one of *hot* themselves."""
    return {
        ".".join(path.relative_to(root).with_suffix("").parts)
        for root, pattern in PLACES
        for path in root.glob(pattern)
        if imported(path) & hot
    }


def folders_of_tests(hot: set[str]) -> set[Path]:
    """Return the folders of tests that mirror the packages of *hot*, and of laws."""
    packages = (name.split(".")[:-1] for name in hot)
    unit = {
        ROOT.joinpath(
            "tests", "unit", *({"chakram_agent": "agents"}.get(top, ""), *rest)
        )
        for top, *rest in packages
    }
    return unit | {ROOT / "tests" / "property"}


def main() -> None:
    """Print one path a line: tests of a hot module by name, or by what they import."""
    hot = hot_modules()
    meant = hot | users(hot)
    names = {f"test_{name.rpartition('.')[2]}" for name in hot}
    folders = folders_of_tests(hot)
    for folder in TESTS:
        for path in sorted((ROOT / "tests" / folder).rglob("test_*.py")):
            if folders.isdisjoint(path.parents):
                continue
            if path.stem in names or imported(path) & meant:
                sys.stdout.write(f"{path.relative_to(ROOT)}\n")


if __name__ == "__main__":
    main()
