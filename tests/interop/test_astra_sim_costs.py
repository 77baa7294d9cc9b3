"""Our model of ASTRA-sim's analytical networks, compared with its output."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

import pytest

from chakram.collectives.algorithms import algorithm
from chakram.collectives.ops import CollectiveOp
from chakram.predict.levels.cost_models import AstraSimDivision, AstraSimTimes
from chakram.predict.levels.message_level import MessageLevel
from tests.level_networks import fully_connected, ring, star
from tests.level_runs import run_collective

NETWORKS = {"Switch": star, "Ring": ring, "FullyConnected": fully_connected}
ALGORITHMS = {
    "ring": "ring",
    "direct": "direct",
    "halvingDoubling": "halving_doubling",
    "doubleBinaryTree": "binary_tree",
}
BACKENDS = {"congestion_aware": True, "congestion_unaware": False}
GIB = 1 << 30
ROWS = 1812
"""Of both analytical backends."""


def finish_ns(row: Mapping[str, str]) -> int:
    """Return our time for a row of the reference."""
    nranks = int(row["npus"])
    network = NETWORKS[row["topology"]](
        nranks,
        rate_bps=round(float(row["bandwidth_GBps"]) * GIB * 8),
        delay_ns=int(float(row["latency_ns"])),
    )
    level = MessageLevel(network, AstraSimTimes(is_shared=BACKENDS[row["backend"]]))
    run_collective(
        level,
        algorithm(CollectiveOp(row["collective"]), ALGORITHMS[row["algorithm"]]),
        nranks=nranks,
        input_bytes=int(row["size_bytes"]),
        division=AstraSimDivision(parts=int(row["chunks"])),
    )
    return level.now_ns


@pytest.fixture(scope="module")
def rows(chakram_data: Path) -> list[dict[str, str]]:
    with open(chakram_data / "reference" / "astra-sim.csv", newline="") as file:
        return [row for row in csv.DictReader(file) if row["backend"] in BACKENDS]


def test_every_analytical_row_is_compared_with_our_times(
    rows: list[dict[str, str]],
) -> None:
    assert len(rows) == ROWS
    assert {row["topology"] for row in rows} == set(NETWORKS)
    assert {row["algorithm"] for row in rows} == set(ALGORITHMS)


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("topology", NETWORKS)
def test_every_row_equals_our_time_to_the_nanosecond(
    rows: list[dict[str, str]], backend: str, topology: str
) -> None:
    own = [
        row for row in rows if (row["backend"], row["topology"]) == (backend, topology)
    ]
    others = [
        (row, found_ns)
        for row in own
        if (found_ns := finish_ns(row)) != int(row["finish_ns"])
    ]
    assert own
    assert others == []
