"""Simulations with fewer events have the results of one event per hop.

Simulations that record single messages have an event for every hop. Others count
arrivals early, simulate rings in steps of all ranks, or exchanges in passes.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from chakram import simulate
from chakram.execution.observer import Silent
from chakram.predict.levels.router_passes import RouterPasses
from chakram.run_directory.reader import RunResults
from chakram.simulation import coarse_levels
from tests.support import draws

COLUMNS = {
    "collectives": ("name", "k", "start_ns", "end_ns", "sent_bytes", "alone_ns"),
    "operations": ("rank", "name", "ready_ns", "start_ns", "end_ns"),
    "ranks": ("rank", "start_ns", "end_ns", "communication_ns", "exposed_ns"),
    "links": ("port", "bytes_after"),
}
DRAWS = draws(10, in_soak=20)
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


SOAK = (pytest.mark.soak, pytest.mark.timeout(1_800))
RANKS = pytest.mark.parametrize(
    "nranks",
    [
        64,
        pytest.param(512, marks=SOAK),
        pytest.param(1024, marks=SOAK),
    ],
)


def is_stepped(results: RunResults) -> bool:
    return any("steps of all ranks" in each for each in results.manifest.banners)


def both(
    folder: Path, experiment: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> RunResults:
    """Simulate with few events, compare with all events, and return the former."""
    monkeypatch.setattr(coarse_levels, "is_symmetric", lambda *_: False)
    monkeypatch.setattr(coarse_levels, "MOST_FLOWS", 1 << 60)
    whole = simulated(folder, experiment)
    assert whole.table("flows").num_rows
    monkeypatch.setattr(coarse_levels, "MOST_FLOWS", 0)
    few = simulated(folder, experiment)
    assert not few.table("flows").num_rows
    assert contents(few) == contents(whole)
    return few


@RANKS
@pytest.mark.parametrize("seed", DRAWS)
def test_arrivals_without_events_have_equal_times(
    seed: int, nranks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both(tmp_path, drawn(seed, nranks), monkeypatch)


@RANKS
@pytest.mark.parametrize("seed", DRAWS)
def test_rings_in_steps_have_equal_times(
    seed: int, nranks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = drawn(seed, nranks)
    stream = {"op": "all_reduce", "size": f"{nranks * (seed + 1)}KB", "gap": "5us"}
    experiment["jobs"][0]["trace"]["streams"] = [stream | {"count": 2}]
    experiment["collectives"]["all_reduce"] = "ring"
    experiment["iterations"]["sync"] = "free"
    if seed % 3 == 0:
        experiment["jobs"][0]["trace"]["streams"][0]["members"] = 8
    assert is_stepped(both(tmp_path, experiment, monkeypatch))


@RANKS
@pytest.mark.parametrize("seed", range(8))
def test_exchanges_in_passes_have_equal_times(
    seed: int, nranks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    levels: list[RouterPasses] = []

    def level(*args: Any, **options: Any) -> RouterPasses:
        levels.append(RouterPasses(*args, **options))
        return levels[-1]

    monkeypatch.setattr(coarse_levels, "RouterPasses", level)
    experiment = drawn(seed, nranks)
    job = experiment["jobs"][0]
    job["trace"]["streams"] = [
        {"op": "all_to_all", "size": f"{nranks * seed + 1}KB", "count": 1 + seed % 2}
    ]
    sync = ("barrier", "free", "gap")[seed % 3]
    experiment["iterations"] |= {"sync": sync}
    if sync == "gap":
        experiment["iterations"] |= {"gap": "1ms"}
    experiment["iterations"]["warmup"] = seed % 2
    both(tmp_path, experiment, monkeypatch)
    whole, _, few, _ = levels  # and those of collectives alone
    assert not whole.passed
    is_one = "single_switch" in experiment["fabric"]["topology"]
    assert bool(few.passed) is not is_one


def test_later_iterations_have_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranks end the barrier before an iteration one after another."""
    levels: list[RouterPasses] = []

    def level(*args: Any, **options: Any) -> RouterPasses:
        levels.append(RouterPasses(*args, **options))
        return levels[-1]

    monkeypatch.setattr(coarse_levels, "RouterPasses", level)
    experiment = drawn(0, 64)
    stream = {"op": "all_to_all", "size": "1MiB", "count": 1}
    experiment["jobs"][0]["trace"]["streams"] = [stream]
    experiment["fabric"]["topology"] = FABRICS[1](64)
    experiment["fabric"]["links"] = {
        end: {"rate": "10Gbit", "delay": "500ns"} for end in ("host", "uplink")
    }
    fault = {"kind": "degrade", "link": "h3-leaf0", "rate": "1Gbit"}
    experiment["faults"] = {"links": [fault]}
    experiment["iterations"] = {"warmup": 1, "measured": 3}
    few = both(tmp_path, experiment, monkeypatch)
    begins_ns = few.table("ranks")["start_ns"].to_pylist()
    assert len(set(begins_ns)) > 3 + 1  # not all at one time
    assert levels[2].passed == 4


@pytest.mark.parametrize("number", [0, 1], ids=["events", "passes"])
def test_progress_moves_within_a_collective(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coarse_levels, "is_symmetric", lambda *_: False)
    done: list[tuple[int, int]] = []

    class Progress(Silent):
        def iterations(self, done_: int, total: int, unit: str = "iteration") -> None:
            done.append((done_, total))

    experiment = drawn(0, 512)
    stream = {"op": "all_to_all", "size": "1MiB", "count": 1}
    experiment["jobs"][0]["trace"]["streams"] = [stream]
    fabric = experiment["fabric"]
    fabric["topology"] = FABRICS[number](512)
    fabric["links"] = {"host": {"rate": "10Gbit"}}
    experiment["faults"]["links"] = []
    experiment["iterations"] = {"warmup": 0, "measured": 1, "sync": "free"}
    simulate(experiment, runs=tmp_path, progress=Progress())
    assert done == sorted(done)
    assert len([each for each, total in done if 0 < each < total]) > 1


@pytest.mark.parametrize(
    "changes",
    [
        {"streams": [{"op": "all_reduce", "size": "64KB", "count": 1}] * 2},
        {"streams": [{"op": "all_reduce", "size": "65KB", "count": 1}]},
        {"streams": [{"op": "all_to_all", "size": "64KB", "count": 1}]},
        {"placement": {"pattern": "random"}},
        {"sync": "barrier"},
    ],
    ids=["overlap", "sizes", "direct", "shared links", "barrier"],
)
def test_other_jobs_have_no_steps(
    changes: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = drawn(0, 64)
    job = experiment["jobs"][0]
    job["trace"]["streams"] = [{"op": "all_reduce", "size": "64KB", "count": 1}]
    experiment["fabric"]["topology"] = FABRICS[1](64)
    experiment["fabric"]["links"] = {
        end: {"rate": "1Gbit", "delay": "0ns"} for end in ("host", "uplink")
    }
    experiment["faults"]["links"] = []
    experiment["collectives"]["all_reduce"] = "ring"
    job["trace"]["streams"] = changes.get("streams", job["trace"]["streams"])
    experiment["iterations"]["sync"] = changes.get("sync", "free")
    job["placement"] = changes.get("placement", {})
    assert not is_stepped(both(tmp_path, experiment, monkeypatch))
