"""Large simulations record the operations of some ranks."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
import yaml

from chakram import simulate
from chakram.collectives.groups import ProcessGroup
from chakram.run_directory.reader import RunResults
from chakram.simulation import coarse_levels, recorded_ranks

if TYPE_CHECKING:
    from chakram.program.operations import RankProgram

RANKS = 32
EXPERIMENT: dict[str, Any] = {
    "version": 1,
    "name": "sample",
    "jobs": [
        {
            "name": "moe",
            "trace": {
                "synth": "moe",
                "ranks": RANKS,
                "tp": 2,
                "ep": 2,
                "dp": 4,
                "pp": 2,
                "layers": 4,
                "micro_batches": 2,
            },
        }
    ],
    "iterations": {"warmup": 1, "measured": 2},
    "fabric": {
        "kind": "namespaces",
        "topology": {"clos": {"leaves": 4, "spines": 2, "hosts_per_leaf": 8}},
        "links": {"host": {"rate": "10Gbit"}, "uplink": {"rate": "10Gbit"}},
    },
    "simulation": {"level": "message"},
}


def simulated(folder: Path) -> RunResults:
    path = folder / "experiment.yaml"
    path.write_text(yaml.safe_dump(EXPERIMENT))
    return simulate(path, runs=folder / "runs")


def rows(results: RunResults, name: str) -> list[dict[str, Any]]:
    found = results.table(name).drop_columns(["run_id"]).to_pylist()
    return sorted(found, key=str)


def test_recorded_ranks_have_the_rows_of_a_complete_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coarse_levels, "MOST_FLOWS", 0)
    whole = simulated(tmp_path)
    assert not any("are recorded for" in banner for banner in whole.manifest.banners)
    monkeypatch.setattr(recorded_ranks, "MOST_RANKS", RANKS - 1)
    monkeypatch.setattr(recorded_ranks, "_WANTED", 16)
    sampled = simulated(tmp_path)
    assert (
        f"collectives are recorded for 16 of {RANKS} ranks, iterations for all, and "
        "messages for none" in sampled.manifest.banners
    )
    # Iterations and links are those of all ranks.
    assert rows(sampled, "ranks") == rows(whole, "ranks")
    assert rows(sampled, "links") == rows(whole, "links")

    # Two sets of four ranks of two pipeline stages: their groups of two are complete.
    recorded = {row["rank"] for row in rows(sampled, "operations")}
    assert len(recorded) == 16
    of_rank = {
        (row["rank"], row["operation"], row["iteration"]): row
        for row in rows(whole, "operations")
    }
    for row in rows(sampled, "operations"):
        assert row == of_rank[row["rank"], row["operation"], row["iteration"]]

    def small(results: RunResults) -> list[str]:
        found = rows(results, "collectives")
        return [str(row) for row in found if row["nranks"] == 2]

    assert set(small(sampled)) < set(small(whole))


def program(rank: int, *groups: ProcessGroup) -> RankProgram:
    return cast(
        "RankProgram", SimpleNamespace(job="job", rank=rank, peers=(), groups=groups)
    )


def test_ranks_without_small_groups_are_chosen_evenly() -> None:
    everyone = ProcessGroup(name="all", ranks=tuple(range(5_000)))
    programs = [program(rank, everyone) for rank in everyone.ranks]
    chosen = recorded_ranks.recorded_ranks(programs)
    assert chosen is not None
    assert len(chosen) == 512
    steps = {b - a for a, b in pairwise(sorted(chosen))}
    assert steps <= {9, 10}


def test_groups_are_recorded_whole_if_they_are_small() -> None:
    everyone = ProcessGroup(name="all", ranks=tuple(range(4_800)))
    servers = [
        ProcessGroup(name=f"server{first}", ranks=tuple(range(first, first + 48)))
        for first in range(0, 4_800, 48)
    ]
    programs = [program(rank, everyone, servers[rank // 48]) for rank in everyone.ranks]
    chosen = recorded_ranks.recorded_ranks(programs)
    assert chosen is not None
    assert len(chosen) == 10 * 48
    for rank in chosen:
        assert chosen.issuperset(programs[rank].groups[1].ranks)
    assert recorded_ranks.recorded_ranks(programs[:4_096]) is None
