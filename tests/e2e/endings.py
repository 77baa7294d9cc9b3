"""Checks of run directories of incomplete runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chakram.fabric.labs.lab import lab_status
from chakram.run_directory.reader import open_run
from tests.e2e.runs import LAB, completed
from tests.leaks import names_in

if TYPE_CHECKING:
    from pathlib import Path


def check_nothing_is_left(state_root: Path) -> None:
    """Assert that a lab is gone, with all that it made."""
    assert lab_status(LAB) is None
    assert names_in(str(state_root)) <= {".lock"}
    assert not [name for name in names_in("/run/netns") if name.startswith(f"{LAB}-")]


def check_results(directory: Path, status: str) -> str | None:
    """Assert that the records before the end can be read; return the reason."""
    results = open_run(directory)
    assert results.manifest.status == status
    assert results.table("flows").num_rows > 0
    assert any(record.complete for record in results.collectives())
    assert results.summary().facts.status == status
    return results.manifest.reason


def check_next_run(endless: Path) -> None:
    """Assert that the same experiment runs, as if nothing had happened."""
    runs = endless.parent / "next"
    completed(endless, "--set", "iterations.measured=1", "--runs", runs)
    assert len(list(runs.iterdir())) == 1
