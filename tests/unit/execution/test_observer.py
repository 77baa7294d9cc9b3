"""Events of a run are passed on without delaying it."""

from __future__ import annotations

import threading
from array import array
from typing import Any

import pytest

from chakram.control.events import CountersSnapshot
from chakram.execution.observer import Observer, Silent
from chakram.foundation.errors import RunDirectoryError
from chakram.records.counter_slots import TOTAL_SLOTS, slot
from chakram.records.row_layout import RecordRows
from chakram.run_directory.writer import NewRecords


class Directory:
    """Records its calls, and their thread."""

    def __init__(self, taken: list[tuple[str, int, str]], full: bool = False) -> None:
        self._taken = taken
        self._full = full

    def add(self, rows: RecordRows) -> NewRecords:
        if self._full:
            raise RunDirectoryError("runs", "no room")
        self._taken.append(("written", rows.ports[0], threading.current_thread().name))
        return NewRecords(collectives=[], ranks=[])

    def flush(self) -> None:
        self._taken.append(("flushed", 0, threading.current_thread().name))


class Live:
    def __init__(self, taken: list[tuple[str, int, str]]) -> None:
        self._taken = taken

    def take(self, rows: RecordRows) -> None:
        self._taken.append(("shown", rows.ports[0], threading.current_thread().name))


class Metrics:
    def add_collectives(self, records: object) -> None:
        """Ignore the call."""

    def add_ranks(self, records: object) -> None:
        """Record the call."""

    def add_messages(self, columns: object) -> None:
        """Record the call."""

    def set_counters(self, agent: str, values: object) -> None:
        """Record the call."""


def made(directory: Directory, live: Live | None = None) -> Observer:
    fakes: list[Any] = [directory, Metrics(), Silent()]
    return Observer(*fakes, 1, live)  # type: ignore[arg-type] # a fake


def rows(number: int) -> RecordRows:
    return RecordRows(ports=array("q", [number]))


def test_records_are_shown_and_written_in_order_by_another_thread() -> None:
    taken: list[tuple[str, int, str]] = []
    observer = made(Directory(taken), Live(taken))
    for number in range(3):
        observer.rows_arrived(rows(number))
    observer.close()
    assert [(what, number) for what, number, _ in taken] == [
        *((what, number) for number in range(3) for what in ("shown", "written")),
        ("flushed", 0),
    ]
    assert threading.current_thread().name not in {thread for *_, thread in taken}


def test_chosen_jobs_are_shown_once_earlier_records_are_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken: list[tuple[str, int, str]] = []
    observer = made(Directory(taken))
    monkeypatch.setattr(
        observer.progress, "note", lambda text: taken.append((text, 0, ""))
    )
    observer.rows_arrived(rows(7))
    observer.jobs_chosen(["a", "b"])
    observer.close()
    assert [what for what, _, _ in taken[:3]] == ["written", "flushed", "jobs: a b"]


def test_failure_to_write_records_is_reported() -> None:
    observer = made(Directory([], full=True))
    observer.rows_arrived(rows(0))
    for _ in range(2):
        with pytest.raises(RunDirectoryError, match="no room"):
            observer.close()


def test_missing_records_are_named_above_the_results() -> None:
    observer = made(Directory([]))
    observer.records_missing("h1", "the connection was lost")
    assert observer.banners == [
        "agent h1: its last records are missing: the connection was lost"
    ]
    observer.close()


def test_counters_of_agents_are_summed_without_zeros() -> None:
    observer = made(Directory([]))
    slots = {"drops": "injected_drops", "delays": "injected_delays"}
    slots["marks"] = "injected_marks"
    assert observer.counted(slots) == {}
    for agent, drops, delays in (("a", 2, 0), ("b", 3, 1), ("b", 4, 1)):
        values = array("q", bytes(8 * TOTAL_SLOTS))
        values[slot("injected_drops")] = drops
        values[slot("injected_delays")] = delays
        snapshot = CountersSnapshot(time_ns=0, values=values)
        observer.counters_arrived(agent, snapshot)
    assert observer.counted(slots) == {"drops": 6, "delays": 1}
