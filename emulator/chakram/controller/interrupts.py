"""Ctrl-C and SIGTERM, for the length of a run."""

from __future__ import annotations

import asyncio
import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Interrupts", "interrupting_signals"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """Lets a signal end the current task in order.

    While ``listener`` is set, the first signal is told to it; without one, or the
    second time, the task is cancelled, which takes down whatever it had built.

    Attributes:
        name: The signal that came, None as long as none has.
        listener: Called with the name of the signal.
    """

    def __init__(self) -> None:
        self.name: str | None = None
        self.listener: Callable[[str], None] | None = None
        self._task: asyncio.Task[object] | None = None
        self._before: list[object] = []

    def __enter__(self) -> Self:
        self._task = asyncio.current_task()
        self._before = [signal.getsignal(number) for number in _SIGNALS]
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._come, number.name)
        return self

    def __exit__(self, *_: object) -> None:
        loop = asyncio.get_running_loop()
        for number, handler in zip(_SIGNALS, self._before, strict=True):
            loop.remove_signal_handler(number)
            signal.signal(number, handler)  # type: ignore[arg-type] # from getsignal

    def _come(self, name: str) -> None:
        first = self.name is None
        self.name = name
        if first and self.listener is not None:
            self.listener(name)
        elif self._task is not None:
            self._task.cancel()


@contextmanager
def interrupting_signals() -> Iterator[None]:
    """Raise KeyboardInterrupt with a signal's name, in what knows no event loop.

    Also where SIGINT was ignored, as it is for what a shell script starts with ``&``.
    Threads other than the main one get no signals: nothing changes for them.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def come(number: int, _: object) -> NoReturn:
        raise KeyboardInterrupt(signal.Signals(number).name)

    before = [signal.signal(number, come) for number in _SIGNALS]
    try:
        yield
    finally:
        for number, handler in zip(_SIGNALS, before, strict=True):
            # None stands for a handler that was not made by Python.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
