"""Runs over IPv6 deliver every byte."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from chakram.config.experiment import load_experiment
from chakram.preparation.job_loading import load_jobs
from tests.e2e.runs import completed, moe, write_experiment
from tests.e2e.test_loss import messages
from tests.e2e.test_real_traces import expected
from tests.e2e.traffic_totals import check_complete, sent

if TYPE_CHECKING:
    from pathlib import Path

    from chakram.run_directory.reader import RunResults

CHECKED = {"icrc_check": 4}
"""One packet in so many has its ICRC computed again where it arrives."""


def fabric_of_ipv6(kind: str) -> dict[str, Any]:
    """Return the fabric section of two leaves and two spines, or none at all."""
    if kind == "loopback":
        return {"kind": "loopback", "addressing": "ipv6"}
    return {
        "kind": "namespaces",
        "addressing": "ipv6",
        "topology": {"clos": {"leaves": 2, "spines": 2, "hosts_per_leaf": 4}},
        "links": {"host": {"rate": "500Mbit"}, "uplink": {"rate": "1Gbit"}},
    }


def check_links(results: RunResults) -> None:
    """Assert that all uplinks were used, and that ports count as the kernel does."""
    last = {row["host"]: row for row in results.table("ports").to_pylist()}
    assert len(last) == 8
    for link in results.links():
        assert link.bytes > 0, f"{link.link} {link.direction}"
        assert not link.drops
        if link.kind == "host":
            port = last[link.link.partition("-")[0]]
            way = "tx_bytes" if link.direction == "up" else "rx_bytes"
            assert port[way] == link.bytes
            assert port["invalid_packets"] == 0


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=pytest.mark.soak) for kind in ("namespaces", "loopback")],
    indirect=True,
)
def test_mixture_of_experts_sends_the_bytes_of_its_programs(
    tmp_path: Path, chakram_data: Path, kind: str
) -> None:
    path = chakram_data / "traces/stage/moe_mixtral_ep4_tp2_8r"
    job = {
        "name": "mixtral",
        "trace": {"path": str(path), "bytes_per_element": 2},
        "compute": {"from": "none"},
        "size_scale": "1/4096",
    }
    experiment = write_experiment(
        tmp_path, [job], fabric_of_ipv6(kind), transport=CHECKED
    )
    (loaded,) = load_jobs(load_experiment(experiment))

    results = completed(experiment).results

    check_complete(results, ranks=8)
    assert sent(results) == expected(loaded.programs)
    assert results.manifest.family == "ipv6"
    assert set(results.table("flows")["family"].to_pylist()) == {"ipv6"}
    if kind == "namespaces":
        check_links(results)


@pytest.mark.parametrize(
    "kind",
    ["loopback", pytest.param("namespaces", marks=pytest.mark.soak)],
    indirect=True,
)
def test_every_byte_arrives_once_with_1_percent_loss(tmp_path: Path, kind: str) -> None:
    lossy, whole = tmp_path / "lossy", tmp_path / "whole"
    for folder in (lossy, whole):
        folder.mkdir()
    transport = {"path_mtu": 1024, "retransmit_timeout": "10ms", "retry_limit": 100}
    experiment = write_experiment(
        lossy,
        [moe(8)],
        fabric_of_ipv6(kind),
        faults={"drop": 0.01},
        transport={"icrc": "full", **CHECKED, **transport},
    )

    results = completed(experiment).results

    records = results.collectives()
    assert all(record.complete for record in records)
    assert sum(record.retransmitted for record in records) > 0
    # The same job, in a simulation that loses nothing.
    reference = write_experiment(
        whole, [moe(8)], fabric_of_ipv6("namespaces"), transport={"path_mtu": 1024}
    )
    assert messages(results) == messages(completed(reference, verb="simulate").results)


@pytest.mark.usefixtures("netns")
def test_run_sends_the_packets_and_bytes_of_its_simulation(
    tmp_path: Path,
) -> None:
    experiment = write_experiment(
        tmp_path, [moe(8)], fabric_of_ipv6("namespaces"), transport={"path_mtu": 1024}
    )
    (tmp_path / "simulated").mkdir()
    copy = tmp_path / "simulated" / experiment.name
    copy.write_bytes(experiment.read_bytes())

    ran = completed(experiment).results
    simulated = completed(copy, "--runs", copy.parent / "runs", verb="simulate").results

    assert messages(ran) == messages(simulated)
    for name in ("packets", "family"):
        found = sorted(ran.table("flows", name)[0].to_pylist())
        assert found == sorted(simulated.table("flows", name)[0].to_pylist())
    assert ran.bounds() == simulated.bounds()
    check_links(ran)
