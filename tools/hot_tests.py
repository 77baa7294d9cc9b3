"""Print the unit and property tests that concern modules with a compiled form.

Only these tests can have another result if the modules run as plain Python. A test must
meet two conditions:

* It is a property test, or is in the test folder of a hot module's package.
* It has the name of a hot module, or imports a hot module or a direct user of a hot
  module.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE_ROOTS = (ROOT / "emulator", ROOT / "agents")
TESTS = ("unit", "property")
PLACES = (*((root, "**/*.py") for root in SOURCE_ROOTS), (ROOT, "tests/*.py"))
"""Folders with modules that a test may import: product code and test helpers."""


def hot_modules() -> set[str]:
    """Return the names of the modules that have a ``.pxd``."""
    return {
        ".".join(path.relative_to(root).with_suffix("").parts)
        for root in SOURCE_ROOTS
        for path in root.rglob("*.pxd")
    }


def imported(path: Path) -> set[str]:
    """Return the modules and names that a file imports, as ``package.name``."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def users(hot: set[str]) -> set[str]:
    """Return the modules that import one of *hot* directly."""
    return {
        ".".join(path.relative_to(root).with_suffix("").parts)
        for root, pattern in PLACES
        for path in root.glob(pattern)
        if imported(path) & hot
    }


def folders_of_tests(hot: set[str]) -> set[Path]:
    """Return the folders of hot modules' unit tests and the property test folder."""
    packages = (name.split(".")[:-1] for name in hot)
    unit = {
        ROOT.joinpath(
            "tests", "unit", *({"chakram_agent": "agents"}.get(top, ""), *rest)
        )
        for top, *rest in packages
    }
    return unit | {ROOT / "tests" / "property"}


def main() -> None:
    """Print the paths of the selected tests, one per line."""
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
