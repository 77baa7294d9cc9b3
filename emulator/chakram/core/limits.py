"""How large quantities may be: far beyond any run, and safe to add up in 64 bits."""

from __future__ import annotations

__all__ = ["LARGEST_SIZE_BYTES", "LAST_INSTANT_NS", "LONGEST_TIME_NS"]

LARGEST_SIZE_BYTES = 1 << 50
"""1 PiB, of one message or buffer."""

LONGEST_TIME_NS = 10**15
"""Eleven days and a half, of one computation, delay or timer."""

LAST_INSTANT_NS = 4 * 10**18
"""126 years: where virtual time ends.  Thousands of the longest times fit between that
and the largest number of 64 bits."""
