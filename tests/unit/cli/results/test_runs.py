"""``chakram runs`` lists what is in a folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from chakram.cli import main
from chakram.collectives.ops import CollectiveOp
from chakram.run_directory import run_list
from chakram.run_directory.manifest import RunManifest
from chakram.run_directory.writer import RunDirectory
from chakram.summary.bandwidth import bus_factor
from tests.run_directories import STARTED
from tests.small_run import small_plan, small_rows

JOBS = {"moe": {"ranks": 4}}


def make_run(
    parent: Path, *, run_id: str, started_at: str, world: str, **fields: object
) -> RunDirectory:
    """Return a run of two measured iterations and one of warm-up."""
    manifest = RunManifest(
        run_id=run_id,
        name="quick start",
        world=world,
        started_at=started_at,
        warmup=1,
        measured=2,
        jobs=JOBS,
    )
    directory = RunDirectory.create(parent, manifest=manifest, started=STARTED)
    directory.update(**fields)
    directory.begin(small_plan())
    for iteration in range(3):
        directory.add(small_rows(iteration, retransmitted=iteration))
    return directory


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a simulation, an earlier run that was killed, and more."""
    make_run(
        tmp_path,
        run_id="second",
        started_at="2026-01-31T12:00:00+00:00",
        world="simulate",
        dilation=10,
    ).finish(ended=STARTED)
    make_run(
        tmp_path,
        run_id="first",
        started_at="2026-01-30T12:00:00+00:00",
        world="loopback",
    ).flush()
    (tmp_path / "no-run").mkdir()
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    (damaged / "run.json").write_text("{}", encoding="utf-8")
    return tmp_path


def test_runs_are_listed_by_time_with_key_figures(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["runs", str(folder), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    first, second = document["runs"]
    assert [first["run_id"], second["run_id"]] == ["first", "second"]
    assert (first["status"], second["status"]) == ("killed", "complete")
    assert (first["world"], second["world"]) == ("loopback", "simulate")
    assert first["name"] == "quick start"
    assert (first["ranks"], first["iterations"]) == (4, 2)
    assert Path(second["directory"]).name == "20260131T120000Z-quick-start-simulate"
    assert Path(first["directory"]).name == "20260131T120000Z-quick-start"
    (unreadable,) = document["unreadable"]
    assert unreadable["directory"].endswith("damaged/run.json")


def test_key_figures_are_those_of_the_tables(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["runs", str(folder), "--json"]) == 0
    first, second = json.loads(capsys.readouterr().out)["runs"]
    directory = make_run(folder, run_id="r", started_at="2027", world="loopback")
    del directory
    from chakram.run_directory.reader import open_run

    results = open_run(Path(second["directory"]))
    records = [record for record in results.collectives() if record.measured]
    times_ns = [
        max(each.end_ns for each in some) - min(each.start_ns for each in some)
        for number in (1, 2)
        for some in [[each for each in results.ranks() if each.iteration == number]]
    ]
    assert second["iteration_ns"] == sum(times_ns) / 2 / 10
    assert first["iteration_ns"] == sum(times_ns) / 2
    bus_bytes = sum(
        record.identity.size_bytes
        * float(bus_factor(record.identity.op, nranks=record.identity.nranks))
        for record in records
    )
    busy_ns = sum(
        record.duration_ns
        for record in records
        if record.identity.op is not CollectiveOp.BARRIER
    )
    assert first["bus_bw"] == pytest.approx(bus_bytes / busy_ns)
    assert second["bus_bw"] == pytest.approx(10 * bus_bytes / busy_ns)
    packets = sum(record.packets for record in records)
    again = sum(record.retransmitted for record in records)
    assert again > 0
    assert first["retransmitted_share"] == pytest.approx(again / packets)


def test_the_table_has_a_line_per_run(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["runs", str(folder)]) == 0
    printed = capsys.readouterr()
    heading, first, second = printed.out.splitlines()
    assert heading.startswith("started (UTC)        name         world     status")
    assert first.startswith("2026-01-30 12:00:00  quick start  loopback  killed")
    assert second.startswith("2026-01-31 12:00:00  quick start  simulate  complete")
    assert "note: skipped: " in printed.err
    assert "has no schema_version" in printed.err


def test_small_bandwidths_have_significant_digits(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run_list, "_of_collectives", lambda results: (512_000.0, 0.0))
    assert main(["runs", str(folder)]) == 0
    assert all("0.000512" in row for row in capsys.readouterr().out.splitlines()[1:])


def test_a_folder_without_runs_and_one_that_is_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["runs", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"there are no runs in {tmp_path}\n"
    assert main(["runs", str(tmp_path / "none")]) == 2
    assert "is not a folder (name the folder that contains" in capsys.readouterr().err


def test_a_damaged_table_is_told_and_the_run_listed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (damaged,) = folder.glob("*-simulate")
    (damaged / "ranks.parquet").write_bytes(b"no parquet")
    assert main(["runs", str(folder)]) == 0
    printed = capsys.readouterr()
    assert "simulate  complete" in printed.out
    assert "note: " in printed.err
    assert "table 'ranks' cannot be read" in printed.err
