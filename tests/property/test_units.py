"""Text with units: exactly written values are read back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from chakram.foundation.units import (
    exact_byte_rate,
    exact_flops,
    exact_rate,
    exact_time,
    parse_byte_rate,
    parse_flops,
    parse_rate,
    parse_time,
)


@given(value=st.integers(0, 10**18))
def test_exactly_written_values_are_read_back(value: int) -> None:
    assert parse_time(exact_time(value), where="") == value
    assert parse_rate(exact_rate(value), where="") == value
    assert parse_byte_rate(exact_byte_rate(value), where="") == value
    assert parse_flops(exact_flops(value), where="") == value
