"""Fixtures for tests of networks; pytest finds them wherever Chakram is installed.

The library is loaded when a test asks for one of them, not before.
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
    """Return the folder of the run directories of this test."""
    return tmp_path / "runs"


@pytest.fixture
def chakram_simulate(chakram_runs: Path) -> Callable[..., Results]:
    """Return `chakram.simulate`, whose run directories go to `chakram_runs`."""
    from chakram.api import simulate

    def simulated(experiment: Any, **options: Any) -> Results:
        return simulate(experiment, **{"runs": chakram_runs, **options})

    return simulated


@pytest.fixture
def chakram_run(chakram_runs: Path) -> Callable[..., Results]:
    """Return `chakram.run`, likewise, in a lab that no other process has."""
    from chakram.api import run

    def done(experiment: Any, **options: Any) -> Results:
        lab = {"lab": f"pytest-{os.getpid()}"}
        options["set"] = {**lab, **(options.get("set") or {})}
        return run(experiment, **{"runs": chakram_runs, **options})

    return done
