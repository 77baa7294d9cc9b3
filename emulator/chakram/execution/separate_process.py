"""Calls in a separate process, which leave the event loop free."""

from __future__ import annotations

import asyncio
import os
import pickle
import sys
import traceback
from asyncio.subprocess import PIPE
from collections.abc import Callable
from typing import TypeVar

from chakram.foundation.errors import RunFailed

_T = TypeVar("_T")


async def apart(function: Callable[..., _T], *args: object) -> _T:
    """Call a function in a separate process, so that the event loop stays free.

    Processes of ``multiprocessing`` import the main script again. Without a guard, a
    script that starts a run would start another one there.

    Raises:
        RunFailed: If the process ends too early. Exceptions of *function* pass through.
    """
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", __name__, str(os.getpid())),
        stdin=PIPE,
        stdout=PIPE,
        # Ctrl-C signals only this process, which then ends the separate process.
        start_new_session=True,
    )
    try:
        call = pickle.dumps(sys.path) + pickle.dumps((function, args))
        answer, _ = await process.communicate(call)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    code = process.returncode
    if code:
        how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
        raise RunFailed("simulation", f"its process {how}")
    result: _T
    result, error = pickle.loads(answer)
    if error is not None:
        raise error
    return result


def _answer_call() -> None:
    """Read a call from standard input, and write its result to standard output."""
    with os.fdopen(os.dup(1), "wb") as output:
        os.dup2(2, 1)  # keep the function's output apart from the result
        sys.path[:] = pickle.load(sys.stdin.buffer)
        function, args = pickle.load(sys.stdin.buffer)
        result, error = None, None
        try:
            result = function(*args)
        except Exception as raised:  # noqa: BLE001 - the caller handles it
            raised.add_note(traceback.format_exc())
            error = raised
        pickle.dump((result, error), output)


if __name__ == "__main__":
    # Other systems import this module, but have no such signals.
    from chakram.fabric.process_control import die_with_parent

    die_with_parent(int(sys.argv[1]))
    _answer_call()
