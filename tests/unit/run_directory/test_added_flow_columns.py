"""Fair times and paths of messages, written to and read from a run directory."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from chakram.foundation.errors import RunDirectoryError
from chakram.run_directory.added_flow_columns import MessageColumns
from chakram.run_directory.manifest import RunManifest
from chakram.run_directory.reader import open_run
from chakram.run_directory.writer import RunDirectory
from chakram.summary.message_summary import PortFacts
from tests.small_run import MESSAGE_NS, small_plan, small_rows

STARTED = datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC)


def begin(parent: Path) -> RunDirectory:
    manifest = RunManifest(
        run_id="r1", name="n", world="simulate", started_at="", warmup=1, measured=3
    )
    directory = RunDirectory.create(parent, manifest=manifest, started=STARTED)
    directory.begin(small_plan())
    for iteration in range(4):
        directory.add(small_rows(iteration))
        directory.flush()
    return directory


def fair(job: str, messages: Sequence[tuple[int, int, int, int]]) -> list[int]:
    """Something that depends on all of them, so that no part can be left out."""
    assert job == "moe"
    assert messages == sorted(messages, key=lambda each: each[3])
    return [
        posted_ns + 1000 * len(messages) + size_bytes + dst - src
        for src, dst, size_bytes, posted_ns in messages
    ]


def flows(directory: RunDirectory) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = open_run(directory.path).table("flows").to_pylist()
    return rows


def test_messages_of_all_parts_have_their_fair_times_and_no_others(
    tmp_path: Path,
) -> None:
    directory = begin(tmp_path)
    directory.finish(ended=STARTED, messages=MessageColumns(fair))
    rows = flows(directory)
    messages = [row for row in rows if row["collective"] == "send_recv"]
    assert len(messages) == 4
    assert [row["fair_ns"] for row in messages] == [
        row["posted_ns"] + 4000 + 2**16 + 1 for row in messages
    ]
    others = [row for row in rows if row["collective"] != "send_recv"]
    assert {(row["fair_ns"], row["path"]) for row in others} == {(None, None)}


def test_paths_are_computed_once_per_queue_pair(tmp_path: Path) -> None:
    asked: list[tuple[str, int, int]] = []

    def ways(job: str, rank: int, qpn: int) -> list[list[str]]:
        asked.append((job, rank, qpn))
        return [["leaf0:up1", "spine1:down1"]]

    directory = begin(tmp_path)
    directory.finish(ended=STARTED, messages=MessageColumns(ways=ways))
    rows = flows(directory)
    assert len({row["collective"] for row in rows}) > 1
    assert {row["path"] for row in rows} == {"leaf0:up1 spine1:down1"}
    keys = {(row["job"], row["src"], row["qpn"]) for row in rows}
    assert sorted(asked) == sorted(keys)
    results = open_run(directory.path)
    assert {each.ways for each in results.messages()} == {
        (("leaf0:up1", "spine1:down1"),)
    }


@pytest.mark.parametrize(
    ("ways", "text", "read"),
    [
        ([["a:1", "b:2"], ["a:2", "c:2"]], "a:1 b:2 | a:2 c:2", None),
        ([["a:1"], ["a:2"], ["a:1"]], "a:1 | a:2", (("a:1",), ("a:2",))),
        ([[]], "", None),
    ],
)
def test_parts_of_messages_have_their_own_paths(
    tmp_path: Path,
    ways: list[list[str]],
    text: str,
    read: tuple[tuple[str, ...], ...] | None,
) -> None:
    directory = begin(tmp_path)
    directory.finish(ended=STARTED, messages=MessageColumns(ways=lambda *_: ways))
    rows = [row for row in flows(directory) if row["collective"] == "send_recv"]
    assert {row["path"] for row in rows} == {text}
    expected = read or tuple(map(tuple, ways))
    found = open_run(directory.path).messages()
    assert {each.ways for each in found} == {expected}


def test_messages_are_read_back_without_the_warm_up(tmp_path: Path) -> None:
    directory = begin(tmp_path)
    directory.finish(ended=STARTED, messages=MessageColumns(fair))
    messages = open_run(directory.path).messages()
    assert [(each.src, each.dst, each.size_bytes) for each in messages] == (
        [(0, 1, 2**16)] * 3
    )
    assert {each.acked_ns - each.posted_ns for each in messages} == {MESSAGE_NS}
    assert all(
        each.fair_ns == each.posted_ns + 4000 + 2**16 + 1 and each.ways is None
        for each in messages
    )


@pytest.mark.parametrize("ended", [True, False])
def test_run_without_predictions_or_killed_run_can_be_summarized(
    tmp_path: Path, ended: bool
) -> None:
    directory = begin(tmp_path)
    if ended:
        directory.finish(ended=STARTED)
    summary = open_run(directory.path).summary()
    assert summary.messages is not None
    (row,) = summary.messages.receivers
    assert (row.messages, row.fair_ns, row.host) == (3, None, "h1")
    assert row.goodput_bps == pytest.approx(2**16 * 8e9 / MESSAGE_NS)
    assert row.is_faster
    assert row.goodput_share is None


def test_ports_come_from_the_plan(tmp_path: Path) -> None:
    found = open_run(begin(tmp_path).path).message_transport()
    assert found is not None
    assert found.ports["moe", 2] == PortFacts(number=2, host="h2", rate_bps=10**9)
    assert (found.verb, found.overhead_bytes) == ("write", 58)


@pytest.mark.parametrize(
    ("parameters", "least_rate_bps", "is_fixed"),
    [
        ([], 0, False),
        ([["rate_bps", 10**6]], 10**6, True),
        ([["min_rate_bps", 10**5]], 10**5, False),
    ],
)
def test_rates_of_congestion_control_come_from_the_plan(
    tmp_path: Path, parameters: list[object], least_rate_bps: int, *, is_fixed: bool
) -> None:
    path = begin(tmp_path).path / "plan.json"
    document = json.loads(path.read_text())
    document["transport"]["congestion_parameters"] = parameters
    path.write_text(json.dumps(document))
    found = open_run(path.parent).message_transport()
    assert found is not None
    assert (found.least_rate_bps, found.has_fixed_rate) == (least_rate_bps, is_fixed)


def test_damaged_plan_is_reported(tmp_path: Path) -> None:
    directory = begin(tmp_path)
    path = directory.path / "plan.json"
    document = json.loads(path.read_text())
    del document["ports"][0]["rate_bps"]
    path.write_text(json.dumps(document))
    with pytest.raises(RunDirectoryError, match=r"plan\.json.*rate_bps"):
        open_run(directory.path).message_transport()
    path.unlink()
    assert open_run(directory.path).message_transport() is None
