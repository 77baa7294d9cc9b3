"""Coroutines of verbs, and the threads that they leave behind."""

from __future__ import annotations

import asyncio
import threading

import pytest

from chakram.foundation.coroutines import run_coroutine
from chakram.foundation.errors import RunInterrupted


def test_an_interruption_does_not_wait_for_a_thread_that_computes() -> None:
    may_end, has_ended = threading.Event(), threading.Event()

    def compute() -> None:
        may_end.wait(2)
        has_ended.set()

    async def work() -> None:
        computing = asyncio.create_task(asyncio.to_thread(compute))
        await asyncio.sleep(0)
        raise RunInterrupted("run", f"interrupted by SIGINT in {computing}")

    try:
        with pytest.raises(RunInterrupted):
            run_coroutine(work())
        assert not has_ended.is_set()
    finally:
        may_end.set()
        has_ended.wait()


def test_a_result_comes_after_all_threads() -> None:
    may_end, has_ended = threading.Event(), threading.Event()

    def compute() -> None:
        may_end.wait()
        has_ended.set()

    async def work() -> str:
        computing = asyncio.create_task(asyncio.to_thread(compute))
        await asyncio.sleep(0)
        may_end.set()
        return f"left {computing.get_name()}"

    assert run_coroutine(work()).startswith("left")
    assert has_ended.is_set()
