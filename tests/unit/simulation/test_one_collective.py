"""Simulations of a single collective."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from chakram import simulate
from chakram.run_directory.reader import RunResults
from chakram.simulation import packet_level

EXPERIMENT: dict[str, Any] = {
    "version": 1,
    "name": "one",
    "jobs": [
        {
            "name": "job",
            "trace": {
                "synth": "collectives",
                "ranks": 8,
                "streams": [{"op": "all_to_all", "size": "512KiB", "count": 1}],
            },
        }
    ],
    "iterations": {"warmup": 0, "measured": 1, "sync": "free"},
    "transport": {"congestion_control": {"dcqcn": {"profile": "dcqcn-nvidia"}}},
    "fabric": {
        "kind": "namespaces",
        "topology": {
            "clos": {"leaves": 2, "spines": 2, "hosts_per_leaf": 4},
        },
        "links": {
            "host": {"rate": "10Gbit"},
            "uplink": {
                "rate": "5Gbit",
                "ecn": {"kmin": "20KB", "kmax": "80KB", "pmax": 0.2},
            },
        },
    },
}


def simulated(folder: Path, **changes: str) -> RunResults:
    path = folder / "experiment.yaml"
    path.write_text(yaml.safe_dump(EXPERIMENT))
    return simulate(path, runs=folder / "runs", set=changes)


def test_isolated_collective_is_simulated_once_without_faults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(packet_level, "is_collective_alone", lambda _: False)
        twice = simulated(tmp_path)
    assert any(link["marked"] for link in twice.table("links").to_pylist())
    monkeypatch.setattr(packet_level, "alone_times", pytest.fail)
    once = simulated(tmp_path)
    (record,) = once.collectives()
    assert once.alone() == {record.identity.key: record.duration_ns} == twice.alone()


def test_collective_disturbed_by_link_faults_is_simulated_alone(tmp_path: Path) -> None:
    fault = "{link: leaf0-spine0, kind: degrade, at: 0us, rate: 1Gbit}"
    results = simulated(tmp_path, **{"faults.links": f"[{fault}]"})
    (record,) = results.collectives()
    assert results.alone()[record.identity.key] < record.duration_ns
