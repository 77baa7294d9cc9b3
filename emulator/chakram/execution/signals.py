"""Signals that end a run: Ctrl-C, SIGTERM and a closed terminal."""

from __future__ import annotations

import errno
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from chakram.foundation.platform_support import module_or_none

_STANDARD_STREAMS = (1, 2)
SIGHUP: signal.Signals | None = getattr(signal, "SIGHUP", None)
"""The signal SIGHUP, or None on systems without this signal."""


def ending_signals() -> tuple[signal.Signals, ...]:
    """Return the signals that end a run, without SIGHUP under ``nohup``."""
    ends = (signal.SIGINT, signal.SIGTERM)
    if SIGHUP is None or signal.getsignal(SIGHUP) is signal.SIG_IGN:
        return ends
    return (*ends, SIGHUP)


def leave_terminal() -> None:
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
        if number == SIGHUP:
            leave_terminal()
        raise KeyboardInterrupt(signal.Signals(number).name)

    before = {number: signal.signal(number, come) for number in ending_signals()}
    try:
        yield
    finally:
        for number, handler in before.items():
            # None represents a handler that was not installed from Python.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
