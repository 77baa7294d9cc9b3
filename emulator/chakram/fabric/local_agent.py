"""Starts an agent on this machine for the length of a run."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import BinaryIO

from chakram.fabric.child_processes import set_niceness
from chakram.foundation.errors import AgentError, RunDirectoryError

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
    """Run an agent that listens on a Unix socket; it ends with the block, or with us.

    Args:
        name: Of the agent in the plan.
        socket: Where it listens.
        log: File for what it says; removed if it says nothing.
        prefix: Command that enters the lab and becomes the agent (see
            ``chakram.fabric.enter_lab``).
        options: Further options of ``chakram-agent serve``.
        niceness: Of the agent and its data-plane processes, where this user may set
            it; None: ours.

    Yields:
        Its target for ``AgentClient.connect``, and its process id.

    Raises:
        AgentError: If it does not start; with what it said last.
        RunDirectoryError: If its log cannot be written.
    """
    target = f"unix:{socket}"
    with _opened(log) as file:
        process = await asyncio.create_subprocess_exec(
            *prefix,
            sys.executable,
            "-P",  # not the folder that it is started in
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
            # Ctrl-C in a terminal goes to every process of the foreground group: the
            # agent is to be stopped by its controller, with records and all.
            start_new_session=True,
        )
    if niceness is not None:
        # Long before it starts threads or processes, which inherit it.
        with contextlib.suppress(PermissionError, ProcessLookupError):
            set_niceness(process.pid, niceness)
    try:
        await _wait_until_ready(process, name, log)
        yield target, process.pid
    finally:
        await _stop(process)
        _drop_if_empty(log)


def _opened(log: Path) -> BinaryIO:
    try:
        return log.open("ab")
    except OSError as error:
        raise RunDirectoryError(
            str(log),
            f"cannot be written: {error.strerror}",
            "choose another folder for runs, or make room",
        ) from error


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
    return lines[-1] if lines else "it said nothing"


def _drop_if_empty(log: Path) -> None:
    # Somebody may have removed the run directory: whatever writes to it tells that.
    with contextlib.suppress(OSError):
        if not log.stat().st_size:
            log.unlink()


async def _stop(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGTERM)
    try:
        async with asyncio.timeout(_STOP_TIMEOUT_S):
            await process.wait()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
