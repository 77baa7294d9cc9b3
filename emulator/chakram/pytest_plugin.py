"""Pytest fixtures for network tests, available wherever Chakram is installed.

The library is loaded only when a test requests one of these fixtures.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from chakram.api import Results

__all__ = ["chakram_run", "chakram_runs", "chakram_simulate"]


@pytest.fixture
def chakram_runs(tmp_path: Path) -> Path:
    """Return the folder for the run directories of this test."""
    return tmp_path / "runs"


@pytest.fixture
def chakram_simulate(chakram_runs: Path) -> Callable[..., Results]:
    """Return `chakram.simulate`, with run directories in `chakram_runs`."""
    from chakram.api import simulate

    def simulated(experiment: Any, **options: Any) -> Results:
        return simulate(experiment, **{"runs": chakram_runs, **options})

    return simulated


@pytest.fixture
def chakram_run(chakram_runs: Path) -> Callable[..., Results]:
    """Return `chakram.run`, with a lab per process and runs in `chakram_runs`."""
    from chakram.api import run

    def done(experiment: Any, **options: Any) -> Results:
        lab = {"lab": f"pytest-{os.getpid()}"}
        options["set"] = {**lab, **(options.get("set") or {})}
        return run(experiment, **{"runs": chakram_runs, **options})

    return done
