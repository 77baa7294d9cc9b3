"""Predictions of labs compared with measurements on two idle cores.

Medians of ten runs, of five, and means of two: what a run is predicted to take follows
from how a kernel queues, drops and lets pass, so these figures are other people's only
as far as their kernels are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from chakram import simulate
from tests.support import REPO_ROOT

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("config", "measured_us"),
    [
        (
            "quickstart",
            {"8 MiB ring": 1_262_000, "4 MiB ring": 1_193_000, "4 MiB direct": 241_500},
        ),
        ("moe-mix", {"2 MiB ring": 1_520_000, "0.5 MiB direct": 176_000}),
    ],
)
def test_collectives_take_their_measured_time(
    config: str, measured_us: dict[str, int], tmp_path: Path
) -> None:
    results = simulate(REPO_ROOT / f"configs/{config}.yaml", runs=tmp_path)
    times: dict[str, list[int]] = {}
    for each in results.table(
        "collectives", "measured", "algorithm", "size_bytes", "duration_ns"
    ).to_pylist():
        if each["measured"] and each["size_bytes"]:
            key = f"{each['size_bytes'] / 2**20:g} MiB {each['algorithm']}"
            times.setdefault(key, []).append(each["duration_ns"])
    assert {
        key: sum(found) / len(found) / 1e3 for key, found in times.items()
    } == pytest.approx(measured_us, rel=0.05)


def test_incast_loses_the_measured_share(tmp_path: Path) -> None:
    results = simulate(
        REPO_ROOT / "configs/incast.yaml",
        set={"fabric.links.host.queue": "64KiB"},
        runs=tmp_path,
    )
    flows = [
        each
        for each in results.table(
            "flows", "measured", "bytes", "fct_ns", "retransmitted"
        ).to_pylist()
        if each["measured"] and each["bytes"]
    ]
    mean_ns = sum(each["fct_ns"] for each in flows) / len(flows)
    assert mean_ns == pytest.approx(259e6, rel=0.15)
    again = sum(each["retransmitted"] for each in flows)
    assert again == pytest.approx(26_600, rel=0.25)
