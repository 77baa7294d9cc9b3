"""Fixtures and markers shared by all tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

REPO_ROOT = Path(__file__).resolve().parents[1]
FOLDER_MARKERS = frozenset(
    "unit property golden interop integration netns e2e bench soak".split()
)


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Mark every test by its folder."""
    for item in items:
        folder = item.path.relative_to(REPO_ROOT / "tests").parts[0]
        if folder in FOLDER_MARKERS:
            item.add_marker(getattr(pytest.mark, folder))


@pytest.fixture(scope="session")
def chakram_data() -> Path:
    """Return the folder of real traces and captures."""
    return Path(os.environ.get("CHAKRAM_DATA", REPO_ROOT.parent / "shared"))
