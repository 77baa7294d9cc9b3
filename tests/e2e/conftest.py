"""Every test has a loopback interface of its own, and labs of its own."""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import struct
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from chakram.fabric.netns import CLONE_NEWNET, setns, unshare
from chakram.fabric.probe import why_no_lab
from chakram.fabric.state import STATE_ROOT_VARIABLE
from chakram.fabric.userns import has_net_admin
from tests.e2e.processes import RunProcess
from tests.e2e.runs import moe, star, write_experiment
from tests.support import require

if TYPE_CHECKING:
    from collections.abc import Iterator

# linux/sockios.h, linux/if.h
SIOCSIFFLAGS = 0x8914
IFF_UP = 1


@pytest.fixture(autouse=True)
def _own_network() -> Iterator[None]:
    """Keep other programs out: their UDP ports could be the ones that a run needs.

    Processes and threads inherit the network namespace of who starts them.
    """
    if not has_net_admin():
        yield
        return
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    unshare(CLONE_NEWNET)
    try:
        with socket.socket(type=socket.SOCK_DGRAM) as any_socket:
            fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh", b"lo", IFF_UP))
        yield
    finally:
        setns(home, CLONE_NEWNET)
        os.close(home)


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


@pytest.fixture(params=["namespaces", "loopback"])
def kind(request: pytest.FixtureRequest) -> str:
    """Return each kind of fabric that is made on this machine."""
    found: str = request.param
    if found == "namespaces":
        request.getfixturevalue("netns")
    return found


@pytest.fixture
def endless(tmp_path: Path) -> Path:
    """Return an experiment that never ends: four ranks on two shards."""
    return write_experiment(
        tmp_path,
        [moe(4)],
        star(4, rate="200Mbit"),
        iterations={"warmup": 0, "measured": 1_000_000},
        agents={"shards": 2},
    )


@pytest.fixture
def going(endless: Path) -> Iterator[RunProcess]:
    """Yield a run whose ranks send and receive, and whose first records are there."""
    with RunProcess(endless) as process:
        process.wait_for_records()
        yield process
