"""An agent with a lease ends itself if it has no controller."""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from chakram.control.client import AgentClient
from tests.agents import socket_in
from tests.waiting import PATIENCE_S

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = pytest.mark.asyncio

LEASE_S = 1.0


@asynccontextmanager
async def agent(folder: Path, *options: str) -> AsyncIterator[tuple[Process, str]]:
    """Start an agent in *folder*; yield its process and address."""
    listen = socket_in(folder)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "chakram_agent", "serve", "--listen", listen, *options),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(PATIENCE_S):
            assert (await process.stdout.readline()).startswith(b"ready unix:")
        yield process, listen
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def end_of(process: Process) -> str:
    """Wait until an agent has ended; return what it wrote to standard error."""
    async with asyncio.timeout(PATIENCE_S):
        _, complaint = await process.communicate()
    assert process.returncode == 0
    return complaint.decode()


async def test_agent_without_a_controller_ends_after_its_lease(tmp_path: Path) -> None:
    async with agent(tmp_path, "--lease", f"{LEASE_S}s") as (process, listen):
        begun_s = time.monotonic()
        assert "no controller for 1s: ending" in await end_of(process)
        assert time.monotonic() - begun_s > LEASE_S / 2
    assert not (tmp_path / listen.rpartition("/")[2]).exists()


async def test_lease_begins_when_the_session_ends(tmp_path: Path) -> None:
    async with agent(tmp_path, "--lease", f"{LEASE_S}s") as (process, listen):
        async with await AgentClient.connect(listen, name="a") as client:
            await client.attach()
            await asyncio.sleep(3 * LEASE_S)
            assert process.returncode is None
        begun_s = time.monotonic()
        assert "no controller" in await end_of(process)
        assert time.monotonic() - begun_s > LEASE_S / 2


async def test_lease_is_renewed_by_calls_without_a_session(tmp_path: Path) -> None:
    async with (
        agent(tmp_path, "--lease", f"{LEASE_S}s") as (process, listen),
        await AgentClient.connect(listen, name="a") as client,
    ):
        for call in (client.describe, client.list_ports, client.send_pings):
            ends_s = time.monotonic() + 2 * LEASE_S
            while time.monotonic() < ends_s:
                await call()
                await asyncio.sleep(LEASE_S / 10)
            assert process.returncode is None


async def test_agent_without_a_lease_waits(tmp_path: Path) -> None:
    async with agent(tmp_path) as (process, _):
        await asyncio.sleep(3 * LEASE_S)
        assert process.returncode is None
