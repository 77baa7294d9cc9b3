from __future__ import annotations

import pytest

from chakram.collectives.groups import POINT_TO_POINT
from chakram.records.row_layout import (
    CAUSE_MESSAGE,
    CAUSE_OPERATION,
    CAUSE_START,
    COMPUTATION_FIELDS,
    END_ACKNOWLEDGED,
    END_RECEIVED,
    ArrivalRow,
    ComputationRow,
    rows_of,
)
from chakram.roce.events import SendCompleted
from tests.made_plans import FlowRow, collective, compute, receive, send
from tests.unit.replay.driven import Driven, alike, alone, point_to_point


def test_messages_are_ordered_by_collective_and_step() -> None:
    rows = [
        collective("broadcast", 9, algorithm="tree", number=0),
        collective("broadcast", 9, algorithm="tree", number=1),
    ]
    driven = Driven(alike(rows, nranks=4))
    driven.start()
    orders = [flow.order for flow in iter(driven.replay.next_post, None)]
    # Two collectives in flight, two steps each.
    assert orders == sorted(orders)
    assert [order % 16 for order in orders] == [0, 1, 0, 1]
    assert len(set(orders)) == 4


def test_ring_forwards_arrived_messages() -> None:
    driven = Driven(alike([collective("all_reduce", 10)], nranks=3))
    driven.start()
    (first,) = driven.posts()
    assert first == (driven.qpn(1), 0, 3)
    driven.receive(2, 0, 100, size_bytes=4)
    (second,) = driven.posts()
    assert second[:2] == (driven.qpn(1), 1)
    driven.acknowledge(first, 120)
    driven.receive(2, 1, 200, size_bytes=3)
    driven.receive(2, 2, 300, size_bytes=3)
    driven.receive(2, 3, 400, size_bytes=4)
    assert not driven.replay.finished()
    for at_ns, post in enumerate([second, *driven.posts()], start=500):
        driven.acknowledge(post, at_ns)
    assert driven.replay.finished_ns == 502
    (share,) = driven.shares()
    assert (share.ready_ns, share.start_ns, share.end_ns) == (0, 0, 502)
    assert share.received_bytes == 14
    assert [
        (flow.step, flow.ready_ns, flow.cause_kind, flow.cause_rank, flow.cause_number)
        for flow in driven.flows()
    ] == [
        (0, 0, CAUSE_START, 0, 0),
        (1, 100, CAUSE_MESSAGE, 2, 0),
        (2, 200, CAUSE_MESSAGE, 2, 1),
        (3, 300, CAUSE_MESSAGE, 2, 2),
    ]


def test_arrivals_are_reported_if_flows_do_not_contain_them() -> None:
    rows = [compute(50), collective("all_gather", 10, after=[0])]
    driven = Driven(alike(rows), has_arrivals=True)
    driven.start()
    driven.receive(1, 0, 30, size_bytes=10)  # before its operation
    assert not driven.records.arrivals
    driven.replay.handle_timers(50)
    assert list(rows_of(ArrivalRow, driven.records.arrivals)) == [
        ArrivalRow(iteration=0, rank=0, operation=1, peer=1, number=0, received_ns=30)
    ]


def test_a_send_is_done_when_it_is_acknowledged() -> None:
    driven = point_to_point([send(1, 77)], [receive(0, 77)])
    driven.start(5)
    (post,) = driven.posts()
    assert post == (driven.qpn(1, POINT_TO_POINT), 0, 77)
    assert not driven.replay.finished()
    driven.acknowledge(post, 90, posted_ns=5)
    assert driven.replay.finished_ns == 90
    (share,) = driven.shares()
    assert (share.sent_bytes, share.received_bytes) == (77, 0)


def test_share_record_is_computed_from_its_flows() -> None:
    driven = Driven(alike([compute(40), collective("all_gather", 10, after=[0])]))
    driven.start()
    driven.replay.handle_timers(45)  # five late
    (post,) = driven.posts()
    driven.receive(1, 0, 50, size_bytes=10)
    driven.acknowledge(post, 90, posted_ns=46, wait_ns=3)
    (flow,) = driven.flows()
    assert (flow.cause_kind, flow.cause_rank, flow.cause_number) == (
        CAUSE_OPERATION,
        0,
        0,
    )
    assert (flow.ready_ns, flow.posted_ns, flow.generator_wait_ns) == (40, 46, 9)
    (share,) = driven.shares()
    assert (share.ready_ns, share.start_ns, share.end_ns) == (40, 45, 90)
    assert (share.sent_bytes, share.received_bytes) == (10, 10)
    assert share.generator_wait_ns == 9


def test_flow_has_all_values_of_the_queue_pair() -> None:
    driven = Driven(alike([collective("all_gather", 10)]))
    driven.start(10)
    (post,) = driven.posts()
    qpn, immediate, size_bytes = post
    driven.replay.message_acknowledged(
        driven.flow(post),
        SendCompleted(
            message_id=immediate,
            size_bytes=size_bytes,
            posted_ns=11,
            first_sent_ns=12,
            last_acked_ns=90,
            packets=5,
            retransmitted=3,
            cnps=2,
            rate_at_start_bps=7_000,
            generator_wait_ns=0,
        ),
        95,
    )
    driven.receive(1, 0, 50, size_bytes=10)
    assert driven.flows() == [
        FlowRow(
            iteration=0,
            rank=0,
            operation=0,
            step=0,
            channel=0,
            peer=1,
            qpn=qpn,
            size_bytes=10,
            ready_ns=10,
            posted_ns=11,
            first_sent_ns=12,
            last_acked_ns=90,
            rate_at_start_bps=7_000,
            packets=5,
            retransmitted=3,
            cnp=2,
            generator_wait_ns=1,
            cause_kind=CAUSE_START,
            cause_rank=0,
            cause_number=0,
            number=0,
        )
    ]
    (share,) = driven.shares()
    assert (share.retransmitted, share.generator_wait_ns) == (3, 1)
    assert share.end_ns == 90


def test_message_processed_late_releases_at_its_arrival_time() -> None:
    driven = Driven(alike([compute(1_000), collective("all_reduce", 8, after=[0])]))
    driven.start()
    driven.receive(1, 0, 1_200, size_bytes=4, now_ns=5_000)
    posts = driven.posts()
    assert len(posts) == 2
    for post in posts:
        driven.acknowledge(post, 6_000, posted_ns=5_000)
    assert [
        (flow.ready_ns, flow.cause_kind, flow.generator_wait_ns)
        for flow in driven.flows()
    ] == [(1_000, CAUSE_OPERATION, 4_000), (1_200, CAUSE_MESSAGE, 3_800)]


@pytest.mark.parametrize(
    ("acked_ns", "from_1_ns", "from_2_ns", "expected"),
    [
        (50, 70, 60, (END_RECEIVED, 1)),
        (90, 70, 60, (END_ACKNOWLEDGED, 2)),
        (70, 60, 70, (END_RECEIVED, 2)),
        (60, 70, 70, (END_RECEIVED, 1)),
        (80, 5, 6, (END_ACKNOWLEDGED, 2)),
    ],
)
def test_share_ends_with_its_last_event_and_ties_go_to_the_lowest(
    acked_ns: int, from_1_ns: int, from_2_ns: int, expected: tuple[int, int]
) -> None:
    row = collective("all_gather", 10, algorithm="direct")
    driven = Driven(alike([row], nranks=3))
    driven.start(10)
    posts = driven.posts()
    events = [
        (from_1_ns, lambda: driven.receive(1, 0, from_1_ns)),
        (from_2_ns, lambda: driven.receive(2, 0, from_2_ns)),
        (acked_ns - 1, lambda: driven.acknowledge(posts[0], acked_ns - 1)),
        (acked_ns, lambda: driven.acknowledge(posts[1], acked_ns)),
    ]
    for _, event in sorted(events, key=lambda each: each[0], reverse=True):
        event()
    (share,) = driven.shares()
    assert (share.end_kind, share.end_rank) == expected
    assert share.end_ns == max(acked_ns, from_1_ns, from_2_ns)


def test_computation_rows_name_the_previous_stream_user_and_the_releaser() -> None:
    rows = [compute(30), compute(40), compute(0, after=[1]), compute(5, after=[2])]
    driven = alone(rows)
    driven.start(10)
    for now_ns in (40, 80, 85):
        driven.replay.handle_timers(now_ns)
    assert driven.replay.finished_ns == 85
    found = list(rows_of(ComputationRow, driven.records.computations))
    assert [each[COMPUTATION_FIELDS.index("operation") :] for each in found] == [
        (0, 10, 10, 40, -1, -1),
        (1, 10, 40, 80, -1, 0),
        # What takes no time is left out: what came before it is the cause.
        (3, 80, 80, 85, 1, -1),
    ]


def test_computations_of_warm_up_are_not_recorded() -> None:
    driven = alone([compute(30)], warmup=1)
    driven.start()
    driven.replay.handle_timers(30)
    assert not driven.records.computations
    for now_ns in (30, 60):
        driven.replay.handle_timers(now_ns)
    assert len(driven.records.computations) == len(COMPUTATION_FIELDS)
