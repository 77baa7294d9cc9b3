"""Shared constants."""

from __future__ import annotations

import pytest

from chakram.roce.constants import NEVER, local_ack_timeout_ns


@pytest.mark.parametrize(
    ("exponent", "timeout_ns"),
    [(0, NEVER), (1, 8_192), (14, 67_108_864), (20, 4_294_967_296)],
)
def test_local_ack_timeout_follows_the_specification(
    exponent: int, timeout_ns: int
) -> None:
    assert local_ack_timeout_ns(exponent) == timeout_ns


@pytest.mark.parametrize("exponent", [-1, 32])
def test_a_timeout_has_five_bits(exponent: int) -> None:
    with pytest.raises(ValueError, match="not in 0"):
        local_ack_timeout_ns(exponent)
