"""The patches that guides show fit the tree as it is; e2e tests say what they do."""

from __future__ import annotations

import subprocess

import pytest

from tests.patched import GUIDES, patch_of
from tests.support import REPO_ROOT


@pytest.mark.parametrize(
    "guide",
    [path.name for path in GUIDES.glob("*.md") if "```diff\n" in path.read_text()],
)
def test_the_patch_of_a_guide_applies(guide: str) -> None:
    done = subprocess.run(
        ["git", "apply", "--check", "-"],
        cwd=REPO_ROOT,
        input=patch_of(guide),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
