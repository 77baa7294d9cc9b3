"""Conversion of records to the controller's clock."""

from __future__ import annotations

from array import array

from chakram.records import row_layout
from chakram.records.clock_conversion import ClockLine
from chakram.records.row_layout import UNKNOWN, ArrivalRow, FlowRow, RecordRows, rows_of
from tests.small_run import small_rows

AHEAD_NS = 5_000


def copy(rows: RecordRows) -> RecordRows:
    made = RecordRows()
    made.extend(rows)
    return made


def test_all_times_of_all_tables_are_shifted() -> None:
    rows = small_rows(1)
    rows.extend(
        RecordRows(
            arrivals=array("q", [1, 1, 1, 0, 0, 7_000]),
            computations=array("q", [1, 0, 0, 10, 20, 30, -1, -1]),
            queue_pairs=array(
                "q", [40, *[1] * (len(row_layout.QUEUE_PAIR_FIELDS) - 1)]
            ),
            ports=array("q", [50, *[1] * (len(row_layout.PORT_FIELDS) - 1)]),
        )
    )
    before = copy(rows)
    ClockLine(remote_ns=0, offset_ns=AHEAD_NS).convert(rows)
    for name, fields in (
        ("flows", row_layout.FLOW_FIELDS),
        ("shares", row_layout.SHARE_FIELDS),
        ("iterations", row_layout.ITERATION_FIELDS),
        ("arrivals", row_layout.ARRIVAL_FIELDS),
        ("computations", row_layout.COMPUTATION_FIELDS),
        ("queue_pairs", row_layout.QUEUE_PAIR_FIELDS),
        ("ports", row_layout.PORT_FIELDS),
    ):
        assert len(getattr(rows, name))
        shifted = {
            fields[at % len(fields)]
            for at, (old, new) in enumerate(
                zip(getattr(before, name), getattr(rows, name), strict=True)
            )
            if old != new
        }
        assert shifted == {
            each
            for each in fields
            if each
            in (
                *("time_ns", "ready_ns", "start_ns", "end_ns", "posted_ns"),
                *("first_sent_ns", "last_acked_ns", "received_ns"),
            )
            and not (name == "flows" and each == "received_ns")
        }


def test_unknown_times_stay_unknown() -> None:
    rows = small_rows(1, ranks=[0])
    ClockLine(offset_ns=AHEAD_NS).convert(rows)
    flows = list(rows_of(FlowRow, rows.flows))
    assert {flow.received_ns for flow in flows} == {UNKNOWN}


def test_drift_shifts_a_row_as_a_whole() -> None:
    rows = small_rows(1, ranks=[0])
    old = list(rows_of(FlowRow, rows.flows))
    ClockLine(remote_ns=0, offset_ns=10.0, drift=1e-4).convert(rows)
    new = list(rows_of(FlowRow, rows.flows))
    for before, after in zip(old, new, strict=True):
        assert after.posted_ns == before.posted_ns - round(10 + before.posted_ns * 1e-4)
        assert (
            after.last_acked_ns - after.posted_ns
            == before.last_acked_ns - before.posted_ns
        )


def test_the_controllers_own_clock_changes_nothing() -> None:
    rows = RecordRows(arrivals=array("q", [1, 1, 1, 0, 0, 7_000]))
    ClockLine().convert(rows)
    (row,) = rows_of(ArrivalRow, rows.arrivals)
    assert row.received_ns == 7_000
