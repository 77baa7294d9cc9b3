"""Simulations that count arrivals early have the results of one event per arrival.

Simulations that record single messages have an event for every arrival.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from chakram import simulate
from chakram.run_directory.reader import RunResults
from chakram.simulation import coarse_levels

COLUMNS = {
    "collectives": ("name", "k", "start_ns", "end_ns", "sent_bytes", "alone_ns"),
    "operations": ("rank", "name", "ready_ns", "start_ns", "end_ns"),
    "ranks": ("rank", "start_ns", "end_ns", "communication_ns", "exposed_ns"),
    "links": ("port", "bytes_after"),
}
DRAWS = 30
FABRICS = (
    lambda nranks: {"single_switch": {"hosts": nranks}},
    lambda nranks: {"clos": {"leaves": 8, "spines": 3, "hosts_per_leaf": nranks // 8}},
    lambda nranks: {
        "fat_tree": {
            "pods": 4,
            "leaves": 2,
            "spines": 2,
            "cores": 2,
            "hosts_per_leaf": nranks // 8,
        }
    },
)
FAULTS = (
    (),
    ("h0-s0", "h0-leaf0", "h0-pod0-leaf0"),
    ("", "leaf1-spine0", "pod0-leaf1-pod0-spine0"),
)
"""Links with a fault on each fabric: none, a straggler's, or an uplink."""

STREAMS = (
    {"op": "all_to_all"},
    {"op": "all_to_all", "members": 8},
    {"op": "all_reduce"},
    {"op": "all_gather"},
    {"op": "broadcast"},
    {"op": "gather"},
    {"op": "send_recv"},
)


def drawn(seed: int, nranks: int) -> dict[str, Any]:
    """Return an experiment of concurrent streams, perhaps with a fault."""
    random = Random(seed)
    number = random.randrange(len(FABRICS))
    links = random.choice(FAULTS)
    faults = []
    if links and links[number]:
        fault = {"kind": "degrade", "link": links[number], "rate": "3Gbit"}
        if not links[number].startswith("h") and random.random() < 0.5:
            fault = {"kind": "down", "link": links[number]}
        faults.append(fault)
    streams = []
    for stream in random.sample(STREAMS, random.randint(1, 3)):
        size = f"{nranks * random.randint(1, 20_000)}B"
        gap = {"gap": f"{random.randint(1, 50)}us"} if random.random() < 0.5 else {}
        streams.append({"size": size, "count": random.randint(1, 2), **stream, **gap})
    link = {
        "rate": f"{random.choice((4, 10, 400))}Gbit",
        "delay": f"{random.randint(0, 2_000)}ns",
    }
    return {
        "version": 1,
        "name": "arrivals",
        "seed": seed,
        "jobs": [
            {
                "name": "job",
                "trace": {"synth": "collectives", "ranks": nranks, "streams": streams},
            }
        ],
        "collectives": {
            "all_to_all": "direct",
            "all_reduce": random.choice(("ring", "direct", "halving_doubling")),
            "all_gather": "direct",
        },
        "iterations": {"warmup": 1, "measured": random.randint(1, 2)},
        "fabric": {
            "kind": "namespaces",
            "topology": FABRICS[number](nranks),
            "links": {"host": link} if number == 0 else {"host": link, "uplink": link},
        },
        "simulation": {"level": "message"},
        "faults": {"links": faults},
        "predict": ["alone"],
    }


def simulated(folder: Path, experiment: dict[str, Any]) -> RunResults:
    path = folder / "experiment.yaml"
    path.write_text(yaml.safe_dump(experiment))
    return simulate(path, runs=folder / "runs")


def contents(results: RunResults) -> list[list[str]]:
    tables = (results.table(name).select(chosen) for name, chosen in COLUMNS.items())
    return [sorted(map(str, table.to_pylist())) for table in tables]


@pytest.mark.parametrize(
    "nranks",
    [
        16,
        64,
        pytest.param(512, marks=pytest.mark.soak),
        pytest.param(1024, marks=pytest.mark.soak),
    ],
)
@pytest.mark.parametrize("seed", range(DRAWS))
def test_arrivals_without_events_have_equal_times(
    seed: int, nranks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coarse_levels, "is_symmetric", lambda *_: False)
    experiment = drawn(seed, nranks)
    monkeypatch.setattr(coarse_levels, "MOST_FLOWS", 1 << 60)
    whole = simulated(tmp_path, experiment)
    assert whole.table("flows").num_rows
    monkeypatch.setattr(coarse_levels, "MOST_FLOWS", 0)
    early = simulated(tmp_path, experiment)
    assert not early.table("flows").num_rows
    assert contents(early) == contents(whole)
