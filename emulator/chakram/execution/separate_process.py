"""Calls in a separate process, which leave the event loop free."""

from __future__ import annotations

import asyncio
import multiprocessing
import signal
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from chakram.foundation.errors import RunFailed

_T = TypeVar("_T")


async def apart(function: Callable[..., _T], *args: object) -> _T:
    """Call a function in a separate process, so that the event loop stays free.

    Raises:
        RunFailed: If the process is killed. Exceptions of *function* pass through.
    """
    loop = asyncio.get_running_loop()
    # Spawn the process instead of forking it, because gRPC does not work after a fork.
    pool = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))
    try:
        # Ctrl-C signals this process, too, which then ends the other one.  The new
        # process inherits the mask.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            call = loop.run_in_executor(pool, function, *args)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return await call
    except BrokenProcessPool:
        raise RunFailed("simulation", "its process was killed") from None
    finally:
        for process in list((pool._processes or {}).values()):
            process.terminate()
        pool.shutdown(wait=True, cancel_futures=True)
