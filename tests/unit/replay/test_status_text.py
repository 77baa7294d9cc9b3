from __future__ import annotations

import pytest

from chakram.collectives.groups import world_group
from chakram.replay.status_text import failure_words, missing_words, operation_words
from chakram.roce.retries import FOR_NAK, FOR_RNR, FOR_TIMEOUT
from tests.made_plans import collective, compute, program, receive, send
from tests.unit.replay.driven import Driven, alike, alone, point_to_point


def test_an_operation_is_named_with_its_iteration() -> None:
    assert [
        operation_words(operation, 3)
        for operation in (
            collective("all_reduce", 8, number=5),
            send(4, 8, number=1),
            receive(2, 8),
            compute(9),
        )
    ] == [
        "all_reduce 5 of group 'world' in iteration 3",
        "send 1 to rank 4 in iteration 3",
        "receive 0 from rank 2 in iteration 3",
        "compute 'compute' in iteration 3",
    ]


@pytest.mark.parametrize(
    ("retried_for", "hint"),
    [
        (FOR_TIMEOUT, "check the drops of ports and switches: packets or"),
        (FOR_NAK, "check the drops of ports and switches: a packet was"),
        (FOR_RNR, "check why the peer is not ready, or raise"),
    ],
)
def test_failed_queue_pair_has_a_hint(retried_for: int, hint: str) -> None:
    words = failure_words("job", 0, 1, "whatever it was", retried_for)
    assert f"is in error: whatever it was ({hint}" in words


def test_other_failures_have_no_hint() -> None:
    reason = "no ACK for PSN 5 again and again: not ready to receive"
    assert failure_words("job", 0, 1, reason).endswith(f"is in error: {reason}")


def test_one_missing_message_is_named() -> None:
    assert missing_words([(4, 1)]) == "the message of step 4 from rank 1"


def test_lowest_steps_of_many_missing_messages_are_named() -> None:
    assert (
        missing_words([(9, 1), (0, 7), (0, 2), (5, 1), (6, 1)])
        == "5 messages: step 0 from rank 2, step 0 from rank 7, step 5 from rank 1, "
        "2 more"
    )


def test_rank_names_the_message_that_it_waits_for() -> None:
    driven = Driven(alike([collective("all_reduce", 9)], nranks=3))
    driven.start()
    driven.receive(2, 0, 10)
    for post in driven.posts():
        driven.acknowledge(post, 11)
    assert driven.replay.waiting_for() == [
        "job job rank 0: all_reduce 0 of group 'world' in iteration 0 waits for "
        "3 messages: step 1 from rank 2, step 2 from rank 2, step 3 from rank 2"
    ]


def test_rank_names_the_peer_that_does_not_acknowledge() -> None:
    driven = point_to_point([send(1, 5), receive(1, 6)], [receive(0, 5), send(0, 6)])
    driven.start()
    assert driven.replay.waiting_for() == [
        "job job rank 0: receive 0 from rank 1 in iteration 0 waits for the message of "
        "step 0 from rank 1",
        "job job rank 0: send 0 to rank 1 in iteration 0 has 1 message(s) that rank 1 "
        "does not acknowledge",
    ]


def test_rank_that_waits_for_no_peer_reports_it() -> None:
    driven = alone([compute(100)])
    assert driven.replay.waiting_for() == [
        "job job rank 0: computes, or waits for its start time"
    ]
    driven.start()
    driven.replay.handle_timers(100)
    assert driven.replay.waiting_for() == []


def test_stray_packets_are_reported() -> None:
    driven = Driven(alike([collective("all_gather", 8)]))
    driven.start()
    driven.receive(1, 77, 5)
    assert driven.replay.waiting_for()[-1] == (
        "job job rank 0: 1 message(s) arrived that belong to no operation"
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
