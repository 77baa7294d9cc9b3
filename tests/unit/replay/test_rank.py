from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from chakram.collectives.groups import POINT_TO_POINT, world_group
from chakram.foundation.errors import PlanError
from chakram.foundation.units import LONGEST_TIME_NS
from chakram.plan.plan import JobSettings, RunSettings
from chakram.program.operations import Operation
from chakram.records.row_layout import RecordRows
from chakram.replay.rank import Replay
from chakram.roce.constants import NEVER
from tests.made_plans import (
    collective,
    compute,
    iteration_rows,
    program,
    receive,
    send,
)
from tests.unit.replay.driven import Driven, alike, alone


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


def test_policy_determines_the_next_operation_of_a_stream() -> None:
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


def test_job_can_start_later_and_repeat_differently() -> None:
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


def test_an_idle_rank_in_the_background_ends() -> None:
    settings = job_settings(is_background=True, iterations=2)
    driven = Driven(alike([compute(0)], nranks=1), settings=settings)
    driven.start()
    assert driven.replay.finished()


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


def test_operation_delayed_beyond_its_recorded_time_slips() -> None:
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


def test_late_processing_uses_due_times_in_order() -> None:
    rows = [compute(10, start_ns=50), compute(10, start_ns=5)]
    driven = by_times(rows, nranks=1)
    driven.start(0, now_ns=1_000)
    assert driven.replay.finished_ns == 60


def test_a_compute_operation_without_duration_takes_no_slot() -> None:
    driven = alone([compute(10), compute(0, after=[]), compute(7, stream=5, after=[1])])
    driven.start()
    assert driven.replay.next_timer_ns() == 7


def test_long_chains_of_empty_operations_do_not_recurse() -> None:
    count = 20_000
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


def test_a_held_rank_ends_its_iteration_and_goes_on_when_it_is_let() -> None:
    driven = alone([compute(10)], measured=3)
    replay = driven.replay
    driven.start(100)
    replay.hold(True, 105)
    assert not replay.rests()  # it computes
    replay.handle_timers(200)
    assert replay.rests()
    assert (replay.iteration, replay.next_timer_ns()) == (1, NEVER)
    replay.hold(True, 250)
    replay.handle_timers(300)
    assert replay.iteration == 1
    replay.hold(False, 400)
    assert not replay.rests()
    replay.handle_timers(500)
    assert replay.finished()
    assert [row.start_ns for row in iteration_rows(driven.records)] == [100, 400, 410]
    replay.hold(True, 600)
    assert replay.rests()  # there is nothing left


def test_a_rank_that_is_held_before_the_start_does_not_start() -> None:
    driven = alone([compute(10)])
    driven.replay.hold(True, 0)
    driven.start(100)
    assert driven.replay.rests()
    driven.replay.hold(False, 300)
    assert driven.replay.next_timer_ns() == 300


def test_a_held_rank_rests_while_it_waits_for_others_but_not_while_it_sends() -> None:
    driven = Driven(alike([collective("all_gather", 8)]))
    driven.replay.hold(True, 0)
    driven.replay.hold(False, 0)
    driven.start()
    (post,) = driven.posts()
    driven.replay.hold(True, 5)
    assert not driven.replay.rests()
    driven.acknowledge(post, 10)
    assert driven.replay.rests()


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


def test_rank_waiting_at_a_barrier_is_idle() -> None:
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


def test_earlier_event_gets_the_slot_first_even_if_processed_late() -> None:
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


def test_acknowledgement_is_processed_after_earlier_timers() -> None:
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


def test_share_without_messages_starts_when_ready() -> None:
    driven = Driven(alike([compute(10), collective("broadcast", 8, after=[0])]), rank=1)
    driven.start()
    driven.receive(0, 0, 5, size_bytes=8)
    driven.replay.handle_timers(999)
    assert driven.replay.finished_ns == 10
    (share,) = driven.shares()
    assert (share.ready_ns, share.start_ns, share.end_ns) == (10, 10, 10)
    assert (share.sent_bytes, share.received_bytes) == (0, 8)


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
    driven = alone([compute(LONGEST_TIME_NS)], measured=3)
    driven.start(10**18)
    driven.replay.handle_timers(10**18 + 3 * LONGEST_TIME_NS)
    assert driven.replay.finished_ns == 10**18 + 3 * LONGEST_TIME_NS


def test_communication_of_measured_iterations_is_reported_while_active() -> None:
    driven = Driven(
        alike([compute(10), collective("all_gather", 8, after=[0])]),
        settings=RunSettings(warmup=1, measured=1),
    )
    replay = driven.replay
    driven.start()
    seen = []
    for begin_ns in (0, 1000):
        replay.handle_timers(begin_ns)
        seen.append(replay.is_measuring())
        replay.handle_timers(begin_ns + 10)
        seen.append(replay.is_measuring())
        (post,) = driven.posts()
        driven.acknowledge(post, begin_ns + 20)
        driven.receive(1, post[1], begin_ns + 1000, size_bytes=8)
    assert seen == [False, False, False, True]
    assert not replay.is_measuring()
