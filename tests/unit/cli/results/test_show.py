"""``chakram show``: what a run printed, once more from its directory."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pytest

from chakram.cli import main

TEXT = """\
version: 1
name: incast
jobs:
  - {name: a, trace: {synth: incast, ranks: 3, size: 64KiB}}
iterations: {warmup: 0, measured: 2}
fabric:
  kind: namespaces
  topology: {single_switch: {hosts: 3}}
  links: {host: {rate: 1Gbit}}
"""


def test_a_run_is_shown_as_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    experiment = tmp_path / "incast.yaml"
    experiment.write_text(TEXT)
    runs = tmp_path / "runs"
    assert main(["simulate", str(experiment), "--runs", str(runs)]) == 0
    printed = capsys.readouterr().out
    (directory,) = runs.iterdir()
    assert main(["show", str(directory)]) == 0
    assert capsys.readouterr().out == printed
    assert "# Messages by receiver: 4 in 2 busy periods" in printed

    assert main(["show", str(directory), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    (row,) = document["messages"]["receivers"]
    assert (row["peers"], row["fan"], row["messages"]) == (2, 2, 4)
    assert row["fair_share"] > 0.9


def test_no_run_is_an_error_of_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder, found in (
        (tmp_path, "contains no run.json"),
        (tmp_path / "n", "is not a folder"),
    ):
        assert main(["show", str(folder)]) == 2
        told = capsys.readouterr()
        assert told.out == ""
        assert found in told.err


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a run; tests leave it as it is."""
    folder = tmp_path_factory.mktemp("show")
    experiment = folder / "incast.yaml"
    experiment.write_text(TEXT)
    assert main(["simulate", str(experiment), "--runs", str(folder / "runs")]) == 0
    (found,) = (folder / "runs").iterdir()
    return found


def test_queue_pairs_and_ports_are_shown_as_csv_and_as_json(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", str(directory), "--queue-pairs"]) == 0
    printed = capsys.readouterr()
    rows = list(csv.DictReader(printed.out.splitlines()))
    assert printed.err == ""
    messages = [row for row in rows if row["flow_name"].startswith("a/p2p/")]
    sending = {row["flow_name"]: row for row in messages if row["first_timestamp"]}
    assert set(sending) == {"a/p2p/0.0/1>0", "a/p2p/0.0/2>0"}
    for row in sending.values():
        assert int(row["tx_bytes"]) > 0
        assert row["port_rx"] == "h0"
        assert int(row["flow_completion_time_ns"]) > 0
    assert main(["show", str(directory), "--queue-pairs", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "chakram.queue-pairs/1"
    assert len(document["queue_pairs"]) == len(rows)

    assert main(["show", str(directory), "--ports", "--json"]) == 0
    ports = json.loads(capsys.readouterr().out)["ports"]
    assert [port["name"] for port in ports] == ["h0", "h1", "h2"]
    # The ports of simulations count nothing by themselves.
    # With headers, and of who receives only: answers.
    assert all(port["tx_bytes"] > port["payload_tx_bytes"] for port in ports)
    assert all(port["payload_tx_bytes"] > 0 for port in ports[1:])
    for both in (["--ports", "--queue-pairs"], ["--ports", "--preflight"]):
        assert main(["show", str(directory), *both]) == 2
        assert (
            "use only one of --queue-pairs, --ports, --preflight"
            in capsys.readouterr().err
        )


def test_a_run_whose_queue_pairs_were_not_used_says_so(
    directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unused = shutil.copytree(directory, tmp_path / "unused")
    (unused / "queue_pairs.parquet").unlink()
    assert main(["show", str(unused), "--queue-pairs"]) == 0
    assert "all counters are empty: the run ended before" in capsys.readouterr().err


def test_an_older_run_says_that_it_has_no_queue_pairs(
    directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    older = shutil.copytree(directory, tmp_path / "older")
    (older / "queue_pair_ends.parquet").unlink()
    for which in ("--queue-pairs", "--ports"):
        assert main(["show", str(older), which]) == 2
        told = capsys.readouterr().err
        assert "has no table of its queue pairs" in told
        assert "(queue_pair_ends.parquet is missing)" in told
    assert main(["show", str(older)]) == 0


@pytest.mark.parametrize(
    "gone", ["flows.parquet", "collectives.parquet", "ranks.parquet", "plan.json"]
)
def test_a_file_that_is_gone_is_named_on_top(
    gone: str, directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged = shutil.copytree(directory, tmp_path / "damaged")
    (damaged / gone).unlink()
    assert main(["show", str(damaged)]) == 0
    printed = capsys.readouterr().out
    assert f"FILES ARE MISSING: {gone}" in printed
    assert printed.index(gone) < printed.index("time")


@pytest.mark.parametrize("which", ["--queue-pairs", "--ports"])
def test_counters_need_the_plan_that_says_where_they_were(
    which: str, directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged = shutil.copytree(directory, tmp_path / "damaged")
    plan = json.loads((damaged / "plan.json").read_text())
    (damaged / "plan.json").unlink()
    assert main(["show", str(damaged), which]) == 2
    assert (
        "plan.json: is missing (copy the run directory again" in capsys.readouterr().err
    )

    plan["ports"] = plan["ports"][1:]
    (damaged / "plan.json").write_text(json.dumps(plan))
    assert main(["show", str(damaged), which]) == 2
    assert "plan.json: is damaged: port 0 is not defined" in capsys.readouterr().err

    del plan["ports"]
    (damaged / "plan.json").write_text(json.dumps(plan))
    assert main(["show", str(damaged), which]) == 2
    assert "plan.json: is damaged: it lacks 'ports'" in capsys.readouterr().err
