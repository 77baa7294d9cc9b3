"""Exports of a run have its values and can be read back."""

from __future__ import annotations

import csv
import json
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import chakram
from chakram.analysis.comparison import compare
from chakram.analysis.comparison_inputs import read_side
from chakram.cli import main
from chakram.console.nccl_tests_output import documents_of
from chakram.formats.nccl_tests import TESTS, read_nccl_json
from chakram.formats.ns3 import (
    read_flow_times,
)
from chakram.foundation.errors import ResultsError, RunDirectoryError
from chakram.run_directory.manifest import PARTIAL
from chakram.run_directory.reader import RunResults, open_run
from chakram.run_directory.record_exports import (
    flow_times,
    links_csv,
    pairs_csv,
    pause_events,
    queue_lengths,
)
from tests.ns3_files import read_pauses, read_queue_lengths

EXPERIMENT: dict[str, Any] = {
    "version": 1,
    "name": "two-kinds",
    "jobs": [
        {
            "name": "j",
            "trace": {
                "synth": "collectives",
                "ranks": 4,
                "streams": [
                    {"op": "all_reduce", "size": "1MiB", "count": 2},
                    {"op": "all_to_all", "size": "64KiB", "count": 1},
                ],
            },
            "compute": {"from": "none"},
            "placement": {"first_port": 2},
        }
    ],
    "collectives": {"all_reduce": "ring", "all_to_all": "direct"},
    "iterations": {"warmup": 1, "measured": 2},
    "fabric": {
        "kind": "namespaces",
        "topology": {"single_switch": {"hosts": 6}},
        "links": {"host": {"rate": "1Gbit", "delay": "5us"}},
        "dilation": 2,
    },
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> chakram.Results:
    return chakram.simulate(EXPERIMENT, runs=tmp_path_factory.mktemp("runs"))


def exported(kind: str, source: Path, out: Path, *more: str) -> None:
    assert main(["export", kind, str(source), "--out", str(out), *more]) == 0


def test_exported_messages_equal_those_of_the_run(
    run: chakram.Results, tmp_path: Path
) -> None:
    exported("fct", run.path, tmp_path)
    path = tmp_path / "fct.txt"
    flows = read_flow_times(path.read_bytes(), str(path))
    assert flows == flow_times(run)
    measured = [row for row in run.flows.to_pylist() if row["measured"]]
    # A node is a port, and the first rank is at port 2; time was stretched by 2.
    assert Counter((*each[:2], each.size_bytes, each.fct_ns) for each in flows) == (
        Counter(
            (row["src"] + 2, row["dst"] + 2, row["bytes"], row["fct_ns"] // 2)
            for row in measured
        )
    )
    assert min(each.start_ns for each in flows) == 0
    assert [each.end_ns for each in flows] == sorted(each.end_ns for each in flows)
    assert {each.dst_port for each in flows} == {100}
    ports = [each.src_port for each in flows if each[:2] == (2, 3)]
    assert sorted(ports) == [*range(10_000, 10_000 + len(ports))]
    assert all(0 < each.alone_ns <= each.fct_ns for each in flows)
    found = compare(read_side(run.path), read_side(path))
    rows = found.levels["ports"]
    assert len(rows) > 10
    assert max(abs(each.change or 0) for each in rows) < 1e-4


def test_message_without_a_bound_is_compared_with_the_shortest(
    tmp_path: Path,
) -> None:
    results = chakram.simulate(
        EXPERIMENT, set={"simulation.level": "flow"}, runs=tmp_path
    )
    shortest: dict[Any, int] = {}
    flows = flow_times(results)
    for each in flows:
        key = (each.src, each.dst, each.size_bytes)
        shortest[key] = min(each.fct_ns, shortest.get(key, each.fct_ns))
    assert {
        (each.src, each.dst, each.size_bytes): each.alone_ns for each in flows
    } == shortest


def test_messages_of_barriers_have_a_time_alone(tmp_path: Path) -> None:
    results = chakram.simulate(
        EXPERIMENT,
        # Without delays of links, the bound of a message without bytes is 0.
        set={"iterations.sync": "barrier", "fabric.links.host.delay": "0s"},
        runs=tmp_path,
    )
    times = [each for each in flow_times(results) if not each.size_bytes]
    assert times
    assert all(0 < each.alone_ns <= each.fct_ns for each in times)


def test_pairs_have_all_bytes(run: chakram.Results, tmp_path: Path) -> None:
    exported("p2p", run.path, tmp_path)
    with open(tmp_path / "p2p.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    expected: Counter[tuple[str, str, str]] = Counter()
    for row in run.flows.to_pylist():
        if row["measured"]:
            expected[row["job"], str(row["src"]), str(row["dst"])] += row["bytes"]
    assert {
        (row["job"], row["src"], row["dst"]): int(row["bytes"]) for row in rows
    } == dict(expected)
    assert sum(int(row["messages"]) for row in rows) == sum(
        run.flows["measured"].to_pylist()
    )
    assert rows == sorted(rows, key=lambda row: (row["job"], row["src"], row["dst"]))


def test_exported_links_equal_those_of_the_run(run: chakram.Results) -> None:
    rows = list(csv.DictReader(links_csv(run).decode().splitlines()))
    assert [(row["link"], row["direction"], int(row["bytes"])) for row in rows] == [
        (each.link, each.direction, each.bytes) for each in run.links()
    ]
    assert rows[0]["rate_bps"] == "500000000"  # 1 Gbit/s, stretched by 2


def test_exported_collectives_are_read_as_nccl_tests_output(
    run: chakram.Results, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    exported("nccl-tests", run.path, tmp_path, "--json")
    told = json.loads(capsys.readouterr().out)
    assert told["schema"] == "chakram.exported/1"
    assert told["notes"] == ["2 of barrier are omitted: nccl-tests has no such test"]
    names = ["all_reduce_perf-j-ring-4.json", "all_to_all_perf-j-direct-4.json"]
    names[1] = "alltoall_perf-j-direct-4.json"
    assert [Path(each).name for each in told["written"]] == names
    by_kind = {(row.op, row.size_bytes): row for row in run.summary().rows}
    for name in names:
        test = read_nccl_json(json.loads((tmp_path / name).read_text()), name)
        assert (test.nranks, test.iterations) == (4, 2)
        row, in_place = test.rows
        assert row._replace(in_place=True) == in_place
        own = by_kind[TESTS[name.partition("_perf")[0]], row.size_bytes]
        assert row.time_ns == pytest.approx(own.time_ns, rel=1e-9)
        assert len(row.times_ns) == 2
    assert read_side(tmp_path / names[0]).kind == "nccl-tests"


def test_an_experiment_is_simulated_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "experiment.yaml"
    path.write_text(json.dumps(EXPERIMENT))
    runs = tmp_path / "runs"
    exported("p2p", path, tmp_path, "--runs", str(runs))
    (folder,) = runs.iterdir()
    first = chakram.open_run(folder)
    assert (tmp_path / "p2p.csv").read_bytes() == pairs_csv(first)
    capsys.readouterr()
    # Nothing is replaced unasked, and nothing of a run can be changed.
    refused = ["export", "p2p", str(first.path), "--out", str(tmp_path)]
    assert main(refused) == 2
    assert "p2p.csv: exists already" in capsys.readouterr().err
    assert main([*refused, "--force", "--set", "seed=2"]) == 2
    assert "is a run directory" in capsys.readouterr().err
    assert main([*refused, "--force"]) == 0


def test_run_without_messages_is_reported(run: chakram.Results, tmp_path: Path) -> None:
    shutil.copytree(run.path, tmp_path / "run")
    (tmp_path / "run" / "flows.parquet").unlink()
    results = chakram.open_run(tmp_path / "run")
    for export in (flow_times, pairs_csv):
        with pytest.raises(ResultsError, match="has no messages of measured"):
            export(results)


def incast(
    tmp_path: Path, *, overrides: dict[str, Any] | None = None, **changes: Any
) -> chakram.Results:
    trace = {"synth": "incast", "ranks": 4, "fan_in": 3, "size": "256KiB"}
    experiment = {
        "version": 1,
        "name": "pauses",
        "jobs": [{"name": "j", "trace": trace}],
        "iterations": {"warmup": 0, "measured": 1},
        "fabric": {
            "kind": "namespaces",
            "switch": "model",
            "topology": {"single_switch": {"hosts": 4}},
            "links": {"host": {"rate": "10Gbit", "delay": "500ns"}},
            "switches": {"profile": "ns3", "buffer": "512KiB"},
        },
        "transport": {"congestion_control": "none", "window": "256KiB"},
        "records": {"sample_bin": "1us"},
        "predict": [],
    }
    return chakram.simulate(
        {**experiment, **changes}, set=overrides, runs=tmp_path / "runs"
    )


def test_exported_queues_and_pauses_equal_the_samples(tmp_path: Path) -> None:
    results = incast(tmp_path)
    for kind in ("qlen", "pfc"):
        exported(kind, results.path, tmp_path)
    queues = read_queue_lengths((tmp_path / "qlen.txt").read_bytes(), "qlen.txt")
    samples = results.table("link_samples").to_pylist()
    longest = max(row["queue_bytes"] for row in samples if row["port"] == "s0:h0")
    # Hosts are nodes 0 to 3; the port to the first one is interface 1 of the switch.
    assert {each.node for each in queues} == {4}
    at_port = [each.size_bytes for each in queues if each.interface == 1]
    assert max(at_port) == longest > 10_000
    assert all(each.size_bytes >= 1000 for each in queues)
    times_ns = [each.time_ns for each in queues]
    assert times_ns == sorted(times_ns)
    events = read_pauses((tmp_path / "pfc.txt").read_bytes(), "pfc.txt")
    rested_ns: Counter[int] = Counter()
    for each in events:
        assert (each.is_switch, each.interface) == (False, 1)
        rested_ns[each.node] += each.time_ns * (-1 if each.pauses else 1)
    paused = {each.port: each.paused_ns for each in results.links()}
    expected = {n: paused[f"h{n}:eth0"] for n in range(4) if paused[f"h{n}:eth0"]}
    assert expected
    assert {node: time_ns for node, time_ns in rested_ns.items() if time_ns} == expected


def test_run_without_samples_is_reported(tmp_path: Path) -> None:
    results = incast(tmp_path, records={"sample_bin": "0s"})
    for export in (queue_lengths, pause_events):
        with pytest.raises(ResultsError, match="contains no queue samples"):
            export(results)


def test_samples_of_a_run_that_was_killed_have_no_places(tmp_path: Path) -> None:
    results = incast(tmp_path)
    (results.path / "links.parquet").unlink()
    for export in (queue_lengths, pause_events):
        with pytest.raises(ResultsError, match="does not list its ports"):
            export(results)


def test_samples_without_a_message_have_no_start(tmp_path: Path) -> None:
    results = incast(tmp_path)
    (results.path / "flows.parquet").unlink()
    for export in (queue_lengths, pause_events):
        with pytest.raises(ResultsError, match="has no measured message"):
            export(results)


def test_unfinished_pause_of_an_incomplete_run_has_no_end(
    tmp_path: Path,
) -> None:
    results = incast(tmp_path)
    file = results.path / "link_samples.parquet"
    table = pq.read_table(file)
    resting = table.filter(pc.field("paused_ns") > 0)
    last_ns = pc.min(resting["time_ns"]).as_py()
    pq.write_table(table.filter(pc.field("time_ns") <= last_ns), file)
    incomplete = RunResults(results.path, replace(results.manifest, status=PARTIAL))

    assert [each.pauses for each in pause_events(results)].count(False) > 0
    assert all(each.pauses for each in pause_events(incomplete))


def test_samples_of_an_unknown_port_are_refused(tmp_path: Path) -> None:
    results = incast(tmp_path)
    path = results.path / "links.parquet"
    links = pq.ParquetFile(path).read()
    pq.write_table(links.filter(pc.field("port") != "s0:h0"), path)
    with pytest.raises(RunDirectoryError, match="names port 's0:h0'"):
        queue_lengths(open_run(results.path))


def test_samples_of_all_classes_together_are_exported(tmp_path: Path) -> None:
    results = incast(tmp_path)
    file = results.path / "link_samples.parquet"
    table = pq.read_table(file)
    paused = table.filter(pc.field("paused_ns") > 0)["traffic_class"][0]
    table = table.filter(pc.field("traffic_class") == paused)
    pq.write_table(table, file)
    expected = queue_lengths(results), pause_events(results)
    assert all(expected)
    at = table.column_names.index("traffic_class")
    nulls = pa.nulls(table.num_rows, pa.int32())
    whole = table.set_column(at, table.field(at), nulls)
    # A switch may also count each class.
    for samples in (whole, pa.concat_tables([table, whole])):
        pq.write_table(samples, file)
        found = open_run(results.path)
        assert (queue_lengths(found), pause_events(found)) == expected


def test_hosts_have_the_same_numbers_in_all_exports(tmp_path: Path) -> None:
    hosts = ["a", "spare", "b", "c", "d"]
    results = incast(
        tmp_path,
        overrides={
            "fabric.topology": {
                "graph": {
                    "hosts": hosts,
                    "switches": ["s"],
                    "links": [{"ends": [host, "s"]} for host in [*hosts[1:], "a"]],
                }
            },
            "jobs[0].placement": {"ports": [0, 2, 3, 4]},
        },
    )
    names = {
        str(each.port).partition(":")[0] for each in results.links() if each.pauses
    }
    paused = {each.node for each in pause_events(results)}
    assert paused == {hosts.index(name) for name in names}
    assert paused < {each.src for each in flow_times(results)}
    assert {each.node for each in queue_lengths(results)} == {5}


def test_missing_files_are_noted(
    run: chakram.Results, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(run.path, tmp_path / "run")
    (tmp_path / "run" / "links.parquet").unlink()
    with pytest.raises(ResultsError, match="has no counters of links"):
        links_csv(open_run(tmp_path / "run"))
    exported("p2p", tmp_path / "run", tmp_path)
    assert (
        "note: files of the run are missing: links.parquet" in capsys.readouterr().out
    )


def test_jobs_with_similar_names_have_separate_documents(tmp_path: Path) -> None:
    job = EXPERIMENT["jobs"][0]
    jobs = [
        {**job, "name": name, "placement": {"ports": ports}}
        for name, ports in (("j.1", [0, 1, 2, 3]), ("j-1", [4, 5, 6, 7]))
    ]
    results = chakram.simulate(
        {**EXPERIMENT, "jobs": jobs},
        set={
            "fabric.topology.single_switch.hosts": 8,
            "simulation.level": "message",
        },
        runs=tmp_path,
    )
    documents, _ = documents_of(results, version="1")
    assert len(documents) == 4
