"""Execution of coroutines in a new event loop. The first call imports asyncio."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from chakram.foundation.errors import RunInterrupted

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

_Result = TypeVar("_Result")


def run_coroutine(coroutine: Coroutine[Any, Any, _Result]) -> _Result:
    """Execute a coroutine in a new event loop, and return its result.

    Raises:
        RunInterrupted: If the user interrupted the coroutine. Its threads may still
            read traces for minutes, so this function does not wait for them.
    """
    import asyncio

    with asyncio.Runner() as runner:
        try:
            return runner.run(coroutine)
        except RunInterrupted:
            from concurrent.futures import ThreadPoolExecutor

            runner.get_loop().set_default_executor(ThreadPoolExecutor())
            raise
