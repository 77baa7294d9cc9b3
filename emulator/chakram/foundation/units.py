"""Parse and format sizes, rates and times with units.

Inside the program, every quantity is an integer whose name ends with its unit
(``_bytes``, ``_bps``, ``_ns``). Text with units exists only in experiment files, on the
command line and in tables.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction

from chakram.foundation.errors import ConfigError

# The number of digits is bounded, because the exact value of 1e999999999 would take
# minutes to compute.
_DIGITS = r"[0-9]{1,30}(?:\.[0-9]{1,30})?(?:[eE][+-]?[0-9]{1,2})?"
_NUMBER = re.compile(rf"\s*({_DIGITS})\s*([A-Za-z/]*)\s*\Z")
_RATIO = re.compile(rf"[+-]?{_DIGITS}(?:/[0-9]{{1,30}})?\Z")

_DECIMAL = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}

_LETTERS = "KMGT"

# A single letter means the same as in tools with similar options. It is a factor of
# 1024 for sizes, as in nccl-tests, and a factor of 1000 for rates, as in iperf3. Both
# tools also accept lowercase letters.
SIZE_UNITS: dict[str, int] = {
    **{f"{prefix}B": factor for prefix, factor in _DECIMAL.items()},
    **{f"{prefix}B": factor for prefix, factor in _BINARY.items()},
    **_BINARY,
    **{letter: _BINARY[f"{letter}i"] for letter in _LETTERS},
    **{letter.lower(): _BINARY[f"{letter}i"] for letter in _LETTERS},
}
# ``gbit`` is tc's notation. ``gbps`` is missing because it means bytes in tc.
RATE_UNITS: dict[str, int] = {
    **{f"{prefix}bit": factor for prefix, factor in _DECIMAL.items()},
    **{f"{prefix}bps": factor for prefix, factor in _DECIMAL.items()},
    **{f"{prefix}bit/s": factor for prefix, factor in _DECIMAL.items()},
    **{f"{prefix}b/s": factor for prefix, factor in _DECIMAL.items()},
    **{f"{letter.lower()}bit": _DECIMAL[letter] for letter in _LETTERS},
    **{f"{letter.lower()}bit/s": _DECIMAL[letter] for letter in _LETTERS},
    **{letter: _DECIMAL[letter] for letter in _LETTERS},
    **{letter.lower(): _DECIMAL[letter] for letter in _LETTERS},
}
TIME_UNITS: dict[str, int] = {
    "ns": 1,
    "us": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "min": 60 * 10**9,
    "h": 3600 * 10**9,
}
FLOPS_UNITS: dict[str, int] = {
    f"{prefix}FLOPS": factor
    for prefix, factor in {**_DECIMAL, "P": 10**15}.items()
    if prefix
}
BYTE_RATE_UNITS: dict[str, int] = {
    f"{prefix}B/s": factor for prefix, factor in _DECIMAL.items()
}

_ABOUT_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def _parse(
    text: str, *, units: dict[str, int], where: str, example: str, kind: str
) -> int:
    match = _NUMBER.match(text)
    if match is None:
        raise ConfigError(where, f"{text!r} is not a {kind}", f"e.g. {example}")
    number, unit = match.groups()
    if not unit:
        raise ConfigError(where, f"{text!r} has no unit", f"e.g. {example}")
    factor = units.get(unit)
    if factor is None:
        raise ConfigError(
            where, f"{text!r} has an unknown unit {unit!r}", f"e.g. {example}"
        )
    return round(Fraction(number) * factor)


def parse_size(text: str, *, where: str) -> int:
    """Return bytes from text such as ``64KiB`` or ``1MB``.

    Raises:
        ConfigError: At *where*, if the number or the unit is missing or invalid.
    """
    return _parse(text, units=SIZE_UNITS, where=where, example="64KiB", kind="size")


def parse_rate(text: str, *, where: str) -> int:
    """Return bits per second from text such as ``250Mbit`` or ``400Gbit``.

    Raises:
        ConfigError: At *where*, if the number or the unit is missing or invalid.
    """
    return _parse(text, units=RATE_UNITS, where=where, example="400Gbit", kind="rate")


def parse_time(text: str, *, where: str) -> int:
    """Return nanoseconds from text such as ``10us`` or ``1.5s``.

    Raises:
        ConfigError: At *where*, if the number or the unit is missing or invalid.
    """
    return _parse(text, units=TIME_UNITS, where=where, example="10us", kind="time")


def parse_time_unit(text: str, *, where: str) -> int:
    """Return nanoseconds from a positive time that has no fraction of a nanosecond.

    Such a time multiplies other times, so it must not be rounded.

    Raises:
        ConfigError: At *where*, if the text is not such a time.
    """
    time_ns = parse_time(text, where=where)
    match = _NUMBER.match(text)
    assert match is not None  # otherwise parse_time raises
    number, unit = match.groups()
    if time_ns < 1 or time_ns != Fraction(number) * TIME_UNITS[unit]:
        raise ConfigError(
            where,
            f"{text!r} is not a whole number of nanoseconds above 0",
            "use 1ns, and scale computation: compute.scale",
        )
    return time_ns


def parse_flops(text: str, *, where: str) -> int:
    """Return floating-point operations per second from text such as ``989 TFLOPS``.

    Raises:
        ConfigError: At *where*, if the number or the unit is missing or invalid.
    """
    return _parse(
        text, units=FLOPS_UNITS, where=where, example="989 TFLOPS", kind="compute rate"
    )


def parse_byte_rate(text: str, *, where: str) -> int:
    """Return bytes per second from text such as ``3.35 TB/s``.

    Raises:
        ConfigError: At *where*, if the number or the unit is missing or invalid.
    """
    return _parse(
        text, units=BYTE_RATE_UNITS, where=where, example="3.35 TB/s", kind="byte rate"
    )


def parse_fraction(text: str, *, where: str) -> Fraction:
    """Return a positive ratio from text such as ``1/64``, ``0.5`` or ``2``.

    Raises:
        ConfigError: At *where*, if the text is not a positive number.
    """
    compact = text.replace(" ", "")
    try:
        value = Fraction(compact) if _RATIO.match(compact) else None
    except (ValueError, ZeroDivisionError):
        value = None
    if value is None:
        raise ConfigError(where, f"{text!r} is not a ratio", "e.g. 1/64")
    if value <= 0:
        raise ConfigError(where, f"{text!r} is not positive", "e.g. 1/64")
    return value


def format_size(size_bytes: int) -> str:
    """Return a size in the largest binary unit that divides it, e.g. ``64KiB``."""
    units = (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))
    for unit, factor in units:
        if size_bytes and size_bytes % factor == 0:
            return f"{size_bytes // factor}{unit}"
    return f"{size_bytes}B"


def exact_time(time_ns: int) -> str:
    """Return the exact time in the usual notation, e.g. ``1h`` or ``4.096us``."""
    for unit in ("h", "min"):
        if time_ns and time_ns % TIME_UNITS[unit] == 0:
            return f"{time_ns // TIME_UNITS[unit]}{unit}"
    return _exact(time_ns, TIME_UNITS, ("s", "ms", "us", "ns"))


def exact_rate(rate_bps: int) -> str:
    """Return the exact rate in the usual notation, e.g. ``1.5Gbit``."""
    return _exact(rate_bps, RATE_UNITS, ("Tbit", "Gbit", "Mbit", "kbit", "bit"))


def exact_flops(rate: int) -> str:
    """Return the exact compute rate in the usual notation, e.g. ``989TFLOPS``."""
    units = ("PFLOPS", "TFLOPS", "GFLOPS", "MFLOPS", "kFLOPS")
    return _exact(rate, FLOPS_UNITS, units)


def exact_byte_rate(rate: int) -> str:
    """Return the exact byte rate in the usual notation, e.g. ``3.35TB/s``."""
    return _exact(rate, BYTE_RATE_UNITS, ("TB/s", "GB/s", "MB/s", "kB/s", "B/s"))


def _exact(value: int, factors: dict[str, int], units: tuple[str, ...]) -> str:
    """Return *value* in the first of *units* that it reaches, or else in the last."""
    unit = next((each for each in units if value >= factors[each]), units[-1])
    whole, rest = divmod(value, factors[unit])
    # All factors are powers of ten.
    decimals = f"{rest:0{len(str(factors[unit])) - 1}}".rstrip("0") if rest else ""
    return f"{whole}.{decimals}{unit}" if decimals else f"{whole}{unit}"


def about_size(size_bytes: int) -> str:
    """Return a size with four significant digits, in the largest unit it reaches.

    ``format_size`` is exact and prints 4000MiB and 131200KiB, which are hard to compare
    in a column of sizes. This function prints 3.906GiB and 128.1MiB.
    """
    number = min(max(size_bytes.bit_length() - 1, 0) // 10, len(_ABOUT_UNITS) - 1)
    value = size_bytes / 1024**number
    # The format ``g`` would print large numbers with an exponent.
    shown = f"{value:.4g}" if value < 1000 else f"{value:.0f}"
    return f"{shown}{_ABOUT_UNITS[number]}"


def format_rate(rate_bps: float) -> str:
    """Return a rate with three significant digits, e.g. ``250Mbit/s``."""
    return three_digits(rate_bps, ("bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"))


def format_time(time_ns: float) -> str:
    """Return a time with three significant digits, e.g. ``1.25ms``."""
    return three_digits(time_ns, ("ns", "us", "ms", "s"))


def three_digits(value: float, units: Sequence[str]) -> str:
    """Return *value* with three digits, without an exponent.

    Each of *units* is a thousand times the previous unit. The first is the unit of
    *value*.
    """
    size = 0
    # From 999.5 on, rounding to three digits gives 1000.
    while abs(value) >= 999.5 and size < len(units) - 1:
        value /= 1000
        size += 1
    text = f"{value:.3g}" if abs(value) < 999.5 else f"{value:.0f}"
    return f"{text}{units[size]}"


def format_share(share: float) -> str:
    """Return a fraction in percent, e.g. ``1.00%``, and ``0.0005%`` if it is small."""
    return f"{share:.2%}" if not 0 < share < 1e-4 else f"{100 * share:.3g}%"


LARGEST_SIZE_BYTES = 1 << 50
"""Maximum size of one message or buffer: 1 PiB."""

LONGEST_TIME_NS = 10**15
"""Maximum duration of one computation, delay or timer: eleven and a half days."""

LAST_INSTANT_NS = 4 * 10**18
"""End of virtual time: 126 years. Thousands of the longest times fit between this time
and the largest 64-bit number."""
