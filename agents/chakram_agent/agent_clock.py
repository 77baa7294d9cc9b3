"""The agent's clock in nanoseconds: the host's clock, or a wrong clock for tests.

Tests set ``CHAKRAM_TEST_CLOCK`` to ``OFFSET_S,PPM`` or ``OFFSET_S,PPM,STEP_S,AFTER_S``.
The agent's clock is then ahead of the host's clock by ``OFFSET_S``, and runs faster by
``PPM`` parts per million. It jumps by ``STEP_S`` after ``AFTER_S`` seconds.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from chakram.control.clock_name import host_clock

TEST_CLOCK = "CHAKRAM_TEST_CLOCK"
_BEGAN = "CHAKRAM_TEST_CLOCK_BEGAN"
"""Environment variable with the time of the host's clock at which the agent began. The
data-plane processes inherit it."""


def wrong_clock(
    text: str, began_ns: int, now_ns: Callable[[], int] = time.monotonic_ns
) -> Callable[[], int]:
    """Return a clock with the errors that *text* specifies.

    Args:
        text: Value of ``CHAKRAM_TEST_CLOCK``.
        began_ns: Time of the correct clock at which the drift and the delay of the step
            begin.
        now_ns: Function that returns the time of the correct clock.
    """
    offset_s, ppm, step_s, after_s = (*map(float, text.split(",")), 0.0, 0.0)[:4]
    offset_ns, step_ns = round(offset_s * 1e9), round(step_s * 1e9)
    after_ns = round(after_s * 1e9)

    def wrong_ns() -> int:
        right_ns = now_ns()
        elapsed_ns = right_ns - began_ns
        drifted_ns = right_ns + offset_ns + round(elapsed_ns * ppm * 1e-6)
        return drifted_ns + (step_ns if elapsed_ns >= after_ns else 0)

    return wrong_ns


def clock_name() -> str:
    """Return a name for this clock. Equal names mean the same clock."""
    wrong = os.environ.get(TEST_CLOCK, "")
    return f"{host_clock()} {wrong}".strip() if wrong else host_clock()


def _clock() -> Callable[[], int]:
    text = os.environ.get(TEST_CLOCK)
    if not text:
        return time.monotonic_ns
    began_ns = int(os.environ.setdefault(_BEGAN, str(time.monotonic_ns())))
    return wrong_clock(text, began_ns)


monotonic_ns = _clock()
"""Return the time of the agent's clock in nanoseconds. It never goes backward."""
