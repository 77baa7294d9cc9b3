"""Numbers in tables."""

from __future__ import annotations

import pytest

from chakram.console.number_format import (
    microseconds_text,
    percent_text,
    time_text,
)


@pytest.mark.parametrize(
    ("time_ns", "text"),
    [
        (None, "N/A"),
        (0, "0.00"),
        (1_234, "1.23"),
        # About five digits: two behind the point below 1 ms, one below 10 ms.
        (999_984, "999.98"),
        (1_000_000, "1000.0"),
        (9_999_940, "9999.9"),
        (10_000_000, "10000"),
        (123_456_789, "123457"),
    ],
)
def test_nccl_times_are_microseconds_of_about_five_digits(
    time_ns: float | None, text: str
) -> None:
    assert microseconds_text(time_ns) == text


@pytest.mark.parametrize(
    ("time_ns", "text"),
    [
        (None, "N/A"),
        (0, "0 ns"),
        (999, "999 ns"),
        (999.96, "1.000 us"),
        (1_234, "1.234 us"),
        (12_345, "12.35 us"),
        (999_949, "999.9 us"),
        (999_960, "1.000 ms"),
        (9_999_600, "10.00 ms"),
        (3_928_997_000, "3.929 s"),
        (-1_500_000, "-1.500 ms"),
        (7_200 * 10**9, "7200.0 s"),
    ],
)
def test_times_have_four_digits_and_a_suitable_unit(
    time_ns: float | None, text: str
) -> None:
    assert time_text(time_ns) == text


@pytest.mark.parametrize(
    ("share", "sign", "text"),
    [
        (None, "", "N/A"),
        (None, "+", "N/A"),
        (0.1234, "", "12.3"),
        (0.1234, "+", "+12.3"),
        (-0.5, "+", "-50.0"),
        (-0.0004, "", "0.0"),
        (-0.0004, "+", "+0.0"),
        (1, "", "100.0"),
    ],
)
def test_shares_are_percent(share: float | None, sign: str, text: str) -> None:
    assert percent_text(share, sign) == text
