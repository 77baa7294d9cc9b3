"""Simulations of a single collective."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from chakram import simulate
from chakram.run_directory.reader import RunResults
from chakram.simulation import coarse_levels, packet_level

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


@pytest.mark.parametrize("level", ["packet", "message", "flow"])
def test_collective_disturbed_by_link_faults_is_simulated_alone(
    tmp_path: Path, level: str
) -> None:
    fault = "[{link: leaf0-spine0, kind: degrade, at: 0us, rate: 1Gbit}]"
    changes = {"simulation.level": level, "predict": "[alone]"}
    disturbed, clean = (
        simulated(tmp_path, **changes, **{"faults.links": faults})
        for faults in (fault, "[]")
    )
    (record,) = disturbed.collectives()
    (alone_ns,) = clean.alone().values()
    assert disturbed.alone() == {record.identity.key: alone_ns}
    assert alone_ns == clean.collectives()[0].duration_ns < record.duration_ns


def test_levels_simulate_collectives_alone_up_to_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams = [
        {"op": "all_reduce", "size": "1MiB", "count": 2},
        {"op": "all_to_all", "size": "2MiB", "count": 1},
    ]
    changes = {
        "jobs[0].trace.streams": str(streams),
        "simulation.level": "message",
        "predict": "[alone]",
    }
    results = simulated(tmp_path, **changes)
    alone, records = results.alone(), list(results.collectives())
    assert len(alone) == 3
    assert len(set(alone.values())) == 2
    # They share ports while they run together.
    assert any(each.duration_ns > alone[each.identity.key] for each in records)
    monkeypatch.setitem(coarse_levels.ALONE_MESSAGES, "message", 8 * 7)
    few = simulated(tmp_path, **changes)
    assert set(few.alone().items()) < set(alone.items())
    assert any("1 of 2 kinds" in banner for banner in few.manifest.banners)
    assert simulated(tmp_path, **changes | {"predict": "[]"}).alone() == {}
