"""Number formats of the tables of a run."""

from __future__ import annotations

MISSING = "N/A"


def time_text(time_ns: float | None) -> str:
    """Return a time in microseconds with about five digits."""
    if time_ns is None:
        return MISSING
    time_us = time_ns / 1000
    if time_us >= 10_000:
        return f"{time_us:.0f}"
    return f"{time_us:.1f}" if time_us >= 1000 else f"{time_us:.2f}"


def errors_text(errors: float | None) -> str:
    """Return a difference in standard errors; ``exact`` for exact times."""
    return MISSING if errors is None else "exact" if errors > 1e6 else f"{errors:.1f}"


def percent_text(share: float | None, sign: str = "") -> str:
    """Return a fraction as a percentage with one decimal digit."""
    return MISSING if share is None else f"{100 * share:{sign}.1f}"
