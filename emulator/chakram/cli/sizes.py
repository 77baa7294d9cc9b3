"""Sizes in tables for people; ``--json`` has them exactly."""

from __future__ import annotations

__all__ = ["about_size"]

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def about_size(size_bytes: int) -> str:
    """Return a size with four significant digits, in the unit nearest below it.

    ``units.format_size`` is exact, hence 4000MiB beside 131200KiB: in a column of
    sizes such numbers cannot be compared at a glance.  These are 3.906GiB and 128.1MiB.
    """
    number = min(max(size_bytes.bit_length() - 1, 0) // 10, len(_UNITS) - 1)
    value = size_bytes / 1024**number
    # Four digits before the point are not to turn into an exponent.
    shown = f"{value:.4g}" if value < 1000 else f"{value:.0f}"
    return f"{shown}{_UNITS[number]}"
