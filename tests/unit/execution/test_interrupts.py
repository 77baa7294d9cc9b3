"""Ctrl-C and SIGTERM: the first goes to a listener, the second cancels."""

from __future__ import annotations

import asyncio
import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from chakram.execution.interrupts import Interrupts
from chakram.foundation.errors import RunInterrupted

SIGNALS = [signal.SIGINT, signal.SIGTERM]


@pytest.mark.asyncio
@pytest.mark.parametrize("number", SIGNALS)
async def test_listener_receives_the_first_signal(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    heard = asyncio.get_running_loop().create_future()
    with Interrupts() as interrupts:
        interrupts.listener = heard.set_result
        os.kill(os.getpid(), number)
        assert await heard == number.name
        assert interrupts.name == number.name
    assert signal.getsignal(number) == before


@pytest.mark.asyncio
@pytest.mark.parametrize("number", SIGNALS)
async def test_without_a_listener_the_task_is_cancelled(
    number: signal.Signals,
) -> None:
    async def work() -> None:
        with Interrupts("preflight"):
            os.kill(os.getpid(), number)
            await asyncio.Event().wait()

    with pytest.raises(
        RunInterrupted, match=f"preflight: interrupted by {number.name}"
    ):
        await asyncio.create_task(work())


@pytest.mark.asyncio
async def test_a_signal_between_two_listeners_is_not_lost() -> None:
    heard: list[str] = []

    async def work() -> None:
        with Interrupts("preflight") as interrupts:
            with interrupts.heard_by(heard.append):
                await asyncio.sleep(0)
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.Event().wait()

    with pytest.raises(RunInterrupted, match="preflight: interrupted by SIGINT"):
        await asyncio.create_task(work())
    assert not heard


@pytest.mark.asyncio
async def test_a_signal_that_a_listener_ignored_ends_the_next_work() -> None:
    heard = asyncio.get_running_loop().create_future()
    with Interrupts("preflight") as interrupts:
        with interrupts.heard_by(heard.set_result):
            os.kill(os.getpid(), signal.SIGINT)
            assert await heard == "SIGINT"
        with (
            pytest.raises(RunInterrupted, match="preflight: interrupted by SIGINT"),
            interrupts.heard_by(heard.set_result),
        ):
            pytest.fail("the block runs")


@pytest.mark.asyncio
async def test_second_signal_cancels() -> None:
    heard: list[str] = []

    async def work() -> None:
        with Interrupts() as interrupts:
            interrupts.listener = heard.append
            for number in SIGNALS:
                os.kill(os.getpid(), number)
                await asyncio.sleep(0.01)
            await asyncio.Event().wait()

    with pytest.raises(RunInterrupted, match="run: interrupted by SIGTERM"):
        await asyncio.create_task(work())
    assert heard == ["SIGINT"]


@pytest.mark.asyncio
async def test_cancellation_without_a_signal_is_passed_on() -> None:
    async def work() -> None:
        with Interrupts():
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.asyncio
async def test_a_handler_of_another_language_is_replaced_by_the_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ends = (*SIGNALS, signal.SIGHUP)
    before = {each: signal.getsignal(each) for each in ends}
    with monkeypatch.context() as patch:
        # Python cannot return a handler that a C program has installed.
        patch.setattr(signal, "getsignal", lambda _: None)
        interrupts = Interrupts()
        interrupts.__enter__()
    interrupts.__exit__(None, None, None)
    after = {each: signal.getsignal(each) for each in ends}
    for number, handler in before.items():
        signal.signal(number, handler)
    assert set(after.values()) == {signal.SIG_DFL}


def test_other_threads_get_no_signals() -> None:
    # As where a notebook's loop runs in the main thread.
    before = signal.getsignal(signal.SIGINT)

    async def work() -> str | None:
        with Interrupts() as interrupts:
            return interrupts.name

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(lambda: asyncio.run(work())).result() is None
    assert signal.getsignal(signal.SIGINT) == before
