"""Files that a run writes, and reading them back."""

from __future__ import annotations

import errno
import json
import os
from array import array
from dataclasses import fields
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from chakram.console.summary_document import summary_document
from chakram.foundation.errors import DamagedRun, PeerError, RunDirectoryError
from chakram.plan.plan import RunSettings
from chakram.plan.transport import TransportPlan
from chakram.records.row_layout import (
    FLOW_FIELDS,
    ITERATION_FIELDS,
    PORT_FIELDS,
    QUEUE_PAIR_FIELDS,
    SHARE_FIELDS,
    RecordRows,
)
from chakram.run_directory import growing_table, writer
from chakram.run_directory.manifest import ClockReading, RunManifest
from chakram.run_directory.reader import open_run
from chakram.run_directory.writer import RunDirectory
from tests.run_directories import STARTED, begin, files
from tests.small_run import (
    ALL_REDUCE_NS,
    ALL_TO_ALL_NS,
    COMPUTE_NS,
    MESSAGE_NS,
    row_of,
    small_rows,
)
from tests.support import REPO_ROOT

ITERATION_END_NS = COMPUTE_NS + ALL_REDUCE_NS + ALL_TO_ALL_NS + MESSAGE_NS


def test_a_run_becomes_fourteen_files(tmp_path: Path) -> None:
    directory = begin(tmp_path / "runs")
    for iteration in range(4):
        directory.add(small_rows(iteration))
    directory.finish(ended=STARTED)
    assert directory.path.name == "20260131T120000Z-quick-start"
    assert files(directory.path) == [
        "clocks.parquet",
        "collectives.parquet",
        "experiment.yaml",
        "faults.parquet",
        "flows.parquet",
        "link_samples.parquet",
        "links.parquet",
        "operations.parquet",
        "plan.json",
        "ports.parquet",
        "queue_pair_ends.parquet",
        "queue_pairs.parquet",
        "ranks.parquet",
        "run.json",
    ]
    manifest = open_run(directory.path).manifest
    assert manifest.status == "complete"
    assert manifest.rows == {
        "flows": 116,
        "collectives": 16,
        "ranks": 16,
        "operations": 40,
        "links": 0,
        "faults": 0,
        "queue_pairs": 0,
        "ports": 0,
        "link_samples": 0,
        "queue_pair_ends": 0,
        "clocks": 0,
    }
    assert (directory.path / "experiment.yaml").read_text() == "version: 1\n"
    planned = json.loads((directory.path / "plan.json").read_text())
    assert len(planned["ranks"]) == 4
    assert planned["transport"].keys() == {each.name for each in fields(TransportPlan)}
    assert planned["settings"].keys() == {each.name for each in fields(RunSettings)}


def test_a_killed_run_is_readable_up_to_the_last_flush(tmp_path: Path) -> None:
    directory = begin(tmp_path)
    directory.add(small_rows(0))
    directory.flush()
    directory.add(small_rows(1))
    # Killed while the next part was being written.
    (directory.path / "flows/part-00001.tmp").write_bytes(b"PAR1 and then nothing")
    results = open_run(directory.path)
    assert results.manifest.status == "running"
    assert len(results.collectives()) == 4
    assert results.table("flows").num_rows == 29
    assert len(results.ranks()) == 4
    assert results.links() == []
    assert results.completion_times() == {}


def test_many_flows_are_flushed_automatically(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "ROWS_PER_PART", 50)
    directory = begin(tmp_path)
    for iteration in range(5):
        directory.add(small_rows(iteration))
    parts = [name for name in files(directory.path) if name.startswith("flows/")]
    assert parts == ["flows/part-00000.parquet", "flows/part-00001.parquet"]
    directory.finish(ended=STARTED)
    assert open_run(directory.path).table("flows").num_rows == 5 * 29


def test_unfinished_collectives_are_kept_as_such(tmp_path: Path) -> None:
    directory = begin(tmp_path)
    directory.add(small_rows(1, ranks=[0, 1]))
    directory.finish("partial", ended=STARTED, reason="interrupted")
    results = open_run(directory.path)
    complete = {
        record.identity.key.group: record.complete for record in results.collectives()
    }
    assert complete == {"world": False, "ep0": True, "p2p:0>1": True}
    assert (results.manifest.status, results.manifest.reason) == (
        "partial",
        "interrupted",
    )


def test_runs_of_the_same_second_get_a_directory_each(tmp_path: Path) -> None:
    names = [begin(tmp_path).path.name for _ in range(3)]
    assert names == [
        "20260131T120000Z-quick-start",
        "20260131T120000Z-quick-start-2",
        "20260131T120000Z-quick-start-3",
    ]


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file is in the way")
    with pytest.raises(RunDirectoryError, match="runs: cannot be written") as caught:
        begin(tmp_path / "runs")
    assert caught.value.exit_code == 3


@pytest.mark.parametrize(
    "rows",
    [
        RecordRows(flows=array("q", [0] * (len(FLOW_FIELDS) - 1))),
        RecordRows(flows=array("q", row_of(FLOW_FIELDS, rank=9))),
        RecordRows(shares=array("q", row_of(SHARE_FIELDS, operation=99))),
        RecordRows(iterations=array("q", row_of(ITERATION_FIELDS, rank=-1))),
        RecordRows(queue_pairs=array("q", row_of(QUEUE_PAIR_FIELDS, peer=9))),
        RecordRows(ports=array("q", row_of(PORT_FIELDS, port=77))),
        # A cause that does not exist.
        RecordRows(flows=array("q", row_of(FLOW_FIELDS, operation=1, cause_kind=7))),
    ],
)
def test_rows_that_contradict_the_plan_are_an_agent_error(
    tmp_path: Path, rows: RecordRows
) -> None:
    directory = begin(tmp_path)

    def take_and_write() -> None:
        directory.add(rows)
        directory.flush()

    with pytest.raises(PeerError, match="are invalid: "):
        take_and_write()
    directory.finish("failed", ended=STARTED)
    assert open_run(directory.path).manifest.status == "failed"


def test_rows_before_the_plan_are_refused(tmp_path: Path) -> None:
    manifest = RunManifest(run_id="r", name="../..", world="loopback", started_at="")
    directory = RunDirectory.create(tmp_path, manifest=manifest, started=STARTED)
    assert directory.path.parent == tmp_path
    with pytest.raises(ValueError, match="before the plan"):
        directory.add(small_rows(0))


@pytest.mark.parametrize("character", ["a", "測", "𠀀"])
def test_a_name_of_any_characters_fits_into_a_file_name(
    tmp_path: Path, character: str
) -> None:
    name = 300 * character
    manifest = RunManifest(run_id="r", name=name, world="simulate", started_at="")
    directory = RunDirectory.create(tmp_path, manifest=manifest, started=STARTED)
    assert 40 * character in directory.path.name
    assert open_run(directory.path).manifest.name == name


def test_a_folder_whose_name_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    parent = tmp_path / os.fsdecode(b"caf\xe9")
    manifest = RunManifest(run_id="r", name="r", world="simulate", started_at="")
    with pytest.raises(RunDirectoryError, match="not a name in UTF-8"):
        RunDirectory.create(parent, manifest=manifest, started=STARTED)
    assert not parent.exists()


def test_a_table_in_a_folder_whose_name_is_not_utf_8_is_refused(
    tmp_path: Path,
) -> None:
    directory = begin(tmp_path)
    directory.finish("complete", ended=STARTED)
    moved = directory.path.rename(tmp_path / os.fsdecode(b"caf\xe9"))
    with pytest.raises(RunDirectoryError, match="not in UTF-8"):
        open_run(moved).collectives()


def test_a_damaged_table_is_refused_with_its_name(tmp_path: Path) -> None:
    directory = begin(tmp_path)
    directory.finish(ended=STARTED)
    (directory.path / "flows.parquet").write_bytes(b"no parquet")
    with pytest.raises(DamagedRun, match="table 'flows' cannot be read") as refused:
        open_run(directory.path).table("flows")
    assert refused.value.exit_code == 2


def test_a_column_name_that_is_no_text_is_refused(tmp_path: Path) -> None:
    directory = begin(tmp_path)
    directory.finish(ended=STARTED)
    path = directory.path / "flows.parquet"
    path.write_bytes(path.read_bytes().replace(b"posted_ns", b"\x80osted_ns"))
    with pytest.raises(RunDirectoryError, match="table 'flows' cannot be read"):
        open_run(directory.path).table("flows")


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        *((name, "folder") for name in ("flows", "collectives", "ranks", "links")),
        *((name, "folder") for name in ("queue_pairs", "ports", "queue_pair_ends")),
        *((name, "another") for name in ("flows", "collectives", "ranks", "links")),
        ("queue_pair_ends", "another"),
    ],
)
def test_path_that_is_no_table_file_is_reported(
    name: str, instead: str, tmp_path: Path
) -> None:
    directory = begin(tmp_path)
    directory.add(small_rows(1))
    directory.finish(ended=STARTED)
    place = directory.path / f"{name}.parquet"
    place.unlink()
    if instead == "folder":
        place.mkdir()
    else:
        pq.write_table(pa.table({"nothing": [1]}), place)
    results = open_run(directory.path)
    told = []
    for read in (results.summary, results.queue_pair_metrics, results.port_metrics):
        try:
            read()
        except RunDirectoryError as error:
            told.append(str(error))
    assert any(name in each for each in told)


def test_too_deeply_nested_plan_is_reported(tmp_path: Path) -> None:
    directory = begin(tmp_path)
    directory.finish(ended=STARTED)
    (directory.path / "plan.json").write_text("[" * 100_000)
    with pytest.raises(RunDirectoryError, match="is damaged: Invalid JSON"):
        open_run(directory.path).message_transport()


def test_every_key_of_the_manifest_is_in_the_reference() -> None:
    page = (REPO_ROOT / "docs/reference/run-directory.md").read_text(encoding="utf-8")
    for item in fields(RunManifest):
        assert f"`{item.name}`" in page


def test_a_run_without_its_end_has_no_models(tmp_path: Path) -> None:
    directory = begin(tmp_path)
    directory.add(small_rows(1))
    directory.flush()
    results = open_run(directory.path)
    assert (results.bounds(), results.predictions()) == ({}, {})
    assert results.summary().banners[0] == "RUNNING: the run has not ended"


def test_an_iteration_counts_when_all_ranks_have_ended_it(tmp_path: Path) -> None:
    directory = begin(tmp_path, jobs={"moe": {"ranks": 4}})
    for iteration in (1, 2):
        directory.add(small_rows(iteration))
    directory.add(small_rows(3, ranks=(0, 1, 3), slower_ns=10**9))
    directory.flush()
    results = open_run(directory.path)
    assert {each.iteration for each in results.ranks()} == {1, 2, 3}
    assert {each.iteration for each in results.ranks(whole=True)} == {1, 2}
    (iterations,) = results.summary().iterations
    assert (iterations.iterations, iterations.max_ns) == (2, ITERATION_END_NS)


def test_a_run_of_one_unfinished_iteration_has_none(tmp_path: Path) -> None:
    directory = begin(tmp_path, jobs={"moe": {"ranks": 4}})
    directory.add(small_rows(1, ranks=(0, 2)))
    directory.flush()
    summary = open_run(directory.path).summary()
    assert (summary.iterations, summary.ranks) == ((), ())
    assert not summary.is_counted
    found = summary_document(summary)
    assert (found["packets"], found["unfinished_collectives"]) == (None, None)


def test_a_run_whose_tables_cannot_be_merged_is_partial(tmp_path: Path) -> None:
    directory = begin(tmp_path)
    for iteration in range(4):
        directory.add(small_rows(iteration))
    (directory.path / "operations.tmp").mkdir()  # no file can be written there
    directory.flush()
    directory.add(small_rows(4))
    directory.flush()  # a second part: one alone is only renamed
    with pytest.raises(RunDirectoryError, match=r"operations\.tmp"):
        directory.finish(ended=STARTED)
    results = open_run(directory.path)
    manifest = results.manifest
    assert manifest.status == "partial"
    assert "cannot be written" in str(manifest.reason)
    assert {each.iteration for each in results.ranks()} == set(range(5))
    assert manifest.rows["operations"] == results.table("operations").num_rows > 0


def test_no_iteration_is_recorded_after_messages_could_not_be(tmp_path: Path) -> None:
    directory = begin(tmp_path)
    directory.add(small_rows(0))
    directory.flush()
    blocked = directory.path / "flows" / "part-00001.tmp"
    blocked.mkdir()
    directory.add(small_rows(1))
    with pytest.raises(RunDirectoryError, match="part-00001"):
        directory.flush()
    blocked.rmdir()
    directory.add(small_rows(2))
    directory.finish(ended=STARTED, status="partial", reason="the disk was full")
    results = open_run(directory.path)
    assert {each.iteration for each in results.ranks()} == {0}
    assert set(results.table("flows")["iteration"].to_pylist()) == {0}


def test_a_part_that_cannot_be_written_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = begin(tmp_path)
    directory.add(small_rows(0))

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(growing_table.os, "replace", fail)
    with pytest.raises(RunDirectoryError, match="No space left"):
        directory.flush()
    assert not [name for name in files(directory.path) if name.endswith(".tmp")]


def test_a_run_that_failed_before_its_plan_can_be_finished(tmp_path: Path) -> None:
    manifest = RunManifest(run_id="r", name="r", world="loopback", started_at="")
    directory = RunDirectory.create(tmp_path, manifest=manifest, started=STARTED)
    directory.finish("failed", ended=STARTED, reason="no agent")
    results = open_run(directory.path)
    assert (results.manifest.status, results.collectives()) == ("failed", [])


@pytest.mark.parametrize(
    ("world", "rate_key", "stretches"),
    [
        ("namespaces", "fabric.links.host.rate", True),
        ("loopback", "fabric.rate", True),
        ("external", "fabric.defaults.rate", False),
        ("simulate", None, True),
        ("of a later version", None, True),
    ],
)
def test_facts_name_the_key_of_the_port_rate(
    tmp_path: Path, world: str, rate_key: str | None, stretches: bool
) -> None:
    directory = begin(tmp_path, world=world)
    facts = open_run(directory.path).measurements().facts
    assert (facts.rate_key, facts.stretches) == (rate_key, stretches)


def test_facts_include_the_clock_uncertainty(tmp_path: Path) -> None:
    directory = begin(tmp_path)
    assert open_run(directory.path).measurements().facts.clock_uncertainty_ns == 0
    readings = {"h1": 5_000, "h2": 70_000}
    directory.update(
        clocks={
            name: ClockReading(offset_ns=1, uncertainty_ns=uncertainty_ns)
            for name, uncertainty_ns in readings.items()
        }
    )
    facts = open_run(directory.path).measurements().facts
    assert facts.clock_uncertainty_ns == 70_000
