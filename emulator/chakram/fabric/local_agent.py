"""An agent on this machine for the duration of a run."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from chakram.fabric.process_control import set_niceness
from chakram.foundation.errors import AgentError
from chakram.foundation.write_errors import explained_writes

_START_TIMEOUT_S = 20
_STOP_TIMEOUT_S = 5


@asynccontextmanager
async def local_agent(
    *,
    name: str,
    socket: Path,
    log: Path,
    prefix: Sequence[str] = (),
    options: Sequence[str] = (),
    niceness: int | None = None,
) -> AsyncIterator[tuple[str, int]]:
    """Run an agent on a Unix socket until the block or this process ends.

    Args:
        name: Name of the agent in the plan.
        socket: Path of the socket.
        log: File for the agent's output, which is removed if it is empty.
        prefix: Command that enters the lab and starts the agent (see
            ``chakram.fabric.enter_lab``).
        options: Further options for ``chakram-agent serve``.
        niceness: Niceness of the agent and its data-plane processes, if this user may
            set it. None to inherit the niceness of this process.

    Yields:
        The agent's target for ``AgentClient.connect``, and its process ID.

    Raises:
        AgentError: If the agent does not start. The error contains the last line of its
            output.
        RunDirectoryError: If the log cannot be written.
    """
    target = f"unix:{socket}"
    hint = "choose another folder for runs, or free disk space"
    with explained_writes(log, hint=hint):
        file = log.open("ab")
    with file:
        process = await asyncio.create_subprocess_exec(
            *prefix,
            sys.executable,
            "-P",  # keep the working directory off sys.path
            "-m",
            "chakram_agent",
            "serve",
            "--listen",
            target,
            "--die-with-parent",
            *options,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=file,
            # Ctrl-C in a terminal signals every process of the foreground group. The
            # controller must stop the agent instead, so that it still collects the
            # records.
            start_new_session=True,
        )
    if niceness is not None:
        # The agent has not yet started threads, which inherit the niceness. Shards get
        # it from the agent when they start.
        with contextlib.suppress(PermissionError, ProcessLookupError):
            set_niceness(process.pid, niceness)
    try:
        await _wait_until_ready(process, name, log)
        yield target, process.pid
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        await wait_or_kill(process, _STOP_TIMEOUT_S)
        drop_if_empty(log)


async def _wait_until_ready(
    process: asyncio.subprocess.Process, name: str, log: Path
) -> None:
    assert process.stdout is not None
    try:
        async with asyncio.timeout(_START_TIMEOUT_S):
            if await process.stdout.readline():
                return
            await process.wait()
    except TimeoutError:
        raise AgentError(
            f"agent {name}", f"was not ready within {_START_TIMEOUT_S} s"
        ) from None
    raise AgentError(f"agent {name}", f"did not start: {_last_words(log)}")


def _last_words(log: Path) -> str:
    try:
        lines = log.read_text("utf-8", "replace").strip().splitlines()
    except OSError as error:
        return f"its log cannot be read: {error.strerror}"
    return lines[-1] if lines else "it printed nothing"


def drop_if_empty(log: Path) -> None:
    """Remove a log file if it is empty."""
    # The run directory may be gone. The code that writes results reports that.
    with contextlib.suppress(OSError):
        if not log.stat().st_size:
            log.unlink()


async def wait_or_kill(process: asyncio.subprocess.Process, timeout_s: float) -> None:
    """Wait until a process ends, and kill it if that takes too long."""
    try:
        async with asyncio.timeout(timeout_s):
            await process.wait()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
