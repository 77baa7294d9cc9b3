"""A fixed part of the invalid experiments of ``tests/soak``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.experiment_fuzzing import fuzz


@pytest.mark.slow
def test_any_experiment_runs_or_is_refused(tmp_path: Path) -> None:
    fuzzed = fuzz(seed=7, inputs=40, folder=tmp_path)
    # They are not all alike: some can be run, others have many different mistakes.
    assert fuzzed.ends[0] > 2
    assert len(fuzzed.said) > 20
