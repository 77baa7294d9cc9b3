"""Runs whose ports are divided among several data-plane processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.e2e.runs import chakram, completed, fabric, write_experiment
from tests.e2e.traffic_totals import (
    ALGORITHMS,
    CLOSED_FORMS,
    check_complete,
    sent_by_job,
)

if TYPE_CHECKING:
    from pathlib import Path

NRANKS = 4
JOBS = ("left", "right")


@pytest.mark.parametrize(
    ("kind", "addressing"),
    [
        ("namespaces", "ipv6"),
        pytest.param("loopback", "ipv4", marks=pytest.mark.soak),
        pytest.param("namespaces", "ipv4", marks=pytest.mark.soak),
        pytest.param("loopback", "ipv6", marks=pytest.mark.soak),
    ],
    indirect=["kind"],
)
def test_ranks_of_one_port_in_two_processes_send_every_byte(
    tmp_path: Path, chakram_data: Path, kind: str, addressing: str
) -> None:
    op = "all_to_all" if addressing == "ipv4" else "all_reduce"
    trace = chakram_data / "traces/astra_sim_microbenchmarks" / op / f"{NRANKS}npus_1MB"
    experiment = write_experiment(
        tmp_path,
        [
            {
                "name": job,
                "trace": {"path": str(trace)},
                "placement": {"ports": list(range(NRANKS))},
            }
            for job in JOBS
        ],
        {**fabric(kind, NRANKS), "addressing": addressing},
        collectives=ALGORITHMS,
        agents={"shards": 2 * NRANKS},
    )
    shown = chakram("plan", experiment, runs=tmp_path)
    assert "among 2 shards each" in shown.output

    results = completed(experiment).results

    check_complete(results, ranks=NRANKS * len(JOBS))
    expected = dict.fromkeys(range(NRANKS), CLOSED_FORMS[op](NRANKS))
    assert sent_by_job(results) == dict.fromkeys(JOBS, expected)
    last = {}
    for row in results.table("ports").to_pylist():
        last[row["port"], row["shard"]] = row
    assert len(last) == 2 * NRANKS
    assert {row["invalid_packets"] for row in last.values()} == {0}
    payload = sum(nbytes for _, nbytes in expected.values()) * len(JOBS)
    for direction in ("tx_bytes", "rx_bytes"):
        assert sum(row[direction] for row in last.values()) > payload
