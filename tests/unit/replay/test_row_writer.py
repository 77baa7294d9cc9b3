from __future__ import annotations

import pytest

from chakram.records.row_layout import (
    CAUSE_MESSAGE,
    END_RECEIVED,
    ArrivalRow,
    RecordRows,
    rows_of,
)
from chakram.replay.expansion import Expansion
from chakram.replay.rank_progress import ActiveOperation, Activity, Flow
from chakram.replay.rank_queue_pair import Pair
from chakram.replay.row_writer import RowWriter
from chakram.roce.events import MessageParts, SendCompleted
from tests.made_plans import (
    FlowRow,
    IterationRow,
    ShareRow,
    flow_rows,
    iteration_rows,
    share_rows,
)


def operation() -> ActiveOperation:
    expansion = Expansion()
    expansion.send_steps = [0, 4]
    expansion.send_channels = [0, 1]
    expansion.send_peers = [8, 9]
    active = ActiveOperation()
    active.begin(5, 1 << 16, 1 << 16, 0, expansion, 100, 110, True)
    return active


def made_flow() -> Flow:
    return Flow(Pair(640, 0, 9, 0), 65_538)


def test_flow_row_combines_queue_pair_and_schedule() -> None:
    records = RecordRows()
    flow = made_flow()
    flow.send, flow.ready_ns = 1, 120
    flow.cause_kind, flow.cause_rank, flow.cause_number = CAUSE_MESSAGE, 3, 65_537
    event = SendCompleted(65_538, 77, 121, 122, 190, 6, 2, 1, 10**9, 4)
    RowWriter(records, 7).flow(2, 640, operation(), flow, event, 5)
    assert flow_rows(records) == [
        FlowRow(
            iteration=2,
            rank=7,
            operation=5,
            step=4,
            channel=1,
            peer=9,
            qpn=640,
            size_bytes=77,
            ready_ns=120,
            posted_ns=121,
            first_sent_ns=122,
            last_acked_ns=190,
            rate_at_start_bps=10**9,
            packets=6,
            retransmitted=2,
            cnp=1,
            generator_wait_ns=5,
            cause_kind=CAUSE_MESSAGE,
            cause_rank=3,
            cause_number=65_537,
            number=(1 << 32) + 65_538,
        )
    ]


def test_flow_row_has_its_parts_if_known() -> None:
    records = RecordRows()
    parts = MessageParts()
    names = FlowRow._fields[FlowRow._fields.index("departed_ns") :]
    for value, name in enumerate(names, start=100):
        setattr(parts, name, value)
    event = SendCompleted(0, 0, 0, 0, 0, 1, 0, 0, None, 0, parts)
    RowWriter(records, 0).flow(0, 64, operation(), made_flow(), event, 0)
    (row,) = flow_rows(records)
    assert row[-len(names) :] == tuple(range(100, 100 + len(names)))


def test_missing_rate_limit_is_0_in_rows() -> None:
    records = RecordRows()
    event = SendCompleted(0, 0, 0, 0, 0, 1, 0, 0, None, 0)
    RowWriter(records, 0).flow(0, 64, operation(), made_flow(), event, 0)
    assert flow_rows(records)[0].rate_at_start_bps == 0


def test_receiver_reports_an_arrival() -> None:
    records = RecordRows()
    RowWriter(records, 7).arrival(2, 5, 9, (1 << 32) + 3, 190)
    (row,) = rows_of(ArrivalRow, records.arrivals)
    assert row == ArrivalRow(
        iteration=2, rank=7, operation=5, peer=9, number=(1 << 32) + 3, received_ns=190
    )


def test_share_row_describes_the_operation() -> None:
    records = RecordRows()
    active = operation()
    active.end_ns = 500
    active.sent_bytes, active.received_bytes = 60, 70
    active.generator_wait_ns, active.retransmitted, active.ce = 8, 9, 10
    active.slip_ns, active.wrong = 11, 12
    active.released_by = 4
    active.end_kind, active.end_rank, active.end_number = END_RECEIVED, 8, 65_537
    RowWriter(records, 7).share(3, active)
    assert share_rows(records) == [
        ShareRow(
            iteration=3,
            rank=7,
            operation=5,
            ready_ns=100,
            start_ns=110,
            end_ns=500,
            sent_bytes=60,
            received_bytes=70,
            generator_wait_ns=8,
            retransmitted=9,
            ce=10,
            slip_ns=11,
            wrong=12,
            released_by=4,
            end_kind=END_RECEIVED,
            end_rank=8,
            end_number=65_537,
        )
    ]


def test_iteration_row_has_its_times() -> None:
    records = RecordRows()
    activity = Activity()
    activity.begin(10)
    activity.change(1, 0, 11)
    activity.change(0, 1, 13)
    activity.change(-1, 0, 17)
    activity.change(0, -1, 25)
    activity.change(0, 0, 41)
    RowWriter(records, 7).iteration(4, 10, 41, activity)
    assert iteration_rows(records) == [
        IterationRow(
            iteration=4,
            rank=7,
            start_ns=10,
            end_ns=41,
            compute_ns=6,
            communication_ns=12,
            exposed_ns=8,
            idle_ns=17,
        )
    ]


def test_rows_go_where_the_records_are_now() -> None:
    records = RecordRows()
    writer = RowWriter(records, 7)
    writer.share(0, operation())
    assert len(records.take()) == 1
    writer.share(1, operation())
    assert [row.iteration for row in share_rows(records)] == [1]


def test_rows_with_a_view_are_not_extended() -> None:
    records = RecordRows()
    writer = RowWriter(records, 7)
    writer.share(0, operation())
    with memoryview(records.shares), pytest.raises(BufferError):
        writer.share(1, operation())
    writer.share(2, operation())
    assert [each.iteration for each in share_rows(records)] == [0, 2]
