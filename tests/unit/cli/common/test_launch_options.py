"""Options for launching agents, passed on to runs of a service."""

from __future__ import annotations

import pytest

from chakram.cli.common.launch_options import Launching
from chakram.foundation.errors import ConfigError


def test_options_are_arguments_of_another_command() -> None:
    assert Launching().arguments() == ()
    given = Launching(
        launch="slurm", launcher_option=["--partition=gpu", "-v"], tolerate=2
    )
    assert given.arguments() == (
        "--launch=slurm",
        "--launcher-option=--partition=gpu",
        "--launcher-option=-v",
        "--lease=10min",
        "--tolerate=2",
    )


def test_options_without_effect_are_refused() -> None:
    with pytest.raises(ConfigError, match="--agent: has no effect without --launch"):
        Launching(agent="x").arguments()
