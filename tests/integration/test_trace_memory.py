"""Memory per node of a trace is small."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.big_traces import usage_of, write_big_trace

MOST_BYTES_PER_NODE = 300
"""Columns and edges take about 130, a name and its place 55, the matching of one rank,
or the merged graph of several, the rest."""


@pytest.mark.slow
@pytest.mark.parametrize("nranks", [pytest.param(1, marks=pytest.mark.soak), 4])
def test_node_needs_less_memory_than_its_record_in_the_file(
    tmp_path: Path, nranks: int
) -> None:
    for name, nodes in (("small", 1_000), ("large", 61_000)):
        (tmp_path / name).mkdir()
        write_big_trace(tmp_path / name / "w.0.et", nodes)
        for rank in range(1, nranks):
            (tmp_path / name / f"w.{rank}.et").hardlink_to(tmp_path / name / "w.0.et")
    few = usage_of(["trace", "lint", tmp_path / "small"])
    many = usage_of(["trace", "lint", tmp_path / "large"])
    assert (few.exit_code, many.exit_code) == (0, 0)
    bytes_per_node = (many.peak_mib - few.peak_mib) * 2**20 / 60_000 / nranks
    print(f"{nranks} ranks: {bytes_per_node:.0f} bytes per node")  # noqa: T201
    assert bytes_per_node < MOST_BYTES_PER_NODE
