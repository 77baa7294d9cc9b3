"""Starts an agent on this machine for the length of a run."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from chakram.errors import AgentError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

__all__ = ["local_agent"]

_START_TIMEOUT_S = 20
_STOP_TIMEOUT_S = 5
_KEPT_LINES = 20


@asynccontextmanager
async def local_agent(
    *,
    name: str,
    socket: Path,
    prefix: Sequence[str] = (),
    options: Sequence[str] = (),
) -> AsyncIterator[tuple[str, int]]:
    """Run an agent that listens on a Unix socket; it ends with the block, or with us.

    Args:
        name: Of the agent in the plan.
        socket: Where it listens.
        prefix: Command that enters the lab and becomes the agent (see
            ``chakram.fabric.enter``).
        options: Further options of ``chakram-agent serve``.

    Yields:
        Its target for ``AgentClient.connect``, and its process id.

    Raises:
        AgentError: If it does not start; with what it said last.
    """
    target = f"unix:{socket}"
    process = await asyncio.create_subprocess_exec(
        *prefix,
        sys.executable,
        "-m",
        "chakram_agent",
        "serve",
        "--listen",
        target,
        "--die-with-parent",
        *options,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        # Ctrl-C in a terminal goes to every process of the foreground group: the agent
        # is to be stopped by its controller, with records and all.
        start_new_session=True,
    )
    said: list[str] = []
    listener: asyncio.Task[None] | None = None
    try:
        await _wait_until_ready(process, name)
        listener = asyncio.create_task(_listen(process, said), name=f"stderr-{name}")
        yield target, process.pid
    finally:
        await _stop(process)
        if listener is not None:
            await listener


async def _wait_until_ready(process: asyncio.subprocess.Process, name: str) -> None:
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        async with asyncio.timeout(_START_TIMEOUT_S):
            line = await process.stdout.readline()
            if line:
                return
            complaint = (await process.stderr.read()).decode("utf-8", "replace")
    except TimeoutError:
        raise AgentError(
            f"agent {name}", f"was not ready within {_START_TIMEOUT_S} s"
        ) from None
    lines = [text for text in complaint.splitlines() if text.strip()]
    raise AgentError(
        f"agent {name}", f"did not start: {lines[-1] if lines else 'it said nothing'}"
    )


async def _listen(process: asyncio.subprocess.Process, said: list[str]) -> None:
    """Keep the pipe empty, so that the agent never waits to be heard."""
    assert process.stderr is not None
    while line := await process.stderr.readline():
        said.append(line.decode("utf-8", "replace").rstrip())
        del said[:-_KEPT_LINES]


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
