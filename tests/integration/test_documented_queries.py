"""Queries in the documentation do not mix rows of different runs."""

from __future__ import annotations

import re
from array import array
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from chakram.preflight.report import PairReport, PreflightReport, PreflightSettings
from chakram.records.row_layout import LINK_SAMPLE_FIELDS
from chakram.run_directory.added_flow_columns import MessageColumns
from chakram.run_directory.manifest import RunManifest
from chakram.run_directory.preflight_files import save_preflight
from chakram.run_directory.writer import RunDirectory
from tests.run_directories import STARTED
from tests.small_run import row_of, small_plan, small_rows
from tests.support import REPO_ROOT

duckdb = pytest.importorskip("duckdb")

RUNS = {"r1": "namespaces", "r2": "simulate"}
FAULTS = (
    {
        "fault": "link h0-leaf0 down",
        "kind": "down",
        "link": "h0-leaf0",
        "ports": ["h0:eth0"],
        "at_ns": 1,
        "until_ns": 2,
    },
)
QUERIES = [
    pytest.param(query, id=f"{page.name}-{number}")
    for page in sorted((REPO_ROOT / "docs").rglob("*.md"))
    for number, query in enumerate(
        re.findall(r"^```sql\n(.*?)^```$", page.read_text("utf-8"), re.M | re.S)
    )
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with ``runs``: a run, its simulation, and two preflights."""
    monkeypatch.chdir(tmp_path)
    for run_id, world in RUNS.items():
        manifest = RunManifest(
            run_id=run_id, name="incast", world=world, started_at="", warmup=1
        )
        directory = RunDirectory.create(
            tmp_path / "runs", manifest=manifest, started=STARTED
        )
        directory.begin(small_plan(), ports=("h0:eth0", "s0:h1"))
        for iteration in range(2):
            directory.add(small_rows(iteration))
        sampled = {"time_ns": 10, "port": 1, "traffic_class": 3, "queue_max_bytes": 99}
        directory.add_link_samples(array("q", row_of(LINK_SAMPLE_FIELDS, **sampled)))
        fair = MessageColumns(lambda _, messages: [1000] * len(messages))
        directory.finish(ended=STARTED, messages=fair, link_faults=FAULTS)
        preflight = tmp_path / "runs" / f"{run_id}-preflight"
        preflight.mkdir()
        pair = PairReport(source="h0", destination="h1")
        report = PreflightReport(
            ports=("h0", "h1"),
            pairs=(pair,),
            findings=(),
            settings=PreflightSettings(path_mtu=4096, max_latency_ns=5000, rounds=1),
        )
        save_preflight(preflight, report, run_id=run_id, dilation=1)
    return tmp_path


def test_documents_contain_queries() -> None:
    assert len(QUERIES) >= 3


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("query", QUERIES)
def test_documented_queries_do_not_mix_runs(query: str) -> None:
    with duckdb.connect() as connection:
        result = connection.execute(query)
        names = [column[0] for column in result.description]
        rows = [dict(zip(names, row, strict=True)) for row in result.fetchall()]
    by_run = {run: [row for row in rows if row["run_id"] == run] for run in RUNS}
    assert all(by_run.values())
    for run, some in by_run.items():
        assert {row.get("world", RUNS[run]) for row in some} == {RUNS[run]}
    left = [
        [
            {name: value for name, value in row.items() if name not in OF_RUNS}
            for row in some
        ]
        for some in by_run.values()
    ]
    assert left[0] == left[1], "the same was recorded in both"


OF_RUNS = ("run_id", "world")


@pytest.mark.usefixtures("folder")
def test_flows_of_many_runs_are_grouped_by_algorithm(folder: Path) -> None:
    with duckdb.connect() as connection:
        found = connection.execute(
            "SELECT DISTINCT run_id, collective, algorithm FROM "
            "'runs/*/flows.parquet' JOIN 'runs/*/collectives.parquet' "
            'USING (run_id, world, job, "group", k, iteration, collective, algorithm)'
        ).fetchall()
    kinds = {(op, algorithm) for _, op, algorithm in found}
    assert {run for run, _, _ in found} == set(RUNS)
    assert ("send_recv", "send") in kinds
    assert len({algorithm for _, algorithm in kinds}) > 1


# With pandas every process takes a second more to start: its script runs where it is.
LIBRARIES = ["polars", *(["pandas"] if find_spec("pandas") else [])]
SCRIPTS = {
    library: script
    for script in re.findall(
        r"^```python [^\n]*\n(.*?)^```$",
        (REPO_ROOT / "docs/reference/run-directory.md").read_text("utf-8"),
        re.M | re.S,
    )
    for library in LIBRARIES
    if f"import {library} " in script
}


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("library", LIBRARIES)
def test_documented_scripts_read_all_runs(library: str) -> None:
    known: dict[str, Any] = {}
    exec(SCRIPTS[library], known)
    table = known["table"].reset_index() if library == "pandas" else known["table"]
    assert {str(each) for each in table["run_id"]} == set(RUNS)
    measured = "count" if library == "pandas" else "messages"
    assert all(each > 0 for each in table[measured])
