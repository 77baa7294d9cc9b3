"""Handling of Ctrl-C, SIGTERM and a closed terminal during a run."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn, Self

from chakram.foundation.errors import RunInterrupted
from chakram.foundation.platform_support import module_or_none

_STANDARD_STREAMS = (1, 2)
_SIGHUP: signal.Signals | None = getattr(signal, "SIGHUP", None)
"""The signal SIGHUP, or None on systems without this signal."""


def _signals() -> tuple[signal.Signals, ...]:
    """Return the signals that end a run, without SIGHUP under ``nohup``."""
    ends = (signal.SIGINT, signal.SIGTERM)
    if _SIGHUP is None or signal.getsignal(_SIGHUP) is signal.SIG_IGN:
        return ends
    return (*ends, _SIGHUP)


def _leave_terminal() -> None:
    """Discard output to a terminal that has been closed.

    Otherwise, printing the first message about the interruption would raise an error.
    """
    termios = module_or_none("termios")
    for stream in _STANDARD_STREAMS:
        try:
            termios.tcgetattr(stream)
        except termios.error as error:
            if error.args[0] == errno.EIO:
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, stream)
                os.close(nowhere)


class Interrupts:
    """Context manager that ends the current task cleanly when a signal arrives.

    While ``listener`` is set, the first signal calls it. Without a listener, or on the
    second signal, the task is canceled and cleans up. Only the main thread gets
    signals. In other threads, this context manager does nothing.

    Args:
        what: The interrupted activity, for the error message.

    Attributes:
        name: Name of the signal, or None until a signal arrives.
        listener: Called with the name of the signal.

    Raises:
        RunInterrupted: On exit, if a signal canceled the task.
    """

    def __init__(self, what: str = "run") -> None:
        self._what = what
        self.name: str | None = None
        self.listener: Callable[[str], None] | None = None
        self._task: asyncio.Task[object] | None = None
        self._before: dict[signal.Signals, object] = {}

    def __enter__(self) -> Self:
        self._task = asyncio.current_task()
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.getsignal(number) for number in _signals()}
        loop = asyncio.get_running_loop()
        for number in self._before:
            loop.add_signal_handler(number, self._come, number.name)
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        loop = asyncio.get_running_loop()
        for number, handler in self._before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)  # type: ignore[arg-type] # from getsignal
        if isinstance(error, asyncio.CancelledError) and self.name is not None:
            raise RunInterrupted(self._what, f"interrupted by {self.name}") from None

    def _come(self, name: str) -> None:
        if _SIGHUP is not None and name == _SIGHUP.name:
            _leave_terminal()
        first = self.name is None
        self.name = name
        if first and self.listener is not None:
            self.listener(name)
        elif self._task is not None:
            self._task.cancel()


@contextmanager
def interrupting_signals() -> Iterator[None]:
    """Raise KeyboardInterrupt with the name of a signal, in code without an event loop.

    SIGINT also raises it if this signal was ignored, as in a command that a shell
    script starts with ``&``. Only the main thread gets signals. In other threads, this
    function does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def come(number: int, _: object) -> NoReturn:
        if number == _SIGHUP:
            _leave_terminal()
        raise KeyboardInterrupt(signal.Signals(number).name)

    before = {number: signal.signal(number, come) for number in _signals()}
    try:
        yield
    finally:
        for number, handler in before.items():
            # None represents a handler that was not installed from Python.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
