"""Table of injected faults: times, places and recovery, in all outputs."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from chakram.analysis.run_causes import surroundings_of, why_of
from chakram.cli import main
from chakram.collectives.ops import CollectiveOp
from chakram.report.run.data import RunData
from chakram.report.run.page import run_page
from chakram.report.run.rows import report_rows
from chakram.run_directory.reader import RunResults, open_run
from chakram.run_directory.validation import check_run

MS = 10**6
SHADES = '"fill_alpha":0.15'
EXPERIMENT = """\
version: 1
name: faulty
jobs:
  - name: job
    trace:
      synth: collectives
      ranks: 4
      streams: [{op: all_reduce, size: 256KiB, count: 4}]
iterations: {warmup: 0, measured: 3}
collectives: {all_reduce: ring}
fabric:
  kind: namespaces
  topology: {clos: {leaves: 2, spines: 1, hosts_per_leaf: 2}}
  links: {host: {rate: 10Gbit}, uplink: {rate: 20Gbit}}
transport: {window: 256KiB, retransmit_timeout: 2ms, retry_limit: 100}
faults:
  links:
    - {kind: degrade, link: h1-leaf0, direction: up, rate: 1Gbit, at: 1ms, for: 400us}
    - {kind: down, link: leaf1-spine0, at: 2ms, for: 100us}
    - {kind: loss, link: h3-leaf1, direction: down, probability: 0.001, at: 5ms}
    - {kind: degrade, link: h0-leaf0, rate: 5Gbit, for: 200us}
    - {kind: degrade, link: h1-leaf0, direction: up, rate: 2Gbit, at: 10s}
    - {kind: degrade, link: h2-leaf1, direction: up, rate: 2Gbit, at: 10s}
  packets: [{action: mark, nth: 3}]
predict: []
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> RunResults:
    folder = tmp_path_factory.mktemp("faulty")
    path = folder / "faulty.yaml"
    path.write_text(EXPERIMENT)
    assert main(["simulate", str(path), "--runs", str(folder / "runs")]) == 0
    (run,) = (folder / "runs").iterdir()
    return open_run(run)


def faults(results: RunResults) -> dict[str, dict[str, Any]]:
    return {row["entry"]: row for row in results.table("faults").to_pylist()}


def rates(results: RunResults, src: int, dst: int, begin_ns: int) -> list[float]:
    """Return the rate from one rank to another after a time, in bytes per ns."""
    # Messages of barriers have no bytes.
    rows = results.table("flows").sort_by("first_sent_ns").to_pylist()
    return [
        row["bytes"] / (row["last_acked_ns"] - row["first_sent_ns"])
        for row in rows
        if (row["src"], row["dst"]) == (src, dst)
        and row["first_sent_ns"] >= begin_ns
        and row["bytes"]
    ]


def test_every_entry_is_a_row_with_its_times(results: RunResults) -> None:
    found = faults(results)
    assert [
        (row["kind"], row["link"], row["direction"], row["start_ns"], row["end_ns"])
        for row in found.values()
    ] == [
        ("degrade", "h1-leaf0", "up", 1 * MS, 1_400_000),
        ("down", "leaf1-spine0", None, 2 * MS, 2_100_000),
        ("loss", "h3-leaf1", "down", 5 * MS, None),
        ("degrade", "h0-leaf0", None, 0, 200_000),
        ("degrade", "h1-leaf0", "up", None, None),
        ("degrade", "h2-leaf1", "up", None, None),
        ("mark", None, None, None, None),
    ]
    assert found["faults.packets[0]"]["packets"] > 0
    # Unknown: faults until the end, without earlier messages, and of packets.
    for entry in ("links[2]", "links[3]", "links[4]", "packets[0]"):
        assert found[f"faults.{entry}"]["recovered_ns"] is None


def test_faults_that_never_began_are_reported_but_explain_no_cause(
    results: RunResults,
) -> None:
    late = [each for each in results.manifest.banners if "never started" in each]
    assert [each.partition(" never started: ")[0] for each in late] == [
        "fault: faults.links[4]",
        "fault: faults.links[5]",
    ]
    around = surroundings_of(results)
    assert "10s" not in " ".join(around.faults.values())
    assert around.slow_ports == {"h0:eth0", "leaf0:h0", "h1:eth0"}


@pytest.mark.parametrize(
    ("entry", "sessions"), [("links[0]", [(1, 2)]), ("links[1]", [(1, 2), (3, 0)])]
)
def test_traffic_has_recovered_when_its_messages_are_as_fast_as_before(
    results: RunResults, entry: str, sessions: list[tuple[int, int]]
) -> None:
    row = faults(results)[f"faults.{entry}"]
    assert row["end_ns"] < row["recovered_ns"] < row["end_ns"] + 4 * MS
    slow = 0
    for src, dst in sessions:
        usual = max(rates(results, src, dst, 0))
        assert rates(results, src, dst, row["recovered_ns"])[0] > 0.85 * usual
        rows = results.table("flows").to_pylist()
        slow += sum(
            each["bytes"] < 0.85 * usual * (row["recovered_ns"] - each["first_sent_ns"])
            for each in rows
            if (each["src"], each["dst"], each["last_acked_ns"])
            == (src, dst, row["recovered_ns"])
        )
    assert slow == 1, "the last slow message is what recovery waits for"


def test_why_names_faults_injected_at_the_place_of_a_cause(
    results: RunResults, capsys: pytest.CaptureFixture[str]
) -> None:
    said = "link h1-leaf0 (up) has 1Gbit at 1ms for 400us"
    of_place = {each.place: each.fault for each in why_of(results).causes}
    assert of_place["h1-leaf0 up"] == said
    assert {place for place, fault in of_place.items() if fault} <= {
        "h1-leaf0 up",
        "h0-leaf0 up",
        "h0-leaf0 down",
        "leaf1-spine0 up",
        "leaf1-spine0 down",
        "h3-leaf1 down",
    }
    capsys.readouterr()
    assert main(["why", str(results.path), "--no-verify"]) == 0
    assert f"slow link at h1-leaf0 up (injected: {said})" in capsys.readouterr().out


def test_report_rows_are_collectives_that_move_data(results: RunResults) -> None:
    (row,) = report_rows(RunData(results))
    assert row.row.op is CollectiveOp.ALL_REDUCE
    assert len(row.records) == 3 * 4


def test_the_page_lists_and_shades_them(results: RunResults) -> None:
    page = run_page(results)
    lasted, recovered = 4, 2
    # Congestion, ports that send and that receive, timeline of ranks.
    figures = 4
    assert page.count(SHADES) == figures * (lasted + recovered)
    for row in faults(results).values():
        assert row["fault"] in page
    assert "recovered after" in page


@pytest.mark.parametrize(
    ("column", "value", "expected"),
    [
        (
            "link",
            "h9-leaf9",
            "name a link that is not in links.parquet, e.g. link h9",
        ),
        ("end_ns", 1, "have start_ns after end_ns"),
        ("recovered_ns", 1, "have end_ns after recovered_ns"),
    ],
)
def test_inconsistent_table_is_reported(
    results: RunResults, tmp_path: Path, column: str, value: object, expected: str
) -> None:
    assert check_run(results) == []
    run = tmp_path / "run"
    shutil.copytree(results.path, run)
    table = pq.read_table(run / "faults.parquet")
    at = table.schema.get_field_index(column)
    values = [value, *table[column].to_pylist()[1:]]
    changed = table.set_column(at, column, pa.array(values, table[column].type))
    pq.write_table(
        changed.replace_schema_metadata(table.schema.metadata), run / "faults.parquet"
    )
    told = [str(each) for each in check_run(open_run(run))]
    assert any(expected in each for each in told), told
