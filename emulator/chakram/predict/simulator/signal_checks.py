"""Signal handling in compiled loops.

Python handles a signal when it enters a function that is not compiled, or repeats a
loop in such a function. This module therefore must not be compiled. A compiled loop
that calls nothing else would block signals until it ends.
"""

from __future__ import annotations

from typing import Final

EVENTS_PER_SIGNALS: Final = 1 << 14
"""Number of events between two calls of ``let_signals_in``.

These events take about ten milliseconds.
"""


def let_signals_in() -> None:
    """Do nothing. On entry, Python calls pending signal handlers, which may raise."""
