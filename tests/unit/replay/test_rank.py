from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from chakram.core.groups import ProcessGroup, world_group
from chakram.core.plan import POINT_TO_POINT, JobSettings, RunSettings
from chakram.core.program import Operation, RankProgram
from chakram.core.records import (
    CAUSE_MESSAGE,
    CAUSE_OPERATION,
    CAUSE_START,
    RecordRows,
)
from chakram.errors import PlanError
from chakram.fabric.topology import single_switch
from chakram.replay.rank import Replay
from chakram.replay.tables import LONGEST_COMPUTE_NS, MOST_RANKS
from chakram.roce.constants import NEVER
from chakram.roce.events import SendCompleted
from chakram.testing.plans import (
    FlowRow,
    ShareRow,
    collective,
    compute,
    flow_rows,
    iteration_rows,
    make_plan,
    program,
    receive,
    send,
    share_rows,
)
from chakram.testing.replays import acknowledged, received

Post = tuple[int, int, int]


class Driven:
    """One rank's replay, with the network played by the test."""

    def __init__(
        self,
        programs: Sequence[RankProgram],
        *,
        rank: int = 0,
        settings: RunSettings | None = None,
    ) -> None:
        plan = make_plan(
            programs, single_switch(len(programs), None), settings=settings
        )
        self.plan = plan.ranks()[rank]
        self.records = RecordRows()
        self.replay = Replay(
            plan=self.plan,
            settings=plan.agents[0].settings,
            rank_numbers=plan.agents[0].numbers(),
            records=self.records,
        )

    def start(self, start_ns: int = 0, now_ns: int | None = None) -> None:
        self.replay.arm(start_ns)
        self.replay.handle_timers(start_ns if now_ns is None else now_ns)

    def posts(self) -> list[Post]:
        return [post[:3] for post in iter(self.replay.next_post, None)]

    def qpn(self, peer: int, group: str = "world") -> int:
        return next(
            pair.qpn
            for pair in self.plan.queue_pairs
            if (pair.group, pair.peer_rank) == (group, peer)
        )

    def receive(
        self,
        peer: int,
        immediate: int | None,
        at_ns: int,
        *,
        size_bytes: int = 0,
        group: str = "world",
        now_ns: int | None = None,
    ) -> None:
        event = received(immediate, size_bytes, at_ns)
        now_ns = at_ns if now_ns is None else now_ns
        self.replay.message_received(self.qpn(peer, group), event, now_ns)

    def acknowledge(
        self, post: Post, at_ns: int, *, posted_ns: int = 0, wait_ns: int = 0
    ) -> None:
        qpn, immediate, size_bytes = post
        event = acknowledged(immediate, size_bytes, posted_ns, at_ns, wait_ns)
        self.replay.message_acknowledged(qpn, event, at_ns)

    def flows(self) -> list[FlowRow]:
        return flow_rows(self.records)

    def shares(self) -> list[ShareRow]:
        return share_rows(self.records)


def alike(rows: Sequence[Operation], nranks: int = 2) -> list[RankProgram]:
    world = world_group(nranks)
    return [program(rank, world, rows) for rank in range(nranks)]


def alone(rows: Sequence[Operation], **kwargs: int) -> Driven:
    settings = RunSettings(warmup=0, **{"measured": 1, **kwargs})
    return Driven(alike(rows, nranks=1), settings=settings)


# Compute, dependencies and iterations.


def test_compute_operations_of_one_stream_run_one_after_another() -> None:
    driven = alone([compute(10), compute(20), compute(5, after=[0])])
    driven.start(100)
    for deadline_ns in (110, 130, 135):
        assert driven.replay.next_timer_ns() == deadline_ns
        driven.replay.handle_timers(deadline_ns)
    assert driven.replay.finished()
    assert driven.replay.finished_ns == 135
    assert driven.replay.next_timer_ns() == NEVER


def test_compute_operations_of_different_streams_overlap() -> None:
    driven = alone([compute(10), compute(20, stream=0), compute(30, stream=1)])
    driven.start()
    driven.replay.handle_timers(30)
    (row,) = iteration_rows(driven.records)
    assert (row.end_ns, row.compute_ns, row.idle_ns) == (30, 30, 0)


def test_operations_that_are_ready_together_start_in_the_order_of_rows() -> None:
    driven = alone([compute(10, after=[2]), compute(20), compute(30)])
    driven.start()
    assert driven.replay.next_timer_ns() == 20
    driven.replay.handle_timers(20)
    assert driven.replay.next_timer_ns() == 50


def job_settings(**job: object) -> RunSettings:
    return RunSettings(
        warmup=0,
        measured=1,
        jobs=(JobSettings(job="other"), JobSettings(job="job", **job)),
    )


def ends_of(rows: Sequence[Operation], policy: str) -> list[int]:
    """Return when the timers of a rank's compute operations end, in order."""
    driven = Driven(alike(rows, nranks=1), settings=job_settings(policy=policy))
    driven.start()
    ends_ns = []
    while (deadline_ns := driven.replay.next_timer_ns()) != NEVER:
        ends_ns.append(deadline_ns)
        driven.replay.handle_timers(deadline_ns)
    return ends_ns


def test_the_policy_decides_who_gets_the_stream() -> None:
    rows = [
        compute(1, start_ns=3),
        compute(10, start_ns=9),
        compute(100, start_ns=1),
        compute(1_000, start_ns=2),
        collective("barrier", after=[3]),
    ]
    assert ends_of(rows, "fifo") == [1, 11, 111, 1_111]
    assert ends_of(rows, "start_time") == [100, 1_100, 1_101, 1_111]
    assert ends_of(rows, "communication_first") == [1_000, 1_001, 1_011, 1_111]


def test_a_job_may_begin_later_and_repeat_otherwise() -> None:
    settings = job_settings(offset_ns=500, iterations=3)
    driven = Driven(alike([compute(10)], nranks=1), settings=settings)
    driven.start(100)
    for deadline_ns in (600, 610, 620, 630):
        assert driven.replay.next_timer_ns() == deadline_ns
        driven.replay.handle_timers(deadline_ns)
    assert driven.replay.finished_ns == 630
    assert len(iteration_rows(driven.records)) == 3


def test_a_job_in_the_background_has_no_end() -> None:
    settings = job_settings(is_background=True, iterations=1)
    driven = Driven(alike([compute(10)], nranks=1), settings=settings)
    assert driven.replay.is_background
    driven.start()
    driven.replay.handle_timers(1_000)
    assert not driven.replay.finished()
    assert driven.replay.iteration == 100


# Recorded times.


def by_times(rows: Sequence[Operation], nranks: int = 2, **job: object) -> Driven:
    settings = job_settings(order="start_times", **job)
    return Driven(alike(rows, nranks), settings=settings)


def test_operations_start_at_their_recorded_times() -> None:
    rows = [
        collective("broadcast", 9, start_ns=40, number=0),
        collective("broadcast", 9, start_ns=70, number=1, after=[0]),
    ]
    driven = by_times(rows)
    driven.start(1_000)
    assert not driven.posts()
    assert driven.replay.next_timer_ns() == 1_040
    driven.replay.handle_timers(1_040)
    (post,) = driven.posts()
    assert driven.replay.next_timer_ns() == NEVER  # the second waits for the first
    driven.acknowledge(post, 1_060)
    driven.replay.handle_timers(1_070)
    (post,) = driven.posts()
    driven.acknowledge(post, 1_090)
    assert [(row.start_ns, row.slip_ns) for row in driven.shares()] == [
        (1_040, 0),
        (1_070, 0),
    ]
    assert driven.replay.finished_ns == 1_090


def test_who_has_to_wait_beyond_its_recorded_time_slips() -> None:
    rows = [
        collective("broadcast", 9, start_ns=0, number=0),
        collective("broadcast", 9, start_ns=30, number=1, after=[0]),
    ]
    driven = by_times(rows)
    driven.start()
    driven.replay.handle_timers(0)
    (post,) = driven.posts()
    driven.acknowledge(post, 50)
    (post,) = driven.posts()
    driven.acknowledge(post, 80)
    assert [row.slip_ns for row in driven.shares()] == [0, 20]


def test_recorded_times_count_from_the_start_of_each_iteration() -> None:
    driven = by_times([compute(10, start_ns=5)], nranks=1, iterations=2)
    driven.start(100)
    ends_ns = []
    while (deadline_ns := driven.replay.next_timer_ns()) != NEVER:
        driven.replay.handle_timers(deadline_ns)
        ends_ns.append(deadline_ns)
    assert ends_ns == [105, 115, 120, 130]
    assert [row.end_ns for row in iteration_rows(driven.records)] == [115, 130]


def test_what_is_late_looks_on_time_and_in_order() -> None:
    rows = [compute(10, start_ns=50), compute(10, start_ns=5)]
    driven = by_times(rows, nranks=1)
    driven.start(0, now_ns=1_000)
    assert driven.replay.finished_ns == 60


def test_a_compute_operation_without_duration_takes_no_slot() -> None:
    driven = alone([compute(10), compute(0, after=[]), compute(7, stream=5, after=[1])])
    driven.start()
    assert driven.replay.next_timer_ns() == 7


def test_long_chains_of_nothing_do_not_recurse() -> None:
    count = 100_000
    rows = [compute(0, after=[index - 1] if index else []) for index in range(count)]
    driven = alone(rows)
    driven.start(3)
    assert driven.replay.finished_ns == 3
    assert driven.replay.completed_operations == count


def test_long_chains_of_collectives_of_one_rank_do_not_recurse() -> None:
    rows = [
        collective("all_reduce", 8, number=k, after=[k - 1] if k else [])
        for k in range(5_000)
    ]
    driven = alone(rows)
    driven.start(3)
    assert driven.replay.finished_ns == 3


def test_a_late_timer_counts_as_ready_at_its_deadline() -> None:
    driven = alone([compute(10), compute(20), collective("barrier", after=[1])])
    driven.start(100, now_ns=1_000_000)
    assert driven.replay.finished_ns == 130
    (row,) = iteration_rows(driven.records)
    assert (row.start_ns, row.end_ns, row.compute_ns) == (100, 130, 30)


def test_iterations_follow_each_other_at_once() -> None:
    driven = alone([compute(10)], measured=3)
    driven.start(100)
    driven.replay.handle_timers(500)
    assert [
        (row.iteration, row.start_ns, row.end_ns)
        for row in iteration_rows(driven.records)
    ] == [(0, 100, 110), (1, 110, 120), (2, 120, 130)]
    assert driven.replay.iteration == 3


def test_a_gap_lies_between_iterations() -> None:
    settings = RunSettings(warmup=1, measured=1, sync="gap", gap_ns=1_000)
    driven = Driven(alike([compute(10)], nranks=1), settings=settings)
    driven.start()
    driven.replay.handle_timers(10)
    assert driven.replay.next_timer_ns() == 1_010
    driven.replay.handle_timers(5_000)
    assert driven.replay.finished_ns == 1_020


def test_a_program_without_operations_does_its_iterations_at_once() -> None:
    driven = alone([], measured=1_000)
    driven.start(7)
    assert driven.replay.finished_ns == 7
    assert len(iteration_rows(driven.records)) == 1_000


def test_a_program_without_operations_keeps_its_gaps() -> None:
    settings = RunSettings(warmup=0, measured=3, sync="gap", gap_ns=50)
    driven = Driven(alike([], nranks=1), settings=settings)
    driven.start(7)
    assert not driven.replay.finished()
    driven.replay.handle_timers(1_000)
    assert driven.replay.finished_ns == 107


def test_no_iterations_are_done_at_the_start() -> None:
    driven = alone([compute(10)], measured=0)
    driven.start(7)
    assert driven.replay.finished_ns == 7
    assert len(driven.records) == 0


# Collectives.


def test_the_order_of_messages_is_that_of_collectives_and_steps() -> None:
    rows = [
        collective("broadcast", 9, algorithm="tree", number=0),
        collective("broadcast", 9, algorithm="tree", number=1),
    ]
    driven = Driven(alike(rows, nranks=4))
    driven.start()
    orders = [post[3] for post in iter(driven.replay.next_post, None)]
    # Two collectives under way, two steps each.
    assert orders == sorted(orders)
    assert [order % 16 for order in orders] == [0, 1, 0, 1]
    assert len(set(orders)) == 4


def test_a_ring_sends_on_what_has_come() -> None:
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


def test_what_a_share_records_comes_from_its_flows() -> None:
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


def test_a_flow_says_all_that_the_queue_pair_knows() -> None:
    driven = Driven(alike([collective("all_gather", 10)]))
    driven.start(10)
    (post,) = driven.posts()
    qpn, immediate, size_bytes = post
    driven.replay.message_acknowledged(
        qpn,
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
        )
    ]
    (share,) = driven.shares()
    assert (share.retransmitted, share.generator_wait_ns) == (3, 1)
    assert share.end_ns == 90


def test_who_waits_at_a_barrier_is_idle() -> None:
    rows = [collective("all_gather", 10), collective("barrier", number=1, after=[0])]
    driven = Driven(alike(rows))
    driven.start()
    for sequence, at_ns in enumerate((100, 300)):
        driven.receive(1, sequence << 16, at_ns)
        for post in driven.posts():
            driven.acknowledge(post, at_ns)
    (row,) = iteration_rows(driven.records)
    assert (row.end_ns, row.communication_ns, row.exposed_ns) == (300, 100, 100)
    assert row.idle_ns == 200
    assert len(driven.shares()) == 2


def test_messages_that_come_early_are_kept() -> None:
    driven = Driven(alike([compute(1_000), collective("all_reduce", 8, after=[0])]))
    driven.start()
    driven.receive(1, 0, 10, size_bytes=4)
    assert driven.replay.early_messages() == 1
    driven.replay.handle_timers(1_000)
    assert driven.replay.early_messages() == 0
    posts = driven.posts()
    assert [immediate for _, immediate, _ in posts] == [0, 1]
    driven.receive(1, 1, 1_500, size_bytes=4)
    for post in posts:
        driven.acknowledge(post, 2_000)
    # Both could leave because the computation ended, not because of the message.
    assert {(flow.ready_ns, flow.cause_kind) for flow in driven.flows()} == {
        (1_000, CAUSE_OPERATION)
    }


def test_a_message_that_came_while_nobody_looked_releases_at_its_arrival() -> None:
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


def test_what_happened_first_takes_the_slot_first_however_late_it_is_seen() -> None:
    rows = [
        compute(100, stream=1),
        compute(50, after=[0]),  # from 100
        receive(1, 8),
        compute(50, after=[2]),  # from 120, when the slot is taken until 150
        send(1, 8, after=[3]),
    ]
    driven = Driven(
        [
            program(0, world_group(2), rows),
            program(1, world_group(2), [send(0, 8), receive(0, 8)]),
        ]
    )
    driven.start()
    driven.receive(1, 0, 120, size_bytes=8, group=POINT_TO_POINT, now_ns=130)
    assert driven.replay.next_timer_ns() == 150
    driven.replay.handle_timers(150)
    assert driven.replay.next_timer_ns() == 200


def test_an_acknowledgement_is_seen_after_the_timers_before_it() -> None:
    rows = [
        compute(100, stream=1),
        compute(50, after=[0]),
        send(1, 8),
        compute(50, after=[2]),
    ]
    driven = Driven(
        [program(0, world_group(2), rows), program(1, world_group(2), [receive(0, 8)])]
    )
    driven.start()
    driven.acknowledge(*driven.posts(), 120)
    driven.replay.handle_timers(1_000)
    (row,) = iteration_rows(driven.records)
    assert (row.end_ns, row.compute_ns) == (200, 200)


def test_a_share_without_own_messages_begins_when_it_is_ready() -> None:
    driven = Driven(alike([compute(10), collective("broadcast", 8, after=[0])]), rank=1)
    driven.start()
    driven.receive(0, 0, 5, size_bytes=8)
    driven.replay.handle_timers(999)
    assert driven.replay.finished_ns == 10
    (share,) = driven.shares()
    assert (share.ready_ns, share.start_ns, share.end_ns) == (10, 10, 10)
    assert (share.sent_bytes, share.received_bytes) == (0, 8)


def test_marks_of_all_packets_are_counted() -> None:
    driven = Driven(alike([collective("broadcast", 8)]), rank=1)
    driven.start()
    event = received(0, 8, 5)
    marked = type(event)(0, 8, 3, 2, 1, 5)
    driven.replay.message_received(driven.qpn(0), marked, 5)
    (share,) = driven.shares()
    assert share.ce == 2


def test_messages_of_the_next_iteration_are_told_apart() -> None:
    settings = RunSettings(warmup=0, measured=2)
    rows = [collective("all_gather", 8), collective("all_gather", 8, number=1)]
    driven = Driven(alike(rows), settings=settings)
    driven.start()
    for sequence in (3, 1, 2, 0):
        driven.receive(1, sequence << 16, 10, size_bytes=8)
    assert driven.replay.early_messages() == 2
    for at_ns in (20, 30):
        for post in driven.posts():
            driven.acknowledge(post, at_ns)
        driven.replay.handle_timers(at_ns)
    assert driven.replay.finished_ns == 30


def test_an_iteration_may_end_with_an_acknowledgement() -> None:
    settings = RunSettings(warmup=0, measured=2)
    driven = Driven(alike([collective("all_gather", 8)]), settings=settings)
    driven.start()
    for iteration in range(2):
        (post,) = driven.posts()
        assert post[1] == iteration << 16
        driven.receive(1, iteration << 16, 10, size_bytes=8)
        at_ns = 100 * (iteration + 1)
        driven.acknowledge(post, at_ns)
        driven.replay.handle_timers(at_ns)
    assert [(row.start_ns, row.end_ns) for row in iteration_rows(driven.records)] == [
        (0, 100),
        (100, 200),
    ]
    assert [(flow.iteration, flow.last_acked_ns) for flow in driven.flows()] == [
        (0, 100),
        (1, 200),
    ]


def test_immediates_wrap_around() -> None:
    count = (1 << 16) + 2
    settings = RunSettings(warmup=0, measured=count)
    driven = Driven(alike([collective("broadcast", 0)]), rank=1, settings=settings)
    driven.start()
    for k in range(count):
        driven.receive(0, (k & 0xFFFF) << 16, k)
        driven.replay.handle_timers(k)
    assert driven.replay.finished_ns == count - 1
    assert driven.replay.stray_messages() == 0


def test_a_peer_may_be_ahead_by_more_than_immediates_can_count() -> None:
    count = (1 << 16) + 2
    settings = RunSettings(warmup=0, measured=count, sync="gap", gap_ns=10)
    driven = Driven(alike([collective("broadcast", 0)]), rank=1, settings=settings)
    for k in range(count):
        driven.receive(0, (k & 0xFFFF) << 16, 0)
    driven.start(1)
    driven.replay.handle_timers(10 * count)
    assert driven.replay.finished_ns == 1 + 10 * (count - 1)
    assert driven.replay.early_messages() == driven.replay.stray_messages() == 0


# Messages from rank to rank.


def point_to_point(
    rows: Sequence[Operation], others: Sequence[Operation], **kwargs: int
) -> Driven:
    world = world_group(2)
    settings = RunSettings(warmup=0, **{"measured": 1, **kwargs})
    return Driven(
        [program(0, world, rows), program(1, world, others)], settings=settings
    )


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


def test_messages_may_overtake_each_other() -> None:
    driven = point_to_point(
        [receive(1, 10), receive(1, 20, number=1, after=[0])],
        [send(0, 10), send(0, 20, number=1)],
    )
    driven.start()
    driven.receive(1, 1, 50, size_bytes=20, group=POINT_TO_POINT)
    assert driven.replay.early_messages() == 1
    driven.receive(1, 0, 60, size_bytes=10, group=POINT_TO_POINT)
    assert driven.replay.finished_ns == 60
    assert [(share.end_ns, share.received_bytes) for share in driven.shares()] == [
        (60, 10),
        (60, 20),
    ]


def test_messages_are_numbered_over_all_iterations() -> None:
    driven = point_to_point(
        [send(1, 1), send(1, 2, number=1)],
        [receive(0, 1), receive(0, 2, number=1)],
        measured=2,
    )
    driven.start()
    immediates = []
    for at_ns in (10, 20):
        for post in driven.posts():
            immediates.append(post[1])
            driven.acknowledge(post, at_ns)
        driven.replay.handle_timers(at_ns)
    assert immediates == [0, 1, 2, 3]
    assert driven.replay.finished()


def test_the_same_message_twice_is_kept_for_the_one_after_the_wrap() -> None:
    driven = point_to_point([receive(1, 10, after=[1]), compute(5)], [send(0, 10)])
    driven.start()
    for _ in range(3):
        driven.receive(1, 0, 1, size_bytes=10, group=POINT_TO_POINT)
    driven.replay.handle_timers(5)
    assert driven.replay.finished_ns == 5
    assert driven.replay.early_messages() == 2


# What should not come.


@pytest.mark.parametrize("immediate", [1, 0xFFFF, 0x0000_8000])
def test_a_message_that_no_schedule_has_is_counted(immediate: int) -> None:
    driven = Driven(alike([collective("all_gather", 8)]))
    driven.start()
    driven.receive(1, immediate, 5)
    assert driven.replay.stray_messages() == 1
    assert not driven.replay.finished()


def test_a_message_without_immediate_is_counted() -> None:
    driven = Driven(alike([collective("all_gather", 8)]))
    driven.start()
    driven.receive(1, None, 5)
    assert driven.replay.stray_messages() == 1


def test_any_immediate_on_any_queue_pair_is_survived() -> None:
    world = world_group(3)
    pair = ProcessGroup(name="pair", ranks=(0, 2))
    rows = [
        collective("all_gather", 8),
        collective("barrier", group="pair"),
        receive(2, 4),
    ]
    driven = Driven(
        [
            program(0, [world, pair], rows),
            program(1, world, rows[:1]),
            program(2, [world, pair], [*rows[:2], send(0, 4)]),
        ]
    )
    driven.start()
    count = 0
    for each in driven.plan.queue_pairs:
        for immediate in (0, 1, 0xFFFF, 0x10000, 0xFFFFFFFF, 0x7FFF0003):
            for _ in range(2):
                event = received(immediate, 1, 5)
                driven.replay.message_received(each.qpn, event, 5)
                count += 1
    used = 2 + 1 + 1
    assert driven.replay.stray_messages() + driven.replay.early_messages() == (
        count - used
    )
    for post in driven.posts():
        driven.acknowledge(post, 9)
    assert driven.replay.finished_ns == 9


# Words.


def test_a_rank_says_which_message_it_waits_for() -> None:
    driven = Driven(alike([collective("all_reduce", 9)], nranks=3))
    driven.start()
    driven.receive(2, 0, 10)
    for post in driven.posts():
        driven.acknowledge(post, 11)
    assert driven.replay.waiting_for() == [
        "job job rank 0: all_reduce 0 of group 'world' in iteration 0 waits for "
        "3 messages: step 1 from rank 2, step 2 from rank 2, step 3 from rank 2"
    ]


def test_a_rank_says_who_does_not_acknowledge() -> None:
    driven = point_to_point([send(1, 5), receive(1, 6)], [receive(0, 5), send(0, 6)])
    driven.start()
    assert driven.replay.waiting_for() == [
        "job job rank 0: receive 0 from rank 1 in iteration 0 waits for the message of "
        "step 0 from rank 1",
        "job job rank 0: send 0 to rank 1 in iteration 0 has 1 message(s) that rank 1 "
        "does not acknowledge",
    ]


def test_a_rank_that_waits_for_nobody_says_so() -> None:
    driven = alone([compute(100)])
    assert driven.replay.waiting_for() == [
        "job job rank 0: computes, or waits for its start"
    ]
    driven.start()
    driven.replay.handle_timers(100)
    assert driven.replay.waiting_for() == []


def test_strays_are_mentioned() -> None:
    driven = Driven(alike([collective("all_gather", 8)]))
    driven.start()
    driven.receive(1, 77, 5)
    assert driven.replay.waiting_for()[-1] == (
        "job job rank 0: 1 message(s) came that belong to nothing"
    )


def test_ranks_are_named_by_their_rank_not_by_their_number_in_the_plan() -> None:
    world = world_group(2)
    rows = [collective("broadcast", 8)]
    programs = [
        program(rank, world, rows, job=job) for job in ("one", "two") for rank in (0, 1)
    ]
    driven = Driven(programs, rank=3)
    driven.start()
    assert driven.replay.waiting_for() == [
        "job two rank 1: broadcast 0 of group 'world' in iteration 0 waits for the "
        "message of step 0 from rank 0"
    ]


def test_a_plan_that_lacks_a_queue_pair_is_refused() -> None:
    driven = Driven(alike([collective("all_gather", 8)]))
    with pytest.raises(PlanError, match="has no queue pair to rank 1"):
        Replay(
            plan=replace(driven.plan, queue_pairs=()),
            settings=RunSettings(),
            rank_numbers={("job", 0): 0, ("job", 1): 1},
            records=RecordRows(),
        )


# The largest numbers.


def test_the_longest_computation_and_the_last_rank_fit() -> None:
    driven = alone([compute(LONGEST_COMPUTE_NS)], measured=3)
    driven.start(10**18)
    driven.replay.handle_timers(10**18 + 3 * LONGEST_COMPUTE_NS)
    assert driven.replay.finished_ns == 10**18 + 3 * LONGEST_COMPUTE_NS


def test_messages_of_the_last_rank_are_told_apart() -> None:
    last = MOST_RANKS - 1
    near = point_to_point([send(1, 4), receive(1, 4)], [receive(0, 4), send(0, 4)])
    (pair,) = near.plan.queue_pairs
    rows = [send(last, 4), receive(last, 4)]
    records = RecordRows()
    replay = Replay(
        plan=replace(
            near.plan,
            program=program(0, ProcessGroup(name="far", ranks=(0, last)), rows),
            queue_pairs=(replace(pair, peer_rank=last),),
        ),
        settings=RunSettings(warmup=0, measured=2),
        rank_numbers={("job", 0): 0, ("job", last): 1},
        records=records,
    )
    replay.arm(0)
    for number in range(2):
        replay.handle_timers(number)
        post = replay.next_post()
        assert post == (pair.qpn, number, 4, 0)
        replay.message_received(pair.qpn, received(number, 4, number), number)
        replay.message_acknowledged(
            pair.qpn, acknowledged(number, 4, number, number + 1), number + 1
        )
    assert replay.finished_ns == 2
