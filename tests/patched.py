"""Copies of the tree with the patch of a guide."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.support import REPO_ROOT

if TYPE_CHECKING:
    from pathlib import Path

GUIDES = REPO_ROOT / "docs" / "howto"
PACKAGES = ("emulator/chakram", "agents/chakram_agent")
_LIMIT_S = 100


def patch_of(guide: str) -> str:
    """Return the only patch of a page of ``docs/howto``."""
    text = (GUIDES / guide).read_text("utf-8")
    (found,) = re.findall(r"^```diff\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return str(found)


def patched_tree(guide: str, root: Path, *folders: str) -> Path:
    """Copy the packages below *root*, apply the patch of a guide, return *root*.

    Further *folders* of the project are copied, too.
    """
    for folder in (*PACKAGES, *folders):
        shutil.copytree(
            REPO_ROOT / folder,
            root / folder,
            ignore=shutil.ignore_patterns("*.c"),
        )
    subprocess.run(
        ["git", "apply", "--verbose", "-"],
        cwd=root,
        input=patch_of(guide),
        text=True,
        check=True,
        # The copy may be inside another repository.
        env={**os.environ, "GIT_CEILING_DIRECTORIES": str(root.parent)},
    )
    return root


def python_of(tree: Path, folder: Path, *arguments: str) -> str:
    """Run Python over a tree in *folder*; return its output."""
    done = subprocess.run(
        [sys.executable, "-P", *arguments],
        cwd=folder,
        env={
            **os.environ,
            "CHAKRAM_COMPILED": "auto",
            "PYTHONPATH": f"{tree}/emulator{os.pathsep}{tree}/agents",
        },
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
