"""Comparison with the output of other simulators."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from chakram import simulate
from chakram.analysis.simulator_output_match import match_file
from chakram.cli import command_line
from chakram.foundation.errors import ResultsError

EXPERIMENT = {
    "version": 1,
    "name": "against",
    "jobs": [
        {
            "name": "j",
            "trace": {
                "synth": "collectives",
                "ranks": 8,
                "streams": [{"op": "all_reduce", "size": "1MiB", "count": 1}],
            },
            "compute": {"from": "none"},
        }
    ],
    "collectives": {"all_reduce": "ring"},
    "iterations": {"warmup": 0, "measured": 1, "sync": "free"},
    "fabric": {
        "kind": "namespaces",
        "topology": {"single_switch": {"hosts": 8}},
        "links": {"host": {"rate": "400Gbit", "delay": "500ns"}},
    },
    "simulation": {"level": "message"},
}
FINISH = (
    "[x] [workload] [info] sys[{}] finished, {} cycles, exposed communication 0 cycles."
)


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    path = tmp_path / "experiment.yaml"
    path.write_text(yaml.safe_dump(EXPERIMENT))
    return path


def written(folder: Path, text: str) -> Path:
    path = folder / "other.txt"
    path.write_text(text)
    return path


def log_of(ranks: int, *, extra: str = "") -> str:
    return "\n".join(FINISH.format(rank, 1000) for rank in range(ranks)) + extra


def test_ranks_and_collectives_are_compared_with_a_log(
    tmp_path: Path, experiment: Path
) -> None:
    results = simulate(experiment, runs=tmp_path / "runs")
    (collective,) = results.collectives()
    name = collective.identity.name
    events = "".join(
        f"\n[x] [workload] [debug] {what},sys->id={rank}, tick={tick}, node->id=3, "
        f"node->name={name}, node->type=7"
        for rank in range(8)
        for what, tick in (("issue", 10), ("callback", 500 + rank))
    )
    found = match_file(written(tmp_path, log_of(8, extra=events)), results.path)
    assert found[0] == (f"collective {name}", collective.duration_ns, 497)
    assert [each.what for each in found[1:]] == [f"rank {rank}" for rank in range(8)]
    assert all(each.other_ns == 1000 for each in found[1:])
    assert found[1].deviation == found[1].own_ns / 1000 - 1


def test_messages_are_compared_with_a_real_fct_file(
    tmp_path: Path, experiment: Path, chakram_data: Path
) -> None:
    folder = chakram_data / "reference" / "simulators" / "ns3"
    path = folder / "cc12_Switch8_all_reduce_ring_1_1048576" / "fct.txt"
    results = simulate(
        experiment,
        runs=tmp_path / "runs",
        set={
            "simulation.level": "packet",
            "transport.window": "16MiB",
            "transport.burst": 1,  # ns-3 sends packet by packet
        },
    )
    found = {each.what: each for each in match_file(path, results.path)}
    assert set(found) == {"FCT p50", "FCT p95", "FCT p99", "FCT p100", "end"}
    deviation = found["FCT p50"].deviation
    assert deviation is not None
    assert abs(deviation) < 0.1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nothing", "has no line about the end of a rank"),
        (log_of(9), "rank 8 is not in this experiment"),
        (log_of(8, extra="\nsys.id=4 has unreleased nodes"), "rank 4 did not finish"),
        ("0b000001 0b000101 10000 100 5 10 4860 4788", "from node 0 to node 1"),
    ],
)
def test_unrelated_file_is_refused(
    tmp_path: Path, experiment: Path, text: str, said: str
) -> None:
    results = simulate(experiment, runs=tmp_path / "runs")
    with pytest.raises(ResultsError, match=re.escape(said)):
        match_file(written(tmp_path, text), results.path)


def test_command_prints_both_comparisons(tmp_path: Path, experiment: Path) -> None:
    other = written(tmp_path, log_of(8))
    command = ["simulate", str(experiment), "--runs", str(tmp_path / "runs")]
    command += ["--against", str(other)]
    printed = CliRunner().invoke(command_line(), command)
    assert printed.exit_code == 0, printed.output
    lines = printed.stdout.splitlines()
    assert lines[-11].startswith(f"# compared with {other}")
    assert lines[-1].split()[:2] == ["rank", "7"]
    answer = CliRunner().invoke(command_line(), [*command, "--json"])
    document = json.loads(answer.stdout)
    assert document["against"]["file"] == str(other)
    assert document["against"]["rows"][0]["other_ns"] == 1000
