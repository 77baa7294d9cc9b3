"""One call for each of many agents, a few at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

AT_ONCE = 32
"""Usual number of calls at the same time. With hundreds of them, the calls of one
process would delay each other until they time out."""

_T = TypeVar("_T")
_Result = TypeVar("_Result")


async def call_all(
    call: Callable[[_T], Awaitable[_Result]],
    items: Iterable[_T],
    *,
    name: str,
    at_once: int = AT_ONCE,
) -> list[_Result]:
    """Return the results of a call for each of *items*, in their order.

    Args:
        call: Called with an item.
        items: The items.
        name: Name of the tasks.
        at_once: Maximum number of calls at the same time.

    Raises:
        Exception: The first error of a call. The other calls are canceled.
    """
    gate = asyncio.Semaphore(at_once)

    async def call_one(item: _T) -> _Result:
        async with gate:
            return await call(item)

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(call_one(each), name=name) for each in items]
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]
