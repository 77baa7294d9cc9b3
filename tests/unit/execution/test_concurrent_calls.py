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

    assert await call_all(call, range(9)) == [at * at for at in range(9)]


@pytest.mark.asyncio
async def test_an_error_may_be_a_result() -> None:
    async def call(name: str) -> AgentError:
        return AgentError(name, "it does not answer")

    answers = await call_all(call, ["agent h1", "agent h2"])
    assert [error.where for error in answers] == ["agent h1", "agent h2"]


@pytest.mark.asyncio
async def test_calls_run_at_the_same_time_up_to_a_limit() -> None:
    running = most = 0

    async def call(_: int) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1

    await call_all(call, range(3 * AT_ONCE))
    assert most == AT_ONCE


@pytest.mark.asyncio
async def test_after_an_error_calls_end_and_none_begins() -> None:
    begun: list[int] = []
    ended: list[int] = []

    async def call(number: int) -> None:
        begun.append(number)
        await asyncio.sleep(0)
        if number == 1:
            raise AgentError("agent h1", "it does not answer")
        for _ in range(9):
            await asyncio.sleep(0)
        ended.append(number)
        if number == 0:
            raise AgentError("agent h0", "it does not answer, either")

    with pytest.raises(AgentError, match="agent h0: it does not answer, either"):
        await call_all(call, range(9), at_once=3)
    assert begun == [0, 1, 2]
    assert ended == [0, 2]


@pytest.mark.asyncio
async def test_a_cancellation_ends_all_calls() -> None:
    canceled: list[int] = []

    async def call(number: int) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            canceled.append(number)
            raise

    calling = asyncio.create_task(call_all(call, range(3)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    assert sorted(canceled) == [0, 1, 2]
