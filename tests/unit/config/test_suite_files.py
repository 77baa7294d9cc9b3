"""Suites and experiments are told apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from chakram.config.experiment import load_experiment
from chakram.config.suite import load_suite
from chakram.foundation.errors import ConfigError
from tests.support import REPO_ROOT

if TYPE_CHECKING:
    from pathlib import Path

SUITE = "version: 1\nname: s\nbase: {}\nmatrix: {{seed: [1]}}\n"


def test_an_experiment_is_no_suite_and_the_reverse(tmp_path: Path) -> None:
    experiment = REPO_ROOT / "configs" / "incast.yaml"
    with pytest.raises(ConfigError, match=r"is an experiment \(write a suite with it"):
        load_suite(experiment)
    suite = tmp_path / "suite.yaml"
    suite.write_text(SUITE.format(experiment))
    assert load_suite(suite)
    with pytest.raises(ConfigError, match=r"is a suite of experiments \(run it with"):
        load_experiment(suite)
