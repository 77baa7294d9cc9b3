"""Ctrl-C and SIGTERM, for the length of a run."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Interrupts"]

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
