"""Deadlines of an agent whose host is overloaded."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from chakram_agent import agent as agent_module
from chakram_agent.agent import LOOP_STALL_NS, Agent
from chakram_agent.send_limits import Policy
from chakram_agent.shard_handle import ForkServers

if TYPE_CHECKING:
    import pytest

STALL_NS = 2 * LOOP_STALL_NS
LEASE_NS = 10 * STALL_NS


def test_stalls_do_not_postpone_the_end_of_a_lease_forever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_ns = 0

    def read_clock() -> int:
        nonlocal now_ns
        now_ns += STALL_NS
        return now_ns

    monkeypatch.setattr(agent_module, "monotonic_ns", read_clock)
    monkeypatch.setattr(agent_module, "TICK_S", 0)

    async def lost() -> int:
        abandoned = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            agent = Agent(
                Policy(),
                tasks,
                ForkServers(),
                idle_lease_ns=LEASE_NS,
                abandoned=abandoned,
            )
            keeping = tasks.create_task(agent.keep_time())
            async with asyncio.timeout(5):
                await abandoned.wait()
            keeping.cancel()
        return now_ns

    assert LEASE_NS <= asyncio.run(lost()) < 2 * LEASE_NS
