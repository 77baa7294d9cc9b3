"""Timelines in Perfetto's trace processor, compared with tables of runs."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from typing import TYPE_CHECKING

import pytest

import chakram
from chakram.cli import main
from tests.chromium import require_chromium
from tests.perfetto import ask_perfetto, missing_perfetto
from tests.support import REPO_ROOT, require

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

SMALL = {
    "jobs[0].trace.all_to_all": "256KiB",
    "jobs[0].trace.all_reduce": "512KiB",
    "jobs[0].trace.dense": "256KiB",
    "iterations.measured": "2",
}
RUNS: dict[str, tuple[str, Mapping[str, str]]] = {
    "a mix with computations": ("configs/quickstart.yaml", SMALL),
    "two jobs": ("configs/two-jobs.yaml", {"iterations.measured": "1"}),
    "messages": ("configs/incast.yaml", {"iterations.measured": "1"}),
}

LOST = """
SELECT name, value FROM stats
WHERE value AND (severity IN ('error', 'data_loss') OR name GLOB 'flow_*')
"""
SLICES = """
SELECT pid, slice.ts, slice.dur, slice.name,
  extract_arg(slice.arg_set_id, 'args.group'),
  extract_arg(slice.arg_set_id, 'args.k'),
  extract_arg(slice.arg_set_id, 'args.iteration')
FROM slice JOIN thread_track ON track_id = thread_track.id
JOIN thread USING (utid) JOIN process USING (upid)
"""
FLOWS = f"""
WITH named(id, pid, ts, dur, name, grp, k, iteration) AS (
  {SLICES.replace("SELECT pid", "SELECT slice.id, pid")})
SELECT a.pid, b.pid, a.grp, a.k, a.iteration, b.grp, b.k, b.iteration
FROM flow JOIN named a ON slice_out = a.id JOIN named b ON slice_in = b.id
"""
COUNTERS = """
SELECT track.name, process.name, count(*), max(value), min(value)
FROM counter JOIN process_counter_track track ON track_id = track.id
JOIN process USING (upid) GROUP BY track.id
"""
NAMES = """
SELECT pid, tid, thread.name, process.name
FROM thread JOIN process USING (upid) WHERE thread.name IS NOT NULL
"""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("which", RUNS)
def test_perfetto_has_the_slices_arrows_and_counters_of_the_run(
    which: str, tmp_path: Path
) -> None:
    require_chromium()
    require("perfetto", missing_perfetto())
    name, settings = RUNS[which]
    run = chakram.simulate(REPO_ROOT / name, set=settings, runs=tmp_path / "runs")
    path = tmp_path / "timeline.json.gz"
    assert main(["timeline", str(run.path), "--out", str(path)]) == 0
    lost, slices, flows, counters, names = ask_perfetto(
        path.read_bytes(),
        [LOST, SLICES, FLOWS, COUNTERS, NAMES],
        profile=tmp_path / "profile",
    )
    assert lost == []
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]

    ranks = run.ranks()
    number = {(each.job, each.rank): each.number + 1 for each in ranks}
    origin_ns = min(each.start_ns for each in ranks)
    said = {
        (event["name"], event["pid"], event.get("tid")): event["args"].get("name")
        for event in events
        if event["ph"] == "M"
    }
    assert {(pid, tid): (thread, process) for pid, tid, thread, process in names} == {
        (pid, tid): (name, said["process_name", pid, None])
        for (what, pid, tid), name in said.items()
        if what == "thread_name"
    }

    # Iterations and computations are where the tables have them, to the nanosecond.
    spans = Counter(
        (pid, start_ns, dur_ns, text)
        for pid, start_ns, dur_ns, text, group, _, _ in slices
        if group is None
    )
    expected = Counter(
        (
            number[each.job, each.rank],
            each.start_ns - origin_ns,
            each.end_ns - each.start_ns,
            f"iteration {each.iteration}",
        )
        for each in ranks
    )
    for row in run.table("operations").to_pylist():
        if row["kind"] == "compute":
            time_ns = row["end_ns"] - row["start_ns"]
            place = number[row["job"], row["rank"]], row["start_ns"] - origin_ns
            expected[*place, time_ns, row["name"]] += 1
    assert spans == expected

    # Every rank has a slice of each of its collectives.
    taken = Counter(
        (pid, text, *which) for pid, _, _, text, *which in slices if which[0]
    )
    rows = run.table("flows").to_pylist()
    assert taken == Counter(
        {
            (
                number[row["job"], row[side]],
                *(row[name] for name in ("collective", "group", "k", "iteration")),
            )
            for row in rows
            for side in ("src", "dst")
        }
    )

    # Both ends of an arrow are bound to slices of its collective. Perfetto turns those
    # whose sender's slice began after the receiver's.
    assert Counter((tuple(sorted(row[:2])), *row[2:]) for row in flows) == Counter(
        (
            tuple(sorted(number[row["job"], row[side]] for side in ("src", "dst"))),
            *(row["group"], row["k"], row["iteration"]) * 2,
        )
        for row in rows
    )

    # Counters have the points of the file, and the name of their unit.
    written: dict[str, list[float]] = {}
    for event in events:
        if event["ph"] == "C":
            ((unit, value),) = event["args"].items()
            written.setdefault(f"{event['name']} {unit}", []).append(value)
    assert {of for _, of, *_ in counters} == {"ports and links"}
    assert {text: (count, high) for text, _, count, high, _ in counters} == {
        text: (len(values), max(values)) for text, values in written.items()
    }
    assert any("queue at" in text for text in written)
