"""The timeline of a run, held against its tables."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

import chakram
from chakram.cli import main
from tests.support import REPO_ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from chakram.observe.run_results import RunResults


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> RunResults:
    return chakram.simulate(
        REPO_ROOT / "configs/quickstart.yaml",
        set={
            "jobs[0].trace.all_to_all": "256KiB",
            "jobs[0].trace.all_reduce": "512KiB",
            "jobs[0].trace.dense": "256KiB",
            "iterations.measured": "1",
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


def test_counters_add_up_to_the_bytes_of_links(
    simulated: RunResults, events: list[dict[str, Any]]
) -> None:
    series: dict[str, list[tuple[float, float]]] = {}
    for event in of(events, "C"):
        series.setdefault(event["name"], []).append(
            (event["ts"], event["args"]["Gbit/s"])
        )
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
        # Without acknowledgements, which have about 1.5 % of a full packet's bytes.
        assert 0.95 * size_bytes < total <= 1.01 * size_bytes, name


def test_names_without_gz_are_plain_json(simulated: RunResults, tmp_path: Path) -> None:
    path = tmp_path / "timeline.json"
    assert main(["timeline", str(simulated.path), "--out", str(path)]) == 0
    assert json.loads(path.read_text())["displayTimeUnit"] == "ns"
