"""Killed and suspended agents, shards and controllers."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from chakram.control.client import AgentClient
from chakram.control.events import Failed, Finished
from chakram.foundation.errors import AgentError
from chakram_agent.hang_watchdog import LEASE_SENTENCE
from chakram_agent.state import TRAFFIC_LEASE_NS
from tests.agents import (
    TIMEOUT_S,
    agent_in,
    endless_plan,
    shards_of,
    socket_in,
    start,
    until_the_end,
    wait_for_traffic,
)
from tests.plans import ring_plan
from tests.waiting import seconds_of

pytestmark = pytest.mark.asyncio


async def test_a_shard_that_is_killed_ends_the_run(tmp_path: Path) -> None:
    async with agent_in(tmp_path) as client:
        await start(client, endless_plan())
        await wait_for_traffic(client)
        (shard,) = shards_of(os.getpid())
        os.kill(shard, signal.SIGKILL)
        failed = (await until_the_end(client))[-1]
        assert isinstance(failed, Failed)
        assert "was killed by signal 9" in failed.reason


async def test_without_heartbeats_the_traffic_ends_in_time(tmp_path: Path) -> None:
    # One that dies with its controller waits for longer.
    agent = await agent_process(socket_in(tmp_path))
    controller = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CONTROLLER, socket_in(tmp_path),
        stdout=asyncio.subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )  # fmt: skip
    try:
        assert controller.stdout is not None
        assert await controller.stdout.readline() == b"traffic\n"
        (shard,) = shards_of(agent.pid)
        # Stopped, not killed: the stream stays open, but no message arrives any more.
        controller.send_signal(signal.SIGSTOP)
        began_s = time.monotonic()
        gone = wait_until_gone(shard)
        assert await seconds_of(gone, processes=(agent.pid, shard)) < 2
        assert time.monotonic() - began_s > TRAFFIC_LEASE_NS / 1e9 - 0.5
    finally:
        controller.kill()
        await controller.wait()
        await end(agent)


async def test_suspended_controller_is_named(tmp_path: Path) -> None:
    agent = await agent_process(socket_in(tmp_path))
    controller = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CONTROLLER, socket_in(tmp_path),
        stdout=asyncio.subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )  # fmt: skip
    try:
        assert controller.stdout is not None
        assert await controller.stdout.readline() == b"traffic\n"
        (shard,) = shards_of(agent.pid)
        controller.send_signal(signal.SIGSTOP)
        await wait_until_gone(shard)
        controller.send_signal(signal.SIGCONT)
        said = (await controller.stdout.readline()).decode()
        assert re.search(
            r"^ControllerStalled .*: the controller stalled for [\d.]+ s: agent a "
            r"ended the session \(no heartbeat from the controller for 1\.5 s\)",
            said,
        ), said
        await controller.wait()
    finally:
        with suppress(ProcessLookupError):
            controller.kill()
        await controller.wait()
        await end(agent)


async def test_suspended_agent_sends_nothing_and_reports_its_stall(
    tmp_path: Path,
) -> None:
    target = socket_in(tmp_path)
    agent = await agent_process(target, "--die-with-parent")
    try:
        async with await AgentClient.connect(target, name="a") as client:
            await start(client, endless_plan())
            await wait_for_traffic(client)
            (shard,) = shards_of(agent.pid)
            agent.send_signal(signal.SIGSTOP)
            silent = wait_until_silent(shard)
            assert await seconds_of(silent, processes=(shard,)) < 2
            agent.send_signal(signal.SIGCONT)
            failed = (await until_the_end(client))[-1]
            assert isinstance(failed, Failed)
            assert failed.reason == LEASE_SENTENCE
            await client.reset()
            await start(client, ring_plan())
            assert isinstance((await until_the_end(client))[-1], Finished)
    finally:
        agent.send_signal(signal.SIGCONT)
        await end(agent)


async def test_a_killed_controller_frees_the_agent(tmp_path: Path) -> None:
    target = socket_in(tmp_path)
    agent = await agent_process(target, "--die-with-parent")
    controller = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CONTROLLER, target,
        stdout=asyncio.subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )  # fmt: skip
    try:
        assert controller.stdout is not None
        assert await controller.stdout.readline() == b"traffic\n"
        controller.kill()
        await controller.wait()
        # The next controller gets the agent as soon as the old traffic is over.
        async with await AgentClient.connect(target, name="a") as client:
            await start(client, ring_plan())
            assert isinstance((await until_the_end(client))[-1], Finished)
    finally:
        await end(agent)


async def test_shards_die_with_their_agent(tmp_path: Path) -> None:
    agent = await agent_process(socket_in(tmp_path), "--die-with-parent")
    async with await AgentClient.connect(socket_in(tmp_path), name="a") as client:
        await start(client, endless_plan())
        await wait_for_traffic(client)
        (shard,) = shards_of(agent.pid)
        agent.kill()
        await agent.wait()
        await wait_until_gone(shard)
        with pytest.raises(AgentError, match=r"agent a .*the connection was lost"):
            await until_the_end(client)


async def agent_process(listen: str, *options: str) -> asyncio.subprocess.Process:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "chakram_agent", "serve", "--listen", listen, *options,
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    assert await process.stdout.readline() == f"ready {listen}\n".encode()
    return process


async def wait_until_gone(process_id: int) -> None:
    """Wait for a process that is not ours to end."""
    async with asyncio.timeout(TIMEOUT_S):
        while is_running(process_id):  # noqa: ASYNC110 - nobody could tell us
            await asyncio.sleep(0.01)


async def wait_until_silent(shard: int) -> None:
    """Wait until a shard has no socket left but that to its agent."""
    async with asyncio.timeout(TIMEOUT_S):
        while number_of_sockets(shard) > 1:  # noqa: ASYNC110 - nobody could tell us
            await asyncio.sleep(0.01)


def number_of_sockets(process_id: int) -> int:
    found = 0
    for descriptor in Path(f"/proc/{process_id}/fd").iterdir():
        with suppress(OSError):  # closed meanwhile
            found += os.readlink(descriptor).startswith("socket:")
    return found


def is_running(process_id: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        stat = Path(f"/proc/{process_id}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


async def end(process: asyncio.subprocess.Process) -> None:
    process.terminate()
    async with asyncio.timeout(TIMEOUT_S):
        assert await process.wait() == 0


CONTROLLER = """
import asyncio, sys
from tests.integration.test_agent_deaths import *

async def main():
    client = await AgentClient.connect(sys.argv[1], name="a")
    await start(client, endless_plan())
    await wait_for_traffic(client)
    print("traffic", flush=True)
    try:
        async for event in client.events():
            pass
    except AgentError as error:
        print(type(error).__name__, error, flush=True)

asyncio.run(main())
"""
