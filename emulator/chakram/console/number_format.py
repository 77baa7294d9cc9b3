"""Number formats of the tables of a run."""

from __future__ import annotations

MISSING = "N/A"

_UNITS = ((1e9, "s"), (1e6, "ms"), (1e3, "us"))


def time_text(time_ns: float | None) -> str:
    """Return a time with four digits and a unit that suits it, e.g. ``3.929 s``."""
    if time_ns is None:
        return MISSING
    for unit_ns, unit in _UNITS:
        # 999.96 us would be printed as 1000.0 us.
        if abs(time_ns) >= 0.99995 * unit_ns:
            number = time_ns / unit_ns
            digits = 3 if abs(number) < 9.9995 else 2 if abs(number) < 99.995 else 1
            return f"{number:.{digits}f} {unit}"
    return f"{time_ns:.0f} ns"


def microseconds_text(time_ns: float | None) -> str:
    """Return a time in microseconds with about five digits, as nccl-tests prints it."""
    if time_ns is None:
        return MISSING
    time_us = time_ns / 1000
    if time_us >= 10_000:
        return f"{time_us:.0f}"
    return f"{time_us:.1f}" if time_us >= 1000 else f"{time_us:.2f}"


def errors_text(errors: float | None) -> str:
    """Return a difference in standard errors, or ``exact`` for exact times."""
    return MISSING if errors is None else "exact" if errors > 1e6 else f"{errors:.1f}"


def percent_text(share: float | None, sign: str = "") -> str:
    """Return a fraction as a percentage with one decimal digit, without -0.0."""
    return MISSING if share is None else f"{100 * share:{sign}z.1f}"


def variation_text(cv: float | None) -> str:
    """Return a coefficient of variation as the end of a list, empty if unknown."""
    return "" if cv is None else f", CV {100 * cv:.1f} %"


def counted_text(count: int, noun: str) -> str:
    """Return a number and a noun, with -s in the plural."""
    return f"{count} {noun}{'' if count == 1 else 's'}"
