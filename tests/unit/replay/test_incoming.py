from __future__ import annotations

from dataclasses import replace

import pytest

from chakram.collectives.groups import POINT_TO_POINT, ProcessGroup, world_group
from chakram.plan.plan import RunSettings
from chakram.records.row_layout import CAUSE_OPERATION, RecordRows
from chakram.replay.program_tables import MOST_RANKS
from chakram.replay.rank import Replay
from tests.made_plans import collective, compute, program, receive, send
from tests.replay_checks import acknowledged, received
from tests.unit.replay.driven import Driven, alike, point_to_point


def test_early_messages_are_kept() -> None:
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


def test_messages_of_the_next_iteration_are_distinguished() -> None:
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


def test_messages_of_the_last_rank_are_distinguished() -> None:
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
        flow = replay.next_post()
        assert flow is not None
        assert flow.pair is replay.pairs[pair.qpn]
        assert (flow.immediate, flow.size_bytes, flow.order) == (number, 4, 0)
        replay.message_received(flow.pair, received(number, 4, number), number)
        replay.message_acknowledged(
            flow, acknowledged(number, 4, number, number + 1), number + 1
        )
    assert replay.finished_ns == 2


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


def test_the_same_message_twice_is_kept_for_the_one_after_the_wrap() -> None:
    driven = point_to_point([receive(1, 10, after=[1]), compute(5)], [send(0, 10)])
    driven.start()
    for _ in range(3):
        driven.receive(1, 0, 1, size_bytes=10, group=POINT_TO_POINT)
    driven.replay.handle_timers(5)
    assert driven.replay.finished_ns == 5
    assert driven.replay.early_messages() == 2


def test_marks_of_all_packets_are_counted() -> None:
    driven = Driven(alike([collective("broadcast", 8)]), rank=1)
    driven.start()
    event = received(0, 8, 5)
    marked = type(event)(0, 8, 3, 2, 1, 5)
    driven.replay.message_received(driven.pair(0), marked, 5)
    (share,) = driven.shares()
    assert share.ce == 2


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


def test_any_immediate_on_any_queue_pair_is_harmless() -> None:
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
                pair_of = driven.replay.pairs
                driven.replay.message_received(pair_of[each.qpn], event, 5)
                count += 1
    used = 2 + 1 + 1
    assert driven.replay.stray_messages() + driven.replay.early_messages() == (
        count - used
    )
    for post in driven.posts():
        driven.acknowledge(post, 9)
    assert driven.replay.finished_ns == 9
