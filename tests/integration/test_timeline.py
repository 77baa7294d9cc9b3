"""The timeline of a run compared with its tables."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

import chakram
from chakram.cli import main
from chakram.report.perfetto_timeline import _us
from tests.support import REPO_ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from chakram.run_directory.reader import RunResults


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> RunResults:
    return chakram.simulate(
        REPO_ROOT / "configs/quickstart.yaml",
        set={
            "jobs[0].trace.all_to_all": "256KiB",
            "jobs[0].trace.all_reduce": "512KiB",
            "jobs[0].trace.dense": "256KiB",
            "iterations.measured": "1",
            "fabric.dilation": "1",  # so that tables hold the times of the timeline
            "records.sample_bin": "12.5us",
        },
        runs=tmp_path_factory.mktemp("runs"),
    )


@pytest.fixture(scope="module")
def events(
    simulated: RunResults, tmp_path_factory: pytest.TempPathFactory
) -> list[dict[str, Any]]:
    path = tmp_path_factory.mktemp("timeline") / "timeline.json.gz"
    assert main(["timeline", str(simulated.path), "--out", str(path)]) == 0
    document = json.loads(gzip.decompress(path.read_bytes()))
    assert document["otherData"]["run_id"] == simulated.manifest.run_id
    found: list[dict[str, Any]] = document["traceEvents"]
    return found


def of(events: list[dict[str, Any]], phase: str) -> list[dict[str, Any]]:
    return [event for event in events if event["ph"] == phase]


def test_every_message_is_an_arrow_at_its_times(
    simulated: RunResults, events: list[dict[str, Any]]
) -> None:
    flows = simulated.table("flows").to_pylist()
    origin_ns = min(rank.start_ns for rank in simulated.ranks())
    number = {rank.rank: rank.number + 1 for rank in simulated.ranks()}
    begins = {event["id"]: event for event in of(events, "s")}
    ends = {event["id"]: event for event in of(events, "f")}
    assert len(begins) == len(ends) == len(flows)
    arrows = Counter(
        (
            begins[each]["pid"],
            ends[each]["pid"],
            round(begins[each]["ts"] * 1000),
            round(ends[each]["ts"] * 1000),
            begins[each]["args"]["bytes"],
        )
        for each in begins
    )
    assert arrows == Counter(
        (
            number[flow["src"]],
            number[flow["dst"]],
            flow["first_sent_ns"] - origin_ns,
            flow["last_acked_ns"] - origin_ns,
            flow["bytes"],
        )
        for flow in flows
    )


def test_every_rank_has_a_slice_of_each_of_its_collectives(
    simulated: RunResults, events: list[dict[str, Any]]
) -> None:
    slices = [event for event in of(events, "X") if "group" in event["args"]]
    found = Counter(
        (event["name"], event["args"]["group"], event["args"]["k"]) for event in slices
    )
    expected: Counter[tuple[str, str, int]] = Counter()
    for record in simulated.collectives():
        one = record.identity
        expected[str(one.op), one.key.group, one.key.k] += one.nranks
    assert found == expected
    sent = sum(event["args"]["sent_bytes"] for event in slices)
    assert sent == sum(simulated.table("flows", "bytes")["bytes"].to_pylist())


def test_computations_are_slices_of_their_stream(
    simulated: RunResults, events: list[dict[str, Any]]
) -> None:
    names = ("kind", "rank", "name", "iteration", "start_ns", "end_ns")
    rows = simulated.table("operations", *names).to_pylist()
    origin_ns = min(rank.start_ns for rank in simulated.ranks())
    found = Counter(
        (
            event["pid"] - 1,
            event["name"],
            event["args"]["iteration"],
            round(event["ts"] * 1000) + origin_ns,
            round(event["dur"] * 1000),
        )
        for event in of(events, "X")
        if set(event["args"]) == {"iteration"}
    )
    assert found
    assert found == Counter(
        (
            row["rank"],
            row["name"],
            row["iteration"],
            row["start_ns"],
            row["end_ns"] - row["start_ns"],
        )
        for row in rows
        if row["kind"] == "compute"
    )


def test_slices_of_a_thread_do_not_overlap_and_hold_the_ends_of_arrows(
    events: list[dict[str, Any]],
) -> None:
    threads: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for event in of(events, "X"):
        span = event["ts"], event["ts"] + event["dur"]
        threads.setdefault((event["pid"], event["tid"]), []).append(span)
    for spans in threads.values():
        spans.sort()
        for (_, end), (start, _) in pairwise(spans):
            assert end <= start + 1e-6
    for event in (*of(events, "s"), *of(events, "f")):
        spans = threads[event["pid"], event["tid"]]
        assert any(start - 1e-3 <= event["ts"] <= end + 1e-3 for start, end in spans), (
            event
        )


def test_processes_and_threads_have_names(events: list[dict[str, Any]]) -> None:
    named = {
        (event["pid"], event.get("tid")): event["args"]["name"]
        for event in of(events, "M")
        if "name" in event["args"]
    }
    assert named[1, None] == "rank 0 at h0"
    used = {(event["pid"], event["tid"]) for event in of(events, "X")}
    assert used <= set(named)
    # Readers take thread 0, and none, for the main one, which has the number of its
    # process.
    main_threads = {pid for pid, tid in used if tid == pid}
    assert main_threads == {pid for pid, _ in used}
    assert {named[pid, pid] for pid in main_threads} == {"iterations"}
    assert all(tid in (pid, None) or tid > 10**5 for pid, tid in named)


def test_counters_add_up_to_the_bytes_of_links(
    simulated: RunResults, events: list[dict[str, Any]]
) -> None:
    series: dict[str, list[tuple[float, float]]] = {}
    for event in of(events, "C"):
        (value,) = event["args"].values()
        series.setdefault(event["name"], []).append((event["ts"], value))
    links = {
        f"{link.link} {link.direction}": link.bytes
        for link in simulated.links()
        if link.kind == "uplink"
    }
    assert links
    for name, size_bytes in links.items():
        points = series[name]
        total = sum(
            rate * (after - at) * 1000 / 8
            for (at, rate), (after, _) in pairwise(points)
        )
        # Without acknowledgments, which have about 1.5 % of a full packet's bytes.
        assert 0.95 * size_bytes < total <= 1.01 * size_bytes, name
    longest: Counter[str] = Counter()
    for row in simulated.table("link_samples").to_pylist():
        name = f"queue at {row['port']}, class {row['traffic_class']}"
        longest[name] = max(longest[name], row["queue_max_bytes"])
    queues = {name: points for name, points in series.items() if "queue" in name}
    assert queues
    # A counter ends at 0.
    assert {
        name: max(points, key=lambda each: each[1])[1]
        for name, points in queues.items()
    } == +longest
    assert all(points[-1][1] == 0 for points in queues.values())


def test_names_without_gz_are_plain_json(simulated: RunResults, tmp_path: Path) -> None:
    path = tmp_path / "timeline.json"
    assert main(["timeline", str(simulated.path), "--out", str(path)]) == 0
    assert json.loads(path.read_text())["displayTimeUnit"] == "ns"


REQUIRED = {
    "X": {"name", "cat", "pid", "tid", "ts", "dur", "args"},
    "s": {"name", "cat", "pid", "tid", "ts", "id", "args"},
    "f": {"name", "cat", "pid", "tid", "ts", "id", "bp"},
    "C": {"name", "cat", "pid", "ts", "args"},
    "M": {"name", "cat", "pid", "args"},
}
"""What the trace event format wants of each kind of event, and what readers use."""


def test_events_have_all_fields_of_the_format(
    events: list[dict[str, Any]],
) -> None:
    assert {event["ph"] for event in events} == set(REQUIRED)
    for event in events:
        required = REQUIRED[event["ph"]] | {"ph"}
        assert set(event) - {"tid"} == required - {"tid"}, event
        assert "tid" in event or "tid" not in required, event
        assert all(
            isinstance(event[key], str) and event[key] for key in ("name", "cat")
        )
        assert isinstance(event["pid"], int)
        times = [event[key] for key in ("ts", "dur") if key in event]
        assert all(isinstance(time, int | float) and time >= 0 for time in times), event
    for event in of(events, "f"):
        assert event["bp"] == "e"
    for event in of(events, "C"):
        (unit,) = event["args"]
        assert unit == ("bytes" if event["name"].startswith("queue") else "Gbit/s")
        assert isinstance(event["args"][unit], float)
    assert {event["name"] for event in of(events, "M")} == {
        "process_name", "process_sort_index", "thread_name",
    }  # fmt: skip
    for event in of(events, "M"):
        (key,) = event["args"]
        assert event["name"].endswith(key)
        assert isinstance(event["args"][key], int if key == "sort_index" else str)


def test_times_rounded_to_ns_are_correct() -> None:
    # 1001 / 1000 * 1000 is less than 1001.
    for time_ns in (*range(5000), *range(10**13 + 1, 10**13 + 5000)):
        assert int(_us(time_ns) * 1000.0) == time_ns


BACK_TO_BACK = """\
version: 1
name: back-to-back
jobs:
  - name: j
    trace:
      synth: collectives
      ranks: 4
      streams: [{op: all_to_all, size: 64KiB, count: 4}]
    compute: {from: none}
collectives: {all_to_all: direct}
iterations: {warmup: 0, measured: 2, sync: free}
fabric:
  kind: namespaces
  switch: model
  topology: {single_switch: {hosts: 4}}
  links: {host: {rate: 100Gbit, delay: 500ns}}
"""


def test_a_reader_binds_both_ends_of_arrows_to_slices_of_their_collective(
    tmp_path: Path,
) -> None:
    """Read as Perfetto does: times cut to ns, events by time, then as they stand."""
    experiment = tmp_path / "experiment.yaml"
    experiment.write_text(BACK_TO_BACK)
    simulated = chakram.simulate(experiment, runs=tmp_path / "runs")
    path = tmp_path / "timeline.json"
    assert main(["timeline", str(simulated.path), "--out", str(path)]) == 0
    events = json.loads(path.read_text())["traceEvents"]

    def cut(time_us: float) -> int:
        return int(time_us * 1000.0)

    flows = simulated.table("flows").to_pylist()
    # On each thread what is open, with its end; what ended stays until another begins.
    open_slices: dict[tuple[int, int], list[tuple[int, dict[str, Any]]]] = {}
    bound: Counter[str] = Counter()
    timed = [event for event in events if event["ph"] in ("X", "s", "f")]
    for event in sorted(timed, key=lambda each: cut(each["ts"])):
        thread = open_slices.setdefault((event["pid"], event["tid"]), [])
        now = cut(event["ts"])
        if event["ph"] == "X":
            while thread and thread[-1][0] <= now:
                thread.pop()
            assert not thread, "slices of a thread overlap"
            thread.append((now + cut(event["dur"]), event))
            continue
        end_ns, under = thread[-1]
        flow = flows[event["id"] - 1]
        args = under["args"]
        assert (args["group"], args["k"], args["iteration"]) == (
            flow["group"],
            flow["k"],
            flow["iteration"],
        )
        assert now <= end_ns + 1
        bound[event["ph"]] += 1
    assert bound == {"s": len(flows), "f": len(flows)}
