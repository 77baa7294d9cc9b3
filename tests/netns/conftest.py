"""Labs for tests: only where they can be built, each test with its own state,
and its own network in which links of theirs would be left.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from chakram.fabric.labs.lab_files import STATE_ROOT_VARIABLE
from tests.private_network import private_network
from tests.support import require, why_no_lab

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _private_network() -> Iterator[None]:
    with private_network():
        yield


@pytest.fixture(autouse=True)
def state_root(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the directory of this test's labs; its path is short, as sockets need."""
    require("netns", why_no_lab())
    root = Path(tempfile.mkdtemp(prefix="ck-"))
    monkeypatch.setenv(STATE_ROOT_VARIABLE, str(root))
    yield root
    shutil.rmtree(root)
