"""A finished run as OpenMetrics text, step by step."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from datetime import UTC, datetime
from pathlib import Path

import pytest

from chakram.cli import main
from chakram.foundation.errors import InputError, RunDirectoryError
from chakram.metrics import backfill
from chakram.metrics.backfill import openmetrics
from chakram.metrics.exporter import exposition
from chakram.metrics.state import MetricsState
from chakram.records.counter_slots import FCT_BUCKETS, TOTAL_SLOTS, slot
from chakram.records.row_layout import PORT_FIELDS, QUEUE_PAIR_FIELDS, RecordRows
from chakram.records.run_records import LinkRecord
from chakram.run_directory.manifest import read_manifest
from chakram.run_directory.reader import RunResults, open_run
from chakram.run_directory.writer import LAST_METRICS
from tests.run_directories import begin
from tests.small_run import JOB, RANKS, row_of, small_plan, small_rows

EPOCH_NS = 10**18
STEP_NS = 10**6
JOBS = {JOB: {"ranks": RANKS, "iterations": 4}}

SAMPLE = re.compile(r"(\w+)\{(.*)\} (\S+) (\d+)\.(\d{3})\n")
LABEL = re.compile(r'(\w+)="([^"]*)"')

Samples = dict[tuple[str, frozenset[tuple[str, str]]], list[tuple[int, float]]]


def finished(folder: Path, **fields: object) -> RunResults:
    """Return a run of three iterations that ended with counters of its agent."""
    directory = begin(folder, jobs=JOBS, **{"unix_offset_ns": EPOCH_NS, **fields})
    for iteration in range(3):
        directory.add(small_rows(iteration))
    directory.flush()
    state = MetricsState("r1")
    state.set_state("complete")
    agent = small_plan().agents[0].agent
    state.set_clock(agent, offset_ns=0, uncertainty_ns=500, drift_ppm=0.0)
    sizes = _sizes(directory.path)
    flows, counters = len(sizes), [0] * TOTAL_SLOTS
    counters[slot("cpu_ns")] = 7_500_000_000
    # What was sampled, and what the tables have, was served as well.
    counters[slot("flows_started")] = counters[slot("flows_completed")] = flows
    counters[slot("delivered_bytes")] = sum(sizes)
    state.set_counters(agent, counters)
    directory.write_metrics(exposition(state))
    directory.finish(ended=datetime(2026, 1, 31, 12, 0, 5, tzinfo=UTC))
    return open_run(directory.path)


def _sizes(path: Path) -> list[int]:
    sizes: list[int] = (
        RunResults(path, read_manifest(path)).table("flows")["bytes"].to_pylist()
    )
    return sizes


def samples(results: RunResults, step_ns: int = STEP_NS) -> Samples:
    """Return by name and labels the times, in ms, and values of every series."""
    found: Samples = {}
    lines = list(openmetrics(results, step_ns=step_ns))
    assert lines[-1] == "# EOF\n"
    family = ""
    for line in lines[:-1]:
        if line.startswith("#"):
            family = line.split()[2]
            continue
        match = SAMPLE.fullmatch(line)
        assert match is not None, line
        name, text, value, seconds, milliseconds = match.groups()
        assert name.startswith(family)
        labels = dict(LABEL.findall(text))
        assert labels.pop("job") == "chakram"
        assert labels.pop("instance") == "backfill"
        assert labels.pop("run_id", "r1") == "r1"
        time_ms = int(seconds) * 1000 + int(milliseconds)
        key = name, frozenset(labels.items())
        found.setdefault(key, []).append((time_ms, float(value)))
    return found


def test_a_histogram_is_whole_at_every_time(tmp_path: Path) -> None:
    name = "chakram_collective_duration_seconds"
    lines = [
        line
        for line in openmetrics(finished(tmp_path), step_ns=STEP_NS)
        if line.startswith(f"{name}_")
    ]
    width = FCT_BUCKETS + 2
    assert len(lines) % width == 0
    for first in range(0, len(lines), width):
        point = lines[first : first + width]
        assert len({line.rpartition(" ")[2] for line in point}) == 1
        counts = [float(line.split()[1]) for line in point[:-1]]
        assert counts == sorted(counts)
        assert counts[-1] == counts[-2]


def series(found: Samples, name: str, **labels: str) -> list[tuple[int, float]]:
    return found[name, frozenset(labels.items())]


def test_collectives_count_from_the_step_in_which_they_ended(tmp_path: Path) -> None:
    results = finished(tmp_path)
    ended_ns = sorted(
        each.end_ns
        for each in results.collectives()
        if str(each.identity.op) == "all_to_all"
    )
    start_ns = min(rank.start_ns for rank in results.ranks())
    found = series(
        samples(results),
        "chakram_collectives_total",
        collective="all_to_all",
        message_size="256KiB",
    )
    assert found[-1][1] == len(ended_ns) == 6
    epoch_ms = (EPOCH_NS + start_ns) // 10**6
    for time_ms, value in found[:-1]:
        until_ns = start_ns + (time_ms - epoch_ms) * 10**6
        assert value == bisect_right(ended_ns, until_ns)


def test_times_go_up_and_every_series_has_its_end(tmp_path: Path) -> None:
    found = samples(finished(tmp_path))
    last_ms = max(times[-1][0] for times in found.values())
    for key, times in found.items():
        moments = [time_ms for time_ms, _ in times]
        assert moments == sorted(set(moments)), key
        assert moments[-1] == last_ms, key


def test_series_without_samples_are_0_until_the_end(tmp_path: Path) -> None:
    found = samples(finished(tmp_path))
    agent = small_plan().agents[0].agent
    cpu = series(found, "chakram_cpu_seconds_total", agent=agent)
    assert [value for _, value in cpu[:-1]] == [0] * (len(cpu) - 1)
    assert cpu[-1][1] == pytest.approx(7.5)
    # What was known from the start on is not.
    clock = series(found, "chakram_agent_clock_uncertainty_seconds", agent=agent)
    assert [value for _, value in clock] == pytest.approx([5e-7] * len(clock))


def test_counters_of_collectives_begin_at_0_without_a_served_text(
    tmp_path: Path,
) -> None:
    """Simulations serve no metrics, but rates need the first value of a counter."""
    results = finished(tmp_path)
    (results.path / LAST_METRICS).unlink()
    found = {
        name: values
        for (name, _), values in samples(results).items()
        if name.startswith(("chakram_collective", "chakram_job", "chakram_message_s"))
        and not name.endswith("_bytes_per_second")
    }
    assert len(found) > 10
    assert {values[0][1] for values in found.values()} == {0}


def test_state_changes_at_its_times(tmp_path: Path) -> None:
    found = samples(finished(tmp_path))
    running = series(found, "chakram_run_state", state="running")
    assert (running[0][1], running[-1][1]) == (1, 0)
    assert series(found, "chakram_run_state", state="complete")[-1][1] == 1
    iterations = series(found, "chakram_iterations_total", chakram_job=JOB)
    assert [value for _, value in iterations][-1] == 3
    assert {value for _, value in iterations} == {0, 1, 2, 3}


def test_messages_are_in_flight_from_posting_to_completion(tmp_path: Path) -> None:
    results = finished(tmp_path)
    found = samples(results)
    agent = small_plan().agents[0].agent
    flows = results.table("flows")
    delivered = series(found, "chakram_delivered_bytes_total", agent=agent)
    assert delivered[-1][1] == sum(flows["bytes"].to_pylist())
    assert series(found, "chakram_flows_started_total", agent=agent)[-1][1] == len(
        flows
    )
    active = series(found, "chakram_flows_active", agent=agent)
    assert active[-1][1] == 0
    counts = [
        times[-1][1]
        for (name, _), times in found.items()
        if name == "chakram_flow_completion_seconds_count"
    ]
    assert sum(counts) == len(flows)


def test_runs_of_older_versions_begin_when_they_were_started(tmp_path: Path) -> None:
    results = finished(tmp_path, unix_offset_ns=None)
    found = samples(results)
    started = datetime.fromisoformat(results.manifest.started_at).timestamp()
    first_ms = min(times[0][0] for times in found.values())
    assert first_ms == round(started * 1000)


def test_plan_without_a_list_of_agents_uses_those_of_its_ranks(
    tmp_path: Path,
) -> None:
    results = finished(tmp_path)
    expected = samples(results)
    path = results.path / "plan.json"
    plan = json.loads(path.read_text("utf-8"))
    del plan["agents"]
    path.write_text(json.dumps(plan), "utf-8")
    assert samples(open_run(results.path)) == expected


def test_too_short_step_is_refused_with_a_suitable_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backfill, "MOST_STEPS", 2)
    with pytest.raises(InputError, match=r"steps, but at most 2 are.*--step [0-9]+ms"):
        openmetrics(finished(tmp_path), step_ns=STEP_NS)


def test_a_run_without_records_is_refused(tmp_path: Path) -> None:
    directory = begin(tmp_path, jobs=JOBS)
    with pytest.raises(InputError, match="has not ended"):
        openmetrics(RunResults(directory.path, directory.manifest), step_ns=STEP_NS)
    directory.finish(ended=datetime(2026, 1, 31, 12, 0, 5, tzinfo=UTC))
    with pytest.raises(InputError, match="contains no record of an iteration"):
        openmetrics(open_run(directory.path), step_ns=STEP_NS)


@pytest.mark.parametrize("step", ["0ms", "1500us", "10us"])
def test_steps_are_whole_milliseconds(
    step: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", "openmetrics", "anywhere", "--step", step]) == 2
    assert "whole milliseconds" in capsys.readouterr().err


def test_a_file_is_written_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, out = str(finished(tmp_path).path), tmp_path / "exported"
    arguments = ["export", "openmetrics", run, "--out", str(out), "--json"]
    assert main(arguments) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["written"] == [str(out / "run.om")]
    text = (out / "run.om").read_text(encoding="utf-8")
    assert text.endswith("\n# EOF\n")
    assert main(arguments) == 2
    assert "--force" in capsys.readouterr().err


def sampled(folder: Path, rows: RecordRows, iterations: tuple[int, ...]) -> RunResults:
    """Return a run with samples, without last served metrics."""
    directory = begin(folder, jobs=JOBS, unix_offset_ns=EPOCH_NS)
    for iteration in iterations:
        directory.add(small_rows(iteration))
    directory.add(rows)
    directory.finish(ended=datetime(2026, 1, 31, 12, 0, 5, tzinfo=UTC))
    return open_run(directory.path)


def at_ms(points: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """Return the points of a series from the start of the run on."""
    return [(time_ms - EPOCH_NS // 10**6, value) for time_ms, value in points]


def test_constant_series_have_a_sample_per_second_and_changes_a_step(
    tmp_path: Path,
) -> None:
    # The first iteration is over after 750 us, the other one begins after 3 s.
    found = samples(sampled(tmp_path, RecordRows(), (0, 3000)))
    iterations = series(found, "chakram_iterations_total", chakram_job=JOB)
    # It went up in the step before 3001 ms, and not from the first one on.
    assert at_ms(iterations) == [(0, 0), (1, 1), (3000, 1), (3001, 2), (3002, 2)]
    state = series(found, "chakram_run_state", state="running")
    assert at_ms(state) == [(0, 1), (3001, 1), (3002, 0)]


def test_a_killed_run_ends_as_killed(tmp_path: Path) -> None:
    directory = begin(tmp_path, jobs=JOBS, unix_offset_ns=EPOCH_NS)
    directory.add(small_rows(0))
    directory.flush()
    path = directory.path
    del directory  # it releases its lock, as a process does that is killed
    found = samples(open_run(path))
    assert series(found, "chakram_run_state", state="running")[0][1] == 1
    assert series(found, "chakram_run_state", state="killed")[-1][1] == 1


def test_counters_of_samples_are_sums_over_queue_pairs_and_ports(
    tmp_path: Path,
) -> None:
    rows = RecordRows()
    # In steps 1, 2 and 3 of 1 ms; each sample counts from the start on.
    for rank, time_ns, marked in (
        (1, 900_000, 2), (2, 1_000_000, 5), (1, 1_000_001, 3), (2, 2_500_000, 5),
        (1, 2_600_000, 10),
    ):  # fmt: skip
        rows.queue_pairs.extend(
            row_of(
                QUEUE_PAIR_FIELDS, rank=rank, peer=3 - rank, qpn=0x100 + rank,
                time_ns=time_ns, ecn_ce_rx=marked,
            )
        )  # fmt: skip
    for port, time_ns, sent in ((0, 500_000, 7), (1, 600_000, 8), (0, 2_000_000, 9)):
        rows.ports.extend(
            row_of(PORT_FIELDS, port=port, time_ns=time_ns, socket_drops=sent)
        )
    found = samples(sampled(tmp_path, rows, (0, 1, 2)))
    agent = small_plan().agents[0].agent
    counted = series(found, "chakram_ecn_marked_packets_total", agent=agent)
    assert at_ms(counted) == [(0, 0), (1, 7), (2, 8), (3, 15), (4, 15)]
    drops = series(found, "chakram_socket_drops_total", agent=agent)
    assert at_ms(drops) == [(0, 0), (1, 15), (2, 17), (4, 17)]


def test_link_bytes_appear_at_the_end(tmp_path: Path) -> None:
    directory = begin(tmp_path, jobs=JOBS, unix_offset_ns=EPOCH_NS)
    directory.add(small_rows(0))
    link = LinkRecord(
        link="a-b", kind="uplink", direction="up", bytes_before=100, bytes_after=350
    )
    directory.finish(ended=datetime(2026, 1, 31, 12, 0, 5, tzinfo=UTC), links=[link])
    found = samples(open_run(directory.path))
    sent = series(found, "chakram_link_bytes_total", link="a-b", direction="up")
    assert at_ms(sent) == [(0, 0), (1, 0), (2, 250)]


@pytest.mark.parametrize(("most", "step"), [(3, None), (2, "2ms"), (1, "3ms")])
def test_the_proposed_step_is_the_shortest_that_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, step: str | None
) -> None:
    # 2.75 ms.
    results = finished(tmp_path)
    monkeypatch.setattr(backfill, "MOST_STEPS", most)
    if step is None:
        assert list(openmetrics(results, step_ns=STEP_NS))
        return
    with pytest.raises(InputError, match=f"takes 3 steps, but at most {most}.*{step}"):
        openmetrics(results, step_ns=STEP_NS)
    assert list(openmetrics(results, step_ns=int(step[0]) * STEP_NS))


def test_labels_are_escaped(tmp_path: Path) -> None:
    results = finished(tmp_path, name='a"b\\c\nd')
    (line, *_) = [
        line
        for line in openmetrics(results, step_ns=STEP_NS)
        if line.startswith("chakram_run_info{")
    ]
    assert r'="a\"b\\c\nd"' in line


def test_a_damaged_time_of_the_start_is_told(tmp_path: Path) -> None:
    results = finished(tmp_path, unix_offset_ns=None)
    started = results.manifest.started_at
    path = results.path / "run.json"
    path.write_text(path.read_text().replace(started, started.replace("1", "]", 1)))
    with pytest.raises(RunDirectoryError, match="started_at is not a time"):
        list(openmetrics(open_run(results.path), step_ns=10**9))
