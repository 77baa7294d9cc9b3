"""The laws of the switch model find twenty planted bugs."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.support import REPO_ROOT

_LIMIT_S = 300


@pytest.mark.soak  # a test of tests
def test_the_laws_find_every_planted_bug() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.property.planted_switch_bugs"],
        cwd=REPO_ROOT,
        env={**os.environ, "CHAKRAM_COMPILED": "off"},
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found.pop("") == []
    assert len(found) >= 10
    assert {name for name, laws in found.items() if not laws} == set()
