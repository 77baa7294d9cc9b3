"""Traces as large as real ones become."""

from __future__ import annotations

from pathlib import Path

from tests.big_traces import usage_of, write_big_trace


def test_two_million_nodes_are_linted_within_600_megabytes(tmp_path: Path) -> None:
    path = tmp_path / "big.0.et"
    write_big_trace(path, 2_000_000)
    used = usage_of(["trace", "lint", path])
    print(f"\npeak {used.peak_mib:.0f} MiB, {used.processor_s:.1f} s")  # noqa: T201
    assert used.exit_code == 0
    assert used.peak_mib * 2**20 < 600 * 10**6


def test_eight_ranks_of_half_a_million_nodes_are_linted_within_1300_megabytes(
    tmp_path: Path,
) -> None:
    write_big_trace(tmp_path / "big.0.et", 500_000)
    for rank in range(1, 8):
        (tmp_path / f"big.{rank}.et").hardlink_to(tmp_path / "big.0.et")
    used = usage_of(["trace", "lint", tmp_path])
    print(f"\npeak {used.peak_mib:.0f} MiB, {used.processor_s:.1f} s")  # noqa: T201
    assert used.exit_code == 0
    assert used.peak_mib * 2**20 < 1_300 * 10**6
