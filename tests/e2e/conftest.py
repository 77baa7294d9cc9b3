"""Every test has its own loopback interface and its own labs."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from chakram.fabric.labs.lab_files import STATE_ROOT_VARIABLE
from tests.e2e.hosts import Hosts, hosts
from tests.e2e.processes import RunProcess
from tests.e2e.runs import moe, star, write_experiment
from tests.private_network import private_network
from tests.support import require, why_no_lab

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _private_network() -> Iterator[None]:
    """Keep other programs out: their UDP ports could be the ones that a run needs."""
    with private_network():
        yield


@pytest.fixture(autouse=True)
def state_root(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the directory of this test's labs; its path is short, as sockets need."""
    root = Path(tempfile.mkdtemp(prefix="ck-"))
    monkeypatch.setenv(STATE_ROOT_VARIABLE, str(root))
    yield root
    shutil.rmtree(root)


@pytest.fixture
def netns() -> None:
    """Ask for the right to make network namespaces."""
    require("netns", why_no_lab())


@pytest.fixture(scope="session")
def found(
    tmp_path_factory: pytest.TempPathFactory, forked_chakram: Path
) -> Iterator[Hosts]:
    """Yield hosts whose agents wait for a controller, one after the other."""
    with hosts(tmp_path_factory.mktemp("hosts"), forked_chakram) as made:
        yield made


@pytest.fixture(params=["namespaces", "loopback"])
def kind(request: pytest.FixtureRequest) -> str:
    """Return each fabric type that this machine builds."""
    found: str = request.param
    if found == "namespaces":
        request.getfixturevalue("netns")
    return found


@pytest.fixture
def endless(tmp_path: Path) -> Path:
    """Return an experiment that never ends: four ranks on two shards."""
    return write_experiment(
        tmp_path,
        # Little to send, slowly: cores are for what is started and ended.
        [moe(4) | {"size_scale": "1/16"}],
        star(4, rate="20Mbit"),
        iterations={"warmup": 0, "measured": 1_000_000},
        agents={"shards": 2},
    )


@pytest.fixture
def going(endless: Path) -> Iterator[RunProcess]:
    """Yield a run with traffic, after its first records."""
    with RunProcess(endless) as process:
        process.wait_for_records()
        yield process
