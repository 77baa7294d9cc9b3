"""Calls in a separate process."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from chakram.execution.separate_process import apart
from chakram.foundation.errors import ConfigError, RunFailed
from chakram.foundation.units import parse_rate

SCRIPT = """
import asyncio, math
from chakram.execution.separate_process import apart

print("begins")
print(asyncio.run(apart(math.factorial, 5)))
"""


def test_a_script_without_a_guard_runs_once(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("begins\n120\n", "")


@pytest.mark.asyncio
async def test_what_the_function_prints_is_no_result(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert await apart(print, "said") is None
    assert capfd.readouterr().err == "said\n"


@pytest.mark.asyncio
async def test_errors_pass_through() -> None:
    with pytest.raises(ConfigError, match="where") as caught:
        await apart(partial(parse_rate, where="where"), "x")
    assert "in parse_rate" in caught.value.__notes__[0]


@pytest.mark.asyncio
async def test_how_a_process_ended_is_reported() -> None:
    with pytest.raises(RunFailed, match="its process was killed by signal 9"):
        await apart(signal.raise_signal, signal.SIGKILL)
    with pytest.raises(RunFailed, match="its process ended with code 3"):
        await apart(os._exit, 3)


def children() -> str:
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text()


@pytest.mark.asyncio
async def test_a_cancelled_call_leaves_no_process() -> None:
    call = asyncio.create_task(apart(time.sleep, 60))
    while not children():  # noqa: ASYNC110 - a process that starts has no event
        await asyncio.sleep(0.01)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert not children()


@pytest.mark.asyncio
async def test_large_arguments_and_results_pass() -> None:
    assert await apart(math.prod, list(range(1, 300_000, 100_000))) == 100_001 * 200_001
    assert len(await apart(bytes.ljust, b"", 10_000_000)) == 10_000_000
