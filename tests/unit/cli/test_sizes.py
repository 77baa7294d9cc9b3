"""Sizes as tables show them."""

from __future__ import annotations

import pytest

from chakram.cli.sizes import about_size


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
def test_sizes_have_four_digits_and_the_unit_below(
    size_bytes: int, expected: str
) -> None:
    assert about_size(size_bytes) == expected
