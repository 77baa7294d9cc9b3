"""How much benchmarks measure: in full, or once and briefly.

``CHAKRAM_BENCH=brief`` makes every benchmark do its work once, with small sizes and
without limits: that shows that it runs, and takes seconds. Measuring processes inherit
it.
"""

from __future__ import annotations

import math
import os
from typing import TypeVar

__all__ = ["BRIEF", "IS_BRIEF", "at_least", "at_most", "sized"]

BRIEF = {"CHAKRAM_BENCH": "brief"}
IS_BRIEF = os.environ.get("CHAKRAM_BENCH") == BRIEF["CHAKRAM_BENCH"]

_Size = TypeVar("_Size")


def sized(full: _Size, brief: _Size) -> _Size:
    """Return the size of a benchmark."""
    return brief if IS_BRIEF else full


def at_most(limit: float) -> float:
    """Return the limit that a measurement must not exceed; infinite if brief."""
    return math.inf if IS_BRIEF else limit


def at_least(limit: float) -> float:
    """Return the limit that a measurement must reach; 0 if brief."""
    return 0.0 if IS_BRIEF else limit
