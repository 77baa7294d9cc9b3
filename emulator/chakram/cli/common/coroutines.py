"""Execution of coroutines by verbs, which import asyncio only then."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

_Result = TypeVar("_Result")


def run_coroutine(coroutine: Coroutine[Any, Any, _Result]) -> _Result:
    """Execute a coroutine in a new event loop, and return its result."""
    import asyncio

    return asyncio.run(coroutine)
