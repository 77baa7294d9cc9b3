"""Conversion between texts with units and integers."""

from __future__ import annotations

from fractions import Fraction

import pytest

from chakram.foundation.errors import ConfigError
from chakram.foundation.units import (
    about_size,
    exact_byte_rate,
    exact_flops,
    exact_rate,
    exact_time,
    format_rate,
    format_share,
    format_size,
    format_time,
    parse_byte_rate,
    parse_flops,
    parse_fraction,
    parse_rate,
    parse_size,
    parse_time,
    parse_time_unit,
)


@pytest.mark.parametrize(
    ("parse", "text", "wanted"),
    [
        (parse_size, "64KiB", 65_536),
        (parse_size, " 1.5 MB ", 1_500_000),
        (parse_size, "0B", 0),
        # A letter alone: 1024 in sizes as in nccl-tests, 1000 in rates as in iperf3.
        (parse_size, "64K", 65_536),
        (parse_size, "1M", 2**20),
        (parse_size, "8g", 2**33),
        (parse_size, "64KB", 64_000),
        (parse_size, "1Ti", 2**40),
        (parse_rate, "25G", 25 * 10**9),
        (parse_rate, "100m", 10**8),
        (parse_rate, "25gbit", 25 * 10**9),
        (parse_rate, "1kbit/s", 1000),
        (parse_rate, "250Mbit", 250_000_000),
        (parse_rate, "400Gbit/s", 400 * 10**9),
        (parse_rate, "1e2 bps", 100),
        (parse_time, "10us", 10_000),
        (parse_time_unit, "0.5us", 500),
        (parse_time, "1.5s", 1_500_000_000),
        (parse_time, "2min", 120 * 10**9),
        (parse_flops, "989 TFLOPS", 989 * 10**12),
        (parse_byte_rate, "3.35 TB/s", 3_350 * 10**9),
    ],
)
def test_units_are_understood(parse, text: str, wanted: int) -> None:
    assert parse(text, where="x") == wanted


@pytest.mark.parametrize(
    ("parse", "text", "wanted"),
    [
        (parse_rate, "400", "x: '400' has no unit (e.g. 400Gbit)"),
        (parse_size, "4KB/s", "x: '4KB/s' has an unknown unit 'KB/s' (e.g. 64KiB)"),
        # Bytes to tc and to people, respectively.
        (parse_rate, "1gbps", "x: '1gbps' has an unknown unit 'gbps' (e.g. 400Gbit)"),
        (parse_rate, "1GBps", "x: '1GBps' has an unknown unit 'GBps' (e.g. 400Gbit)"),
        (parse_time, "soon", "x: 'soon' is not a time (e.g. 10us)"),
        (parse_time_unit, "soon", "x: 'soon' is not a time (e.g. 10us)"),
        *(
            (
                parse_time_unit,
                text,
                f"x: {text!r} is not a whole number of nanoseconds above 0 "
                "(use 1ns, and scale computation: compute.scale)",
            )
            for text in ("0ns", "0.7ns", "1.0005us")
        ),
        (parse_time, "-1s", "x: '-1s' is not a time (e.g. 10us)"),
        (parse_size, "1e999999999B", "x: '1e999999999B' is not a size (e.g. 64KiB)"),
    ],
)
def test_invalid_units_are_reported(parse, text: str, wanted: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text, where="x")
    assert str(caught.value) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("1/64", Fraction(1, 64)), ("0.5", Fraction(1, 2)), (" 2 ", Fraction(2))],
)
def test_ratios_are_parsed(text: str, wanted: Fraction) -> None:
    assert parse_fraction(text, where="x") == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("half", "is not a ratio"),
        ("1/0", "is not a ratio"),
        ("1e999999999", "is not a ratio"),
        ("1/2/3", "is not a ratio"),
        ("0", "is not positive"),
        ("-1/2", "is not positive"),
    ],
)
def test_invalid_ratio_is_reported(text: str, wanted: str) -> None:
    with pytest.raises(ConfigError, match=wanted):
        parse_fraction(text, where="x")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (format_size(65_536), "64KiB"),
        (format_size(3 * 2**20), "3MiB"),
        (format_size(2**30), "1GiB"),
        (format_size(1000), "1000B"),
        (format_size(0), "0B"),
        (format_rate(250e6), "250Mbit/s"),
        (format_rate(1.5e12), "1.5Tbit/s"),
        (format_rate(1234), "1.23kbit/s"),
        (format_rate(12), "12bit/s"),
        (format_time(1_250_000), "1.25ms"),
        (format_time(2e9), "2s"),
        (format_time(-1500), "-1.5us"),
        (format_time(15), "15ns"),
        (format_time(999_499), "999us"),
        (format_time(999_600), "1ms"),
        (format_time(-999_600), "-1ms"),
        (format_time(3.6e12), "3600s"),
        (format_rate(999.6e9), "1Tbit/s"),
        (format_rate(1.2e15), "1200Tbit/s"),
    ],
)
def test_quantities_are_written_with_units(text: str, wanted: str) -> None:
    assert text == wanted


@pytest.mark.parametrize(
    ("size_bytes", "expected"),
    [
        (0, "0B"),
        (1, "1B"),
        (1000, "1000B"),
        (1023, "1023B"),
        (1024, "1KiB"),
        (65_536, "64KiB"),
        (131_200 * 2**10, "128.1MiB"),
        (4000 * 2**20, "3.906GiB"),
        (1010 * 2**20, "1010MiB"),
        (2**30 - 1, "1024MiB"),
        (2**63, "8192PiB"),
    ],
)
def test_sizes_in_tables_have_four_digits_and_the_unit_below(
    size_bytes: int, expected: str
) -> None:
    assert about_size(size_bytes) == expected


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (exact_time(3600 * 10**9), "1h"),
        (exact_time(600 * 10**9), "10min"),
        (exact_time(100 * 10**9), "100s"),
        (exact_time(67_108_864), "67.108864ms"),
        (exact_time(4096), "4.096us"),
        (exact_time(1_000_000_001), "1.000000001s"),
        (exact_time(999), "999ns"),
        (exact_time(0), "0ns"),
        (exact_rate(400 * 10**9), "400Gbit"),
        (exact_rate(1_500_000), "1.5Mbit"),
        (exact_rate(7), "7bit"),
        (exact_flops(989 * 10**12), "989TFLOPS"),
        (exact_byte_rate(3_350 * 10**9), "3.35TB/s"),
    ],
)
def test_limits_are_written_exactly(text: str, wanted: str) -> None:
    assert text == wanted


@pytest.mark.parametrize(
    ("share", "wanted"),
    [
        (0, "0.00%"),
        (1, "100.00%"),
        (0.0125, "1.25%"),
        (1e-4, "0.01%"),
        (9.9e-5, "0.0099%"),
        (1e-5, "0.001%"),
        (2.5e-9, "2.5e-07%"),
    ],
)
def test_small_shares_are_not_shown_as_zero(share: float, wanted: str) -> None:
    assert format_share(share) == wanted
