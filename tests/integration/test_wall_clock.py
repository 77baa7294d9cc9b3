"""What chrony says of this host's wall clock, from a real chronyd that sets nothing."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from chakram.control.time_daemons import time_source
from chakram.control.wall_clock_sync import TimeSource
from tests.support import require

_SERVER_PORT = 11123
_LIMIT_S = 30.0
_BOUND_NS = 10_000_000
_SERVER = f"""port {_SERVER_PORT}
cmdport 0
bindcmdaddress /
local stratum 5
allow 127.0.0.1
"""
_CLIENT = f"""server 127.0.0.1 port {_SERVER_PORT} iburst minpoll -4 maxpoll -4
port 0
bindcmdaddress 127.0.0.1
"""


@pytest.fixture
def chronyd(tmp_path: Path) -> Iterator[None]:
    """Run a chronyd that follows another one, both on loopback."""
    reason = None if shutil.which("chronyd") else "chronyd is not installed"
    require("chrony", reason)
    with ExitStack() as stack:
        for name, text in (("server", _SERVER), ("client", _CLIENT)):
            path = tmp_path / f"{name}.conf"
            path.write_text(f"{text}pidfile {tmp_path / name}.pid\n")
            # -x: never touch the clock; -U: run with the rights of this user.
            command = ("chronyd", "-x", "-U", "-n", "-f", str(path))
            daemon = stack.enter_context(
                subprocess.Popen(
                    command, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT
                )
            )
            stack.callback(daemon.terminate)
        yield


@pytest.mark.usefixtures("chronyd")
def test_chrony_bounds_the_error_of_the_wall_clock() -> None:
    found: TimeSource | None = None
    until_s = time.monotonic() + _LIMIT_S
    # The first samples on a busy host leave a wide bound; later ones narrow it.
    while time.monotonic() < until_s and not is_narrow(found):
        time.sleep(0.1)
        found = asyncio.run(time_source())
    assert is_narrow(found), found


def is_narrow(found: TimeSource | None) -> bool:
    return (
        found is not None
        and found.name == "chrony"
        and found.is_synchronized
        and found.bound_ns is not None
        and abs(found.offset_ns) <= found.bound_ns < _BOUND_NS
    )
