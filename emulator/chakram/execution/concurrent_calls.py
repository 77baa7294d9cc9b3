"""Calls to many agents, with a limit on the number of calls at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar, cast

AT_ONCE = 32
"""Usual number of calls at the same time. With hundreds of them, the calls of one
process would delay each other until they time out."""

_T = TypeVar("_T")
_Result = TypeVar("_Result")


async def call_all(
    call: Callable[[_T], Awaitable[_Result]],
    items: Iterable[_T],
    *,
    at_once: int = AT_ONCE,
) -> list[_Result]:
    """Return the results of a call for each of *items*, in their order.

    After an error, no further call begins. Calls that have begun are not canceled,
    because an agent stays busy for a moment if its session is canceled at the start. If
    several calls fail, the order of the items decides which error is raised. The same
    mistake therefore always raises the same error.

    Args:
        call: Function to call with each item.
        items: Arguments of the calls.
        at_once: Maximum number of calls at the same time.

    Raises:
        Exception: The error of the first item whose call failed.
    """
    gate = asyncio.Semaphore(at_once)
    errors: dict[int, BaseException] = {}

    async def call_one(at: int, item: _T) -> _Result:
        async with gate:
            if errors:
                raise errors[min(errors)]
            try:
                return await call(item)
            except BaseException as error:
                errors[at] = error
                raise

    calls = (call_one(at, item) for at, item in enumerate(items))
    results = await asyncio.gather(*calls, return_exceptions=True)
    if errors:
        raise errors[min(errors)]
    return cast("list[_Result]", results)
