"""Agents that live in the test's own event loop."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chakram.control.client import AgentClient
from chakram.control.events import Failed, Finished, RecordBatch
from chakram.foundation.errors import AgentError
from chakram.plan.plan import RunSettings
from chakram_agent.grpc_server import serve
from chakram_agent.send_limits import Policy
from chakram_agent.serve_options import ServeOptions
from tests.plans import ring_plan
from tests.waiting import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from chakram.control.events import AgentEvent
    from chakram.control.tls_files import TlsFiles
    from chakram.plan.plan import AgentPlan

TIMEOUT_S = PATIENCE_S
SOON_NS = 20_000_000


@asynccontextmanager
async def serving(
    listen: str, *, tls: TlsFiles | None = None, policy: Policy | None = None
) -> AsyncIterator[str]:
    """Serve an agent at *listen* while the body runs; yields its address."""
    stop = asyncio.Event()
    address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    options = ServeOptions(
        listen=listen, tls=tls, policy=policy or Policy(), insecure=tls is None
    )
    task = asyncio.create_task(serve(options, ready=address.set_result, stop=stop))
    both: list[asyncio.Future[Any]] = [task, address]
    await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        await task
    try:
        yield address.result()
    finally:
        stop.set()
        async with asyncio.timeout(TIMEOUT_S):
            await task


@asynccontextmanager
async def agent_in(
    folder: Path, *, policy: Policy | None = None
) -> AsyncIterator[AgentClient]:
    """Serve an agent in *folder* while the body runs; yields its client."""
    async with (
        serving(socket_in(folder), policy=policy) as target,
        await AgentClient.connect(target, name="a") as client,
    ):
        yield client


def socket_in(folder: Path) -> str:
    """Return where an agent in *folder* listens."""
    return f"unix:{folder}/a"


async def start(client: AgentClient, plan: AgentPlan) -> None:
    """Have an agent prepare a plan, and start soon.

    On a busy machine that moment may be over when the agent hears of it: then it
    refuses, stays prepared, and gets a later one.
    """
    await client.prepare(plan)
    for ahead_ns in (SOON_NS, 10 * SOON_NS):
        with suppress(AgentError):
            await client.arm(time.monotonic_ns() + ahead_ns)
            return
    await client.arm(time.monotonic_ns() + 100 * SOON_NS)


async def until_the_end(client: AgentClient) -> list[AgentEvent]:
    """Return all events up to the end of a run."""
    events = []
    async with asyncio.timeout(TIMEOUT_S):
        async for event in client.events():
            events.append(event)
            if isinstance(event, Finished | Failed):
                break
    return events


def shards_of(agent: int) -> list[int]:
    """Return the ids of the shards of an agent, which its fork server has forked."""
    return [
        shard
        for server in children_of(agent, "chakram-forksrv")
        for shard in children_of(server, "chakram-shard")
    ]


def children_of(parent: int, command: str) -> list[int]:
    """Return the ids of the children of a process with *command* as line or name."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            stat = (folder / "stat").read_text().rpartition(")")[2].split()
            line = (folder / "comm").read_bytes() + (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if int(stat[1]) == parent and command.encode() in line:
            found.append(int(folder.name))
    return found


def endless_plan() -> AgentPlan:
    """Return a plan that does not end by itself, and leaves cores to others."""
    settings = RunSettings(warmup=0, measured=10**6)
    return ring_plan(settings=settings, rate_bps=50_000_000)


async def wait_for_traffic(client: AgentClient) -> None:
    """Wait for the first records of a run."""
    async for event in client.events():
        if isinstance(event, RecordBatch):
            return
