"""Calls for many agents: their order, their number at a time, and their errors."""

from __future__ import annotations

import asyncio

import pytest

from chakram.execution.concurrent_calls import AT_ONCE, call_all
from chakram.foundation.errors import AgentError


@pytest.mark.asyncio
async def test_results_have_the_order_of_the_items() -> None:
    async def call(number: int) -> int:
        for _ in range(9 - number):
            await asyncio.sleep(0)
        return number * number

    assert await call_all(call, range(9), name="x") == [at * at for at in range(9)]


@pytest.mark.asyncio
async def test_calls_run_at_the_same_time_up_to_a_limit() -> None:
    running = most = 0

    async def call(_: int) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1

    await call_all(call, range(3 * AT_ONCE), name="x")
    assert most == AT_ONCE


@pytest.mark.asyncio
async def test_the_first_error_ends_all_calls() -> None:
    canceled: list[str] = []

    async def call(name: str) -> None:
        if name == "h2":
            raise AgentError("agent h2", "it does not answer")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            canceled.append(name)
            raise

    with pytest.raises(AgentError, match="agent h2: it does not answer"):
        await call_all(call, ["h1", "h2", "h3"], name="x")
    assert sorted(canceled) == ["h1", "h3"]
