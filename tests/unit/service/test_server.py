"""Settings of a service."""

from __future__ import annotations

from pathlib import Path

import pytest

from chakram.foundation.errors import ConfigError
from chakram.service.server import ServiceSettings


def test_runs_may_take_some_time(tmp_path: Path) -> None:
    paths = {"folder": tmp_path, "resources": tmp_path}
    ServiceSettings(**paths, listen="127.0.0.1:0", longest_s=1).check()
    with pytest.raises(ConfigError, match="--longest: is not above 0 s"):
        ServiceSettings(**paths, listen="127.0.0.1:0", longest_s=0).check()
