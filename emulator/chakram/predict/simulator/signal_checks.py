"""Where compiled loops let signals in.

Python handles a signal when it enters or loops in a function that is not compiled, so
this module stays so: a compiled loop that calls nothing else would run to its end.
"""

from __future__ import annotations

from typing import Final

EVENTS_PER_SIGNALS: Final = 1 << 14
"""Events between two calls: about ten milliseconds."""


def let_signals_in() -> None:
    """Return; Python handles pending signals on entry, which may raise."""
