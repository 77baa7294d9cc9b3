"""The timeline of a run: its events, by numbers made by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from chakram.records.row_layout import LINK_SAMPLE_FIELDS
from chakram.report import perfetto_timeline
from chakram.report.perfetto_timeline import write_timeline
from chakram.report.run.data import TIME_BINS, NicTraffic, RunData
from chakram.report.run.links_over_time import LinksOverTime
from tests.made_runs import made_run

if TYPE_CHECKING:
    from collections import Counter
    from pathlib import Path

    from chakram.run_directory.reader import RunResults

US = 1 / 1000
HEADER = 58


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> RunResults:
    return made_run(tmp_path_factory.mktemp("runs"), iterations=(0, 40_000))


def read(data: RunData) -> tuple[dict[str, Any], Counter[str]]:
    """Return the document of a timeline, and what was counted."""
    parts: list[bytes] = []
    counts = write_timeline(data, parts.append)
    return json.loads(b"".join(parts)), counts


def of(document: dict[str, Any], phase: str) -> list[dict[str, Any]]:
    return [each for each in document["traceEvents"] if each["ph"] == phase]


def names_of(document: dict[str, Any]) -> dict[tuple[int, int | None], str]:
    return {
        (each["pid"], each.get("tid")): each["args"]["name"]
        for each in of(document, "M")
        if "name" in each["args"]
    }


def test_the_head_says_what_it_is_of(results: RunResults) -> None:
    document, counts = read(RunData(results))
    assert document["displayTimeUnit"] == "ns"
    assert document["otherData"] == {
        "run_id": "r1",
        "name": "quick start",
        "world": "namespaces",
        "status": "complete",
        "dilation": 1,
        "time": "since the first rank began, undilated",
    }
    # 4 ranks; of each its shares in two collectives, and two in a message; 29 flows.
    assert counts["iterations"] == 2 * 4
    assert counts["slices"] == 2 * (4 + 4 + 2)
    assert counts["arrows"] == 2 * 29
    assert counts["computations"] == 0
    assert len(of(document, "s")) == len(of(document, "f")) == 58
    assert len(of(document, "X")) == 8 + 20
    assert counts["counters"] == len(of(document, "C"))


def test_ranks_are_processes_in_their_order(results: RunResults) -> None:
    document, _ = read(RunData(results))
    names = names_of(document)
    assert names[0, None] == "ports and links"
    assert [names[pid, None] for pid in range(1, 5)] == [
        f"rank {rank} at h{rank}" for rank in range(4)
    ]
    orders = {
        each["pid"]: each["args"]["sort_index"]
        for each in of(document, "M")
        if "sort_index" in each["args"]
    }
    assert orders == {pid: pid for pid in range(1, 5)}
    # A rank's iterations are on the thread that has the number of its process.
    assert [names[pid, pid] for pid in range(1, 5)] == ["iterations"] * 4


def test_jobs_are_told_apart_where_there_are_several(results: RunResults) -> None:
    data = RunData(results)
    data.ranks = [
        *data.ranks,
        *(replace(each, job="other", number=4 + each.number) for each in data.ranks),
    ]
    names = names_of(read(data)[0])
    assert names[1, None] == "moe rank 0 at h0"
    # It has no port in the plan.
    assert names[5, None] == "other rank 0"


def test_iterations_last_from_their_start_to_their_end(tmp_path: Path) -> None:
    data = RunData(made_run(tmp_path, iterations=(0, 0), dilation=10))
    document, _ = read(data)
    found = [each for each in of(document, "X") if each["name"] == "iteration 1"]
    assert [each["pid"] for each in found] == [each["tid"] for each in found]
    first = found[0]
    # 1 ms after the start and 750 us long, a tenth of it.
    assert (first["ts"], first["dur"]) == (pytest.approx(100, abs=1e-3), 75)
    assert first["args"] == {
        "measured": True,
        "compute_us": 20,
        "exposed_us": 55,
        "idle_us": 0,
    }


def slices(document: dict[str, Any]) -> dict[tuple[int, str, int], dict[str, Any]]:
    """Return the shares by process, collective and iteration."""
    return {
        (each["pid"], each["name"], each["args"]["iteration"]): each
        for each in of(document, "X")
        if "group" in each["args"]
    }


def test_shares_last_from_the_first_posted_to_the_last_acknowledged(
    results: RunResults,
) -> None:
    found = slices(read(RunData(results))[0])
    reduce = found[4, "all_reduce", 1]
    # Rank 3 is 40 us late.
    assert reduce["ts"] == pytest.approx(1200, abs=1e-4)
    assert reduce["dur"] == pytest.approx(440)
    assert reduce["args"] == {
        "group": "world", "k": 0, "iteration": 1, "sent_bytes": 6 * 2**18,
    }  # fmt: skip
    # Who receives takes part from when it was sent: 500 ns later.
    message = found[2, "send_recv", 1]
    assert message["dur"] == pytest.approx(49.5)
    assert message["args"]["sent_bytes"] == 0
    assert found[1, "send_recv", 1]["args"]["sent_bytes"] == 2**16


def test_slices_that_overlap_get_threads_beside_one_another(
    results: RunResults,
) -> None:
    document, _ = read(RunData(results))
    names, found = names_of(document), slices(document)
    # Nothing overlaps on rank 1; its groups are numbered as they come.
    own = [found[2, op, 0]["tid"] for op in ("all_reduce", "all_to_all", "send_recv")]
    assert own == [1_000_001, 1_000_002, 1_000_003]
    assert [names[2, tid] for tid in own] == ["group world", "group ep0", "messages"]
    # Each group has its thread again in the next iteration.
    assert found[2, "all_reduce", 1]["tid"] == own[0]
    assert found[3, "all_to_all", 0]["tid"] == 1_000_002
    assert names[3, 1_000_002] == "group ep1"


def test_what_overlaps_in_a_group_has_a_lane_of_its_own(results: RunResults) -> None:
    data = RunData(results)
    flows = data.flows
    columns = {name: flows[name].copy() for name in flows.row(0)}
    # Everything is of one group, and the all-to-all begins with the all-reduce.
    columns["group"][:] = flows.names["group"].index("world")
    late = columns["collective"] == flows.names["collective"].index("all_to_all")
    for name in ("posted_ns", "first_sent_ns"):
        columns[name][late] = columns["iteration"][late] * 1_000_000 + 200_000
    data.flows = type(flows)(columns, flows.names)
    document, _ = read(data)
    names, found = names_of(document), slices(document)
    lanes = [names[3, found[3, op, 0]["tid"]] for op in ("all_reduce", "all_to_all")]
    assert sorted(lanes) == ["group world", "group world (2)"]
    assert {found[3, op, 0]["tid"] for op in ("all_reduce", "all_to_all")} == {
        1_000_001, 1_000_002,
    }  # fmt: skip


def test_arrows_go_from_slice_to_slice_at_their_times(results: RunResults) -> None:
    document, _ = read(RunData(results))
    begins = {each["id"]: each for each in of(document, "s")}
    ends = {each["id"]: each for each in of(document, "f")}
    assert sorted(begins) == sorted(ends) == list(range(1, 59))
    flows = results.table("flows").to_pylist()
    for number, flow in enumerate(flows, 1):
        begin, end = begins[number], ends[number]
        assert begin["pid"] == flow["src"] + 1
        assert end["pid"] == flow["dst"] + 1
        assert begin["ts"] == pytest.approx(flow["first_sent_ns"] * US, abs=1e-4)
        assert end["ts"] == pytest.approx(flow["last_acked_ns"] * US, abs=1e-4)
        # Not before its slice ends, cut to whole ns.
        assert int(end["ts"] * 1000) == flow["last_acked_ns"]
        assert begin["args"] == {
            "bytes": flow["bytes"],
            "step": flow["step"],
            "sent_again": flow["retransmitted"],
        }
        assert end["bp"] == "e"


@pytest.mark.parametrize("chunk", [1, 7, 58])
def test_many_messages_are_written_in_parts(
    results: RunResults, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    whole = read(RunData(results))
    monkeypatch.setattr(perfetto_timeline, "_CHUNK", chunk)
    assert read(RunData(results)) == whole


def test_computations_are_on_the_thread_of_their_stream(
    results: RunResults, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = RunData(results)
    table = results.table("operations")
    compute = {
        "job": "moe", "iteration": 1, "kind": "compute", "name": "gemm", "rank": 2,
        "start_ns": 1_000_000, "end_ns": 1_200_000,
    }  # fmt: skip
    rows = [
        {**compute, "stream": 7},
        {**compute, "stream": None, "rank": 3},
        {**compute, "stream": 7, "start_ns": 1_300_000, "end_ns": 1_300_500},
        {**compute, "kind": "collective", "stream": 7},
        # No other table has this job.
        {**compute, "job": "gone", "stream": 7},
    ]
    schema = pa.schema([table.schema.field(name) for name in (*compute, "stream")])
    made = pa.Table.from_pylist(rows, schema)
    real = results.table
    monkeypatch.setattr(
        results,
        "table",
        lambda name, *columns: (
            made.select(columns) if name == "operations" else real(name, *columns)
        ),
    )
    document, counts = read(data)
    assert counts["computations"] == 3
    found = [each for each in of(document, "X") if each["name"] == "gemm"]
    assert [(each["pid"], each["tid"], each["dur"]) for each in found] == [
        (3, 2_000_000, 200), (4, 2_000_001, 200), (3, 2_000_000, 0.5),
    ]  # fmt: skip
    assert found[2]["ts"] == pytest.approx(1300, abs=1e-4)
    assert found[0]["args"] == {"iteration": 1}
    names = names_of(document)
    assert names[3, 2_000_000] == "compute, stream 7"
    assert names[4, 2_000_001] == "compute"


def counters(document: dict[str, Any]) -> dict[str, list[tuple[float, float]]]:
    found: dict[str, list[tuple[float, float]]] = {}
    for each in of(document, "C"):
        (value,) = each["args"].values()
        found.setdefault(each["name"], []).append((each["ts"], value))
    return found


def integral(points: list[tuple[float, float]]) -> float:
    """Return the bytes under rates in Gbit/s over times in us."""
    return sum(
        rate * (after - at) * 1000 / 8 for (at, rate), (after, _) in pairwise(points)
    )


@pytest.mark.parametrize("dilation", [1, 10])
def test_counters_of_ports_and_links_add_up_to_their_bytes(
    tmp_path: Path, dilation: int
) -> None:
    document, _ = read(RunData(made_run(tmp_path, dilation=dilation)))
    found = counters(document)
    one = 4 * (6 * (2**18 + 64 * HEADER) + 2**17 + 32 * HEADER)
    message = 4 * (2**16 + 16 * HEADER)
    sent = {
        "h0 transmit": one + message,
        "h0 receive": one,
        "h1 receive": one + message,
        "h3 transmit": one,
        # Rank 1 over the first spine, rank 3 over both.
        "leaf0-spine0 up": one,
        "leaf1-spine0 down": one,
        "leaf1-spine0 up": one / 2,
        "leaf1-spine1 up": one / 2,
        "leaf0-spine1 down": one / 2,
    }
    for name, size_bytes in sent.items():
        assert integral(found[name]) == pytest.approx(size_bytes, rel=1e-3), name
        assert found[name][0] == (pytest.approx(0, abs=1e-3), 0)
        assert found[name][-1][1] == 0
    assert integral(found["leaf0-spine1 up"]) == 0


def test_without_paths_there_are_no_counters_of_links(tmp_path: Path) -> None:
    made = made_run(tmp_path, ending={"messages": None})
    assert not [name for name in counters(read(RunData(made))[0]) if "spine" in name]


def test_the_longest_queues_are_counted(
    results: RunResults, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(perfetto_timeline, "_QUEUES", 2)
    queues = np.zeros((4, TIME_BINS), np.int64)
    queues[0, 3], queues[1, 5], queues[3, 7:9] = 10, 30, 20
    none = np.zeros(queues.shape)
    data = RunData(results)
    found = LinksOverTime(
        ports=("a:0", "b:0", "c:0", "d:0"), classes=(0, 3, 0, 1),
        queue_max_bytes=queues, marked=none, paused=none,
        bin_ns=data.bin_ns, counted=frozenset(LINK_SAMPLE_FIELDS),
    )  # fmt: skip
    monkeypatch.setattr(perfetto_timeline, "links_over_time", lambda data: found)
    series = counters(read(data)[0])
    names = [name for name in series if name.startswith("queue")]
    assert names == ["queue at b:0, class 3", "queue at d:0, class 1"]
    width = data.bin_ns * US
    assert [(round(at / width), value) for at, value in series[names[1]]] == [
        (0, 0), (7, 20), (9, 0),
    ]  # fmt: skip
    # What never waited is not there, however much room there is.
    monkeypatch.setattr(perfetto_timeline, "_QUEUES", 4)
    series = counters(read(data)[0])
    assert len([name for name in series if name.startswith("queue")]) == 3


def test_a_port_without_a_rate_has_no_counter(
    results: RunResults,
) -> None:
    data = RunData(results)
    assert isinstance(data.nics, NicTraffic)
    data.nics = "the ports of this run have no rate"
    assert not [name for name in counters(read(data)[0]) if name.startswith("h0 ")]
