"""A written run directory is valid, and any change in it is reported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from chakram.cli import main
from chakram.run_directory.reader import open_run
from chakram.run_directory.validation import check_run
from chakram.topology.topology_helpers import single_switch
from tests.explained_simulations import simulated_run
from tests.unit.analysis.test_run_causes import LINE, LOSSES, LOSSY, exchange

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return a simulated run with everything in it: losses, several collectives."""
    topology = single_switch(4, LINE, host_delay_ns=500)
    return simulated_run(tmp_path, exchange(LOSSES, LOSSY), topology).path


def told(run: Path) -> list[str]:
    return [str(each) for each in check_run(open_run(run))]


def changed(run: Path, name: str, change: Callable[[pa.Table], pa.Table]) -> None:
    """Rewrite a table, and forget its digest."""
    path = run / f"{name}.parquet"
    table = pq.read_table(path)
    pq.write_table(change(table).replace_schema_metadata(table.schema.metadata), path)
    forget(run, digests={})


def forget(run: Path, **changes: object) -> None:
    path = run / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def with_column(
    name: str, change: Callable[[pa.ChunkedArray], pa.Array]
) -> Callable[[pa.Table], pa.Table]:
    def apply(table: pa.Table) -> pa.Table:
        at = table.schema.get_field_index(name)
        column = change(table[name])
        return table.set_column(at, pa.field(name, column.type), column)

    return apply


def one_more(column: pa.ChunkedArray) -> pa.Array:
    """Add 1 to the first value."""
    values = column.to_pylist()
    first = next(at for at, each in enumerate(values) if each is not None)
    values[first] += 1
    return pa.array(values, column.type)


def test_written_run_is_valid(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert told(run) == []
    assert main(["validate", str(run)]) == 0
    assert capsys.readouterr().out == f"{run}: complete run of simulate, valid\n"


def another_run(column: pa.ChunkedArray) -> pa.Array:
    return pa.array(["r2"] * len(column)).dictionary_encode()


DAMAGES = [
    (
        "flows",
        with_column("queue_ns", one_more),
        "flows.parquet: 1 row(s) have parts that do not sum to their time, e.g. job j",
    ),
    (
        "flows",
        with_column("fct_ns", one_more),
        "flows.parquet: 1 row(s) have fct_ns different from last_acked_ns - posted_ns",
    ),
    (
        "flows",
        with_column("bytes", one_more),
        "collectives.parquet: 1 row(s) have sent_bytes different from the sum of their",
    ),
    (
        "flows",
        lambda table: table.slice(1),
        "flows.parquet: has 39 rows, but run.json records 40",
    ),
    (
        "flows",
        lambda table: pa.concat_tables([table.slice(0, 1), table.slice(0, 39)]),
        "flows.parquet: 1 row(s) describe the same message",
    ),
    (
        "flows",
        with_column("dst", lambda each: pc.add(each, 10).cast(pa.int32())),
        "flows.parquet: names rank 10 of job 'job', which is not in plan.json",
    ),
    (
        "flows",
        lambda table: table.drop_columns(["window_ns"]),
        "flows.parquet: has no column window_ns",
    ),
    (
        "links",
        with_column("bytes", lambda each: each.cast(pa.float64())),
        "links.parquet: column bytes is of type double, not int64",
    ),
    (
        "links",
        with_column("bytes", one_more),
        "links.parquet: 1 row(s) have bytes different from bytes_after - bytes_before",
    ),
    (
        "ranks",
        with_column("run_id", another_run),
        "ranks.parquet: 4 row(s) belong to another run: run_id is not 'r1'",
    ),
    (
        "collectives",
        lambda table: table.slice(1),
        "row(s) belong to a collective that is not in collectives.parquet, e.g. job j",
    ),
    (
        "operations",
        with_column("start_ns", lambda each: pc.add(each, 10**12)),
        "have start_ns after end_ns",
    ),
    (
        "operations",
        with_column("end_number", lambda each: pc.add(each, 1 << 20)),
        "ended with a message received that is not in flows.parquet",
    ),
]


@pytest.mark.parametrize(("name", "change", "expected"), DAMAGES)
def test_damaged_run_is_reported(
    run: Path,
    name: str,
    change: Callable[[pa.Table], pa.Table],
    expected: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    changed(run, name, change)
    assert any(expected in each for each in told(run)), told(run)
    assert main(["validate", str(run), "--json"]) == 2
    document = json.loads(capsys.readouterr().out)
    assert (document["schema"], document["valid"]) == ("chakram.validation/1", False)
    assert {"where", "found"} == set(document["findings"][0])


def test_missing_changed_and_foreign_files_are_reported(run: Path) -> None:
    (run / "ranks.parquet").unlink()
    with (run / "experiment.yaml").open("a") as file:
        file.write("# a note\n")
    assert told(run) == [
        "run.json: lists ranks.parquet, which is missing",
        "experiment.yaml: was changed since the run wrote it (SHA-256)",
    ]
    (run / "links.parquet").write_bytes((run / "operations.parquet").read_bytes())
    assert (
        "links.parquet: has chakram.table 'operations', but must have 'links'"
        in told(run)
    )
    (run / "links.parquet").write_bytes(b"PAR1")
    assert any("links.parquet: cannot be read: " in each for each in told(run))


def test_killed_run_is_checked_by_its_written_files(run: Path) -> None:
    for name in ("collectives", "links"):
        (run / f"{name}.parquet").unlink()
    changed(run, "flows", lambda table: table.slice(3))
    forget(run, status="running", rows={}, digests={}, ended_at=None)
    assert told(run) == []
