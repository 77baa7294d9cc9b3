"""A dilated fabric that is faster than the machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from chakram.foundation.units import parse_rate
from tests.e2e.runs import completed, write_experiment
from tests.e2e.traffic_totals import check_complete

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("netns")

DILATION = 1000


def test_dilated_clos_of_400_gigabit_reports_undilated_values(
    tmp_path: Path, chakram_data: Path
) -> None:
    trace = chakram_data / "traces/astra_sim_microbenchmarks/all_reduce/4npus_1MB"
    link = {"rate": "400Gbit"}
    experiment = write_experiment(
        tmp_path,
        [{"name": "job", "trace": {"path": str(trace)}, "size_scale": "1/2"}],
        {
            "kind": "namespaces",
            "dilation": DILATION,
            "topology": {"clos": {"leaves": 2, "spines": 2, "hosts_per_leaf": 2}},
            "links": {"host": link, "uplink": link},
        },
        iterations={"warmup": 1, "measured": 2},
        collectives={"all_reduce": "ring"},
        predict=["bound", "simulate"],
    )

    ended = completed(experiment)
    results = ended.results

    assert f"TIME DILATED by {DILATION}" in ended.output
    assert f"hosts 400Gbit/s, uplinks 400Gbit/s, MTU 4200, dilated by {DILATION}" in (
        ended.output
    )
    assert results.manifest.dilation == DILATION
    check_complete(results, ranks=4, iterations=3)
    (row,) = (row for row in results.summary().rows if row.op == "all_reduce")
    # Of 512 KiB each rank sends three halves: 16 us at 400 Gbit/s.
    least_ns = 1.5 * (1 << 19) * 8e9 / parse_rate("400Gbit", where="")
    assert row.bound_ns is not None
    # Ports of a lab may be ahead by a burst, and switches by what they have saved.
    assert 0.95 * least_ns < row.bound_ns < 1.5 * least_ns
    (prediction,) = row.predictions.values()
    # Bursts cross each link of a lab as one, and wait for their end at each switch.
    assert row.bound_ns <= prediction.time_ns < 1.5 * row.bound_ns
    assert row.time_ns > 0.9 * least_ns
    # A busy machine may take longer, but nowhere near the stretched time.
    assert row.time_ns < 20 * prediction.time_ns
    # Records hold the time that passed.
    records = [
        record
        for record in results.collectives()
        if record.identity.op == "all_reduce" and record.measured
    ]
    mean_ns = sum(record.duration_ns for record in records) / len(records)
    assert mean_ns == pytest.approx(DILATION * row.time_ns, rel=0.01)
