"""Memory follows the nodes of a trace, and not by much."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.big_traces import usage_of, write_big_trace

MOST_BYTES_PER_NODE = 300
"""Columns and edges take about 130, a name and its place 55, the matching the rest."""


@pytest.mark.slow
def test_a_node_takes_less_memory_than_its_record_in_the_file(tmp_path: Path) -> None:
    small, large = tmp_path / "small.0.et", tmp_path / "large.0.et"
    write_big_trace(small, 1_000)
    write_big_trace(large, 61_000)
    few, many = usage_of(["trace", "lint", small]), usage_of(["trace", "lint", large])
    assert (few.exit_code, many.exit_code) == (0, 0)
    bytes_per_node = (many.peak_mib - few.peak_mib) * 2**20 / 60_000
    assert bytes_per_node < MOST_BYTES_PER_NODE
