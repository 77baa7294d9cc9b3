"""Jobs whose ranks all do the same have the times of a complete simulation."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from chakram import simulate
from chakram.run_directory.reader import RunResults
from chakram.simulation import coarse_levels, recorded_ranks
from tests.support import draws

DRAWS = draws(12, in_soak=18)
OPS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
ALGORITHMS = ("ring", "direct")
TABLES = ("collectives", "ranks", "links")


def drawn(seed: int) -> dict[str, Any]:
    """Return an experiment of concurrent streams of collectives of all ranks."""
    random = Random(seed)
    nranks = random.choice((2, 3, 5, 8, 16, 64))
    streams = []
    for _ in range(random.randint(1, 3)):
        stream: dict[str, Any] = {
            "op": random.choice(OPS),
            "size": f"{nranks * random.randint(1, 20_000)}B",
            "count": random.randint(1, 3),
        }
        if random.random() < 0.3:
            stream["gap"] = f"{random.randint(1, 50)}us"
        if random.random() < 0.3:
            stream["barrier"] = True
        streams.append(stream)
    return {
        "version": 1,
        "name": "folded",
        "seed": seed,
        "jobs": [
            {
                "name": "job",
                "trace": {
                    "synth": "collectives",
                    "ranks": nranks,
                    "streams": streams,
                },
                "placement": {"pattern": random.choice(("packed", "random"))},
            }
        ],
        "collectives": {
            op: "direct" if op == "all_to_all" else random.choice(ALGORITHMS)
            for op in OPS
        },
        "iterations": {"warmup": 1, "measured": random.randint(1, 3)},
        "fabric": {
            "kind": "namespaces",
            "topology": {"single_switch": {"hosts": nranks}},
            "links": {
                "host": {
                    "rate": f"{random.choice((1, 10, 400))}Gbit",
                    "delay": f"{random.randint(0, 2_000)}ns",
                }
            },
        },
        "simulation": {"level": "message"},
        "predict": ["alone"],
    }


def simulated(folder: Path, experiment: dict[str, Any]) -> RunResults:
    path = folder / "experiment.yaml"
    path.write_text(yaml.safe_dump(experiment))
    return simulate(path, runs=folder / "runs")


def is_folded(results: RunResults) -> bool:
    return any("ranks is simulated" in each for each in results.manifest.banners)


def contents(results: RunResults) -> list[list[str]]:
    tables = (results.table(name).drop_columns(["run_id"]) for name in TABLES)
    return [sorted(map(str, table.to_pylist())) for table in tables]


@pytest.mark.parametrize("seed", DRAWS)
def test_a_folded_job_has_the_times_of_all_its_ranks(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coarse_levels, "MOST_FLOWS", 0)
    experiment = drawn(seed)
    folded = simulated(tmp_path, experiment)
    assert is_folded(folded)
    monkeypatch.setattr(coarse_levels, "is_symmetric", lambda *_: False)
    whole = simulated(tmp_path, experiment)
    assert not is_folded(whole)
    assert contents(folded) == contents(whole)


STREAM = {"op": "all_gather", "size": "64B", "count": 1}


@pytest.mark.parametrize(
    ("stream", "topology", "faults"),
    [
        ({"members": 4}, {}, ()),
        ({"op": "send_recv"}, {}, ()),
        ({"op": "broadcast"}, {}, ()),
        ({"op": "all_reduce", "size": "63B"}, {}, ()),
        ({}, {"single_switch": {"hosts": 9}}, ()),
        ({}, {"clos": {"leaves": 2, "spines": 1, "hosts_per_leaf": 4}}, ()),
        ({}, {}, ({"kind": "degrade", "link": "h3-s0", "rate": "1Mbit"},)),
        ({}, {}, ()),
    ],
    ids=[
        *("groups", "messages", "root", "sizes", "idle host", "switches", "slow link"),
        "nothing",
    ],
)
def test_ranks_that_differ_are_simulated_one_by_one(
    stream: dict[str, Any],
    topology: dict[str, Any],
    faults: tuple[dict[str, str], ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    monkeypatch.setattr(coarse_levels, "MOST_FLOWS", 0)
    link = {"rate": "1Gbit"}
    experiment = drawn(0)
    experiment["jobs"][0]["trace"] |= {"ranks": 8, "streams": [STREAM | stream]}
    experiment["fabric"] |= {
        "topology": topology or {"single_switch": {"hosts": 8}},
        "links": {"host": link, "uplink": link}
        if "clos" in topology
        else {"host": link},
    }
    experiment["faults"] = {"links": list(faults)}
    is_equal = request.node.callspec.id == "nothing"
    assert is_folded(simulated(tmp_path, experiment)) == is_equal


def test_ranks_of_a_large_folded_job_are_recorded_in_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coarse_levels, "MOST_FLOWS", 0)
    monkeypatch.setattr(recorded_ranks, "MOST_RANKS", 4)
    monkeypatch.setattr(recorded_ranks, "_WANTED", 4)
    monkeypatch.setattr(recorded_ranks, "_SMALL_GROUPS", ())
    experiment = drawn(0)
    experiment["jobs"][0]["trace"] |= {"ranks": 8, "streams": [STREAM]}
    experiment["fabric"]["topology"] = {"single_switch": {"hosts": 8}}
    folded = simulated(tmp_path, experiment)
    assert is_folded(folded)
    monkeypatch.setattr(coarse_levels, "is_symmetric", lambda *_: False)
    assert contents(folded) == contents(simulated(tmp_path, experiment))
    assert {row["rank"] for row in folded.table("operations").to_pylist()} == {
        *(0, 2, 4, 6)
    }


def test_few_messages_are_recorded_one_by_one_instead(tmp_path: Path) -> None:
    results = simulated(tmp_path, drawn(0))
    assert not is_folded(results)
    assert results.table("flows").num_rows
