"""Handling of Ctrl-C, SIGTERM and a closed terminal in an event loop."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Self

from chakram.execution.signals import SIGHUP, ending_signals, leave_terminal
from chakram.foundation.errors import RunInterrupted

_Handler = Callable[[int, FrameType | None], object] | int | None


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
        self.listener: Callable[[str], object] | None = None
        self._task: asyncio.Task[object] | None = None
        self._before: dict[signal.Signals, _Handler] = {}

    def __enter__(self) -> Self:
        self._task = asyncio.current_task()
        if threading.current_thread() is threading.main_thread():
            self._before = {each: signal.getsignal(each) for each in ending_signals()}
        loop = asyncio.get_running_loop()
        for number in self._before:
            loop.add_signal_handler(number, self._come, number.name)
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        loop = asyncio.get_running_loop()
        for number, handler in self._before.items():
            loop.remove_signal_handler(number)
            # None represents a handler that was not installed from Python.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        if isinstance(error, asyncio.CancelledError) and self.name is not None:
            raise RunInterrupted(self._what, f"interrupted by {self.name}") from None

    @contextmanager
    def heard_by(self, listener: Callable[[str], object]) -> Iterator[None]:
        """Pass the first signal to *listener* during the block.

        Raises:
            RunInterrupted: If a signal has already arrived. An earlier listener may
                have received it too late.
        """
        if self.name is not None:
            raise RunInterrupted(self._what, f"interrupted by {self.name}")
        self.listener = listener
        try:
            yield
        finally:
            self.listener = None

    def _come(self, name: str) -> None:
        if SIGHUP is not None and name == SIGHUP.name:
            leave_terminal()
        first = self.name is None
        self.name = name
        if first and self.listener is not None:
            self.listener(name)
        elif self._task is not None:
            self._task.cancel()
