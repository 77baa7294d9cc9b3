from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from chakram.collectives.groups import ProcessGroup, world_group
from chakram.foundation.errors import PlanError, ScheduleError
from chakram.plan.plan import RankPlan
from chakram.program.operations import Operation
from chakram.replay import expansion
from chakram.replay.expansion import Expander, Expansion
from chakram.replay.program_tables import ProgramTables
from chakram.roce.constants import MAX_MESSAGE_BYTES
from chakram.topology.topology_helpers import single_switch
from tests.made_plans import (
    collective,
    compute,
    make_plan,
    program,
    receive,
    send,
    world_plan,
)


def rank_plan(rows: Sequence[Operation], *, nranks: int = 4, rank: int = 0) -> RankPlan:
    plan, _ = world_plan(rows, nranks=nranks)
    return plan.ranks()[rank]


def expander(
    plan: RankPlan, *, nranks: int = 4, cached_messages: int = 1000
) -> Expander:
    numbers = {("job", rank): 10 + rank for rank in range(nranks)}
    return Expander(
        plan=plan,
        pairs=ProgramTables(plan).pairs,
        rank_numbers=numbers,
        cached_messages=cached_messages,
    )


def test_ring_sends_to_the_next_rank_and_forwards_arrivals() -> None:
    row = collective("all_reduce", 4003)
    plan = rank_plan([row])
    qpn_of = {pair.peer_rank: pair.qpn for pair in plan.queue_pairs}
    ring = expander(plan).expansion(0)
    assert [pair.qpn for pair in ring.send_pairs] == [qpn_of[1]] * 6
    assert ring.send_peers == [11] * 6
    assert ring.send_steps == list(range(6))
    assert ring.send_messages == list(range(6))
    assert sum(ring.send_sizes[:3]) + ring.send_sizes[3] == 4003
    # The last one passes on a chunk that has come before, as a partial sum.
    assert ring.needs == [0, 1, 1, 1, 1, 2]
    assert ring.first_sends == [0]
    pairs = ProgramTables(plan).pairs
    found = [ring.receive(pairs[qpn_of[3]], message) for message in range(7)]
    assert found == [0, 1, 2, 3, 4, 5, -1]
    assert ring.receive(pairs[qpn_of[1]], 0) == -1
    assert ring.receive_peers == [13] * 6
    assert ring.dependents == [(1, 5), (2,), (3,), (4,), (5,), ()]
    assert ring.messages() == 12


def test_a_group_of_one_has_no_messages() -> None:
    row = collective("all_reduce", 4096)
    alone = expander(rank_plan([row], nranks=1), nranks=1).expansion(0)
    assert alone.messages() == 0


def test_positions_follow_the_order_of_the_group() -> None:
    group = ProcessGroup(name="odd", ranks=(2, 0, 1))
    row = collective("broadcast", 64, group="odd", root=0)
    programs = [program(rank, group, [row]) for rank in group.ranks]
    plan = make_plan(programs, single_switch(3, None))
    shares = {rank.program.rank: expander(rank).expansion(0) for rank in plan.ranks()}
    assert shares[2].send_peers == [10, 11]
    assert shares[0].receive_peers == shares[1].receive_peers == [12]


def test_a_message_between_ranks_is_one_send_or_one_receive() -> None:
    plan = make_plan(
        [
            program(0, world_group(2), [send(1, 77), receive(1, 5)]),
            program(1, world_group(2), [receive(0, 77), send(0, 5)]),
        ],
        single_switch(2, None),
    ).ranks()[0]
    (pair,) = plan.queue_pairs
    made = expander(plan)
    sent = made.expansion(0)
    assert [each.qpn for each in sent.send_pairs] == [pair.qpn]
    assert sent.send_sizes == [77]
    assert (sent.first_sends, sent.messages()) == ([0], 1)
    awaited = made.expansion(1)
    assert awaited.receive(ProgramTables(plan).pairs[pair.qpn], 0) == 0
    assert (awaited.receive_peers, awaited.messages()) == ([11], 1)


def test_equal_operations_share_one_expansion() -> None:
    rows = [
        collective("all_reduce", 4096),
        collective("all_reduce", 4096, number=1),
        collective("all_reduce", 4097, number=2),
        collective("all_reduce", 4096, number=3, algorithm="tree"),
        collective("broadcast", 4096, number=4, root=1),
        collective("broadcast", 4096, number=5, root=2),
    ]
    made = expander(rank_plan(rows))
    first, again, *others = [made.expansion(row) for row in range(len(rows))]
    assert first is again
    assert len({id(each) for each in [first, *others]}) == 5


def test_the_cache_forgets_the_oldest_expansions() -> None:
    rows = [collective("all_reduce", 400 + k, number=k) for k in range(4)]
    made = expander(rank_plan(rows), cached_messages=30)
    last = made.expansion(3)
    before = made.expansion(2)
    assert made.expansion(3) is last
    first = made.expansion(0)  # 12 messages each: the third one goes
    assert made.expansion(0) is first
    assert made.expansion(3) is last
    assert made.expansion(2) is not before
    assert before.send_sizes == made.expansion(2).send_sizes


def test_a_collective_larger_than_the_cache_is_still_expanded() -> None:
    row = collective("all_to_all", 400)
    made = expander(rank_plan([row]), cached_messages=1)
    assert made.expansion(0).messages() == 6
    assert made.expansion(0).messages() == 6


def assert_refused(plan: RankPlan, match: str) -> None:
    with pytest.raises(PlanError, match=match):
        expander(plan)


def test_a_missing_queue_pair_is_found_before_the_run() -> None:
    plan = rank_plan([collective("all_to_all", 64)])
    without = [pair for pair in plan.queue_pairs if pair.peer_rank != 2]
    assert_refused(
        replace(plan, queue_pairs=tuple(without)),
        "job job rank 0: has no queue pair to rank 2 for group 'world'",
    )
    other_channel = replace(plan.queue_pairs[0], channel=1)
    assert_refused(replace(plan, queue_pairs=(other_channel,)), "has no queue pair")


@pytest.mark.parametrize("build", [send, receive])
def test_a_missing_queue_pair_for_messages_between_ranks_is_found_too(
    build: type,
) -> None:
    plan = rank_plan([collective("all_to_all", 64)])
    rows = [build(1, 64)]
    assert_refused(
        replace(plan, program=program(0, world_group(4), rows)),
        "has no queue pair to rank 1 for group 'p2p'",
    )


def test_a_peer_without_a_number_is_refused() -> None:
    plan = rank_plan([collective("all_to_all", 64)])
    with pytest.raises(PlanError, match="no number for its peer, rank 3"):
        expander(plan, nranks=3)


def test_an_unknown_algorithm_is_refused() -> None:
    plan = rank_plan([collective("all_reduce", 64)])
    row = collective("all_reduce", 64, algorithm="magic")
    with pytest.raises(ScheduleError, match="magic"):
        expander(replace(plan, program=program(0, world_group(4), [row])))


def test_a_message_that_no_queue_pair_carries_is_refused() -> None:
    rows: list[Operation] = [compute(1), send(1, MAX_MESSAGE_BYTES + 1)]
    plan = make_plan(
        [
            program(0, world_group(2), rows),
            program(1, world_group(2), [receive(0, MAX_MESSAGE_BYTES + 1)]),
        ],
        single_switch(2, None),
    ).ranks()[0]
    assert_refused(plan, f"a message of {MAX_MESSAGE_BYTES + 1} bytes to rank 1")


def test_more_messages_than_immediates_can_name_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = rank_plan([collective("all_reduce", 64)])
    monkeypatch.setattr(expansion, "MESSAGES_PER_PAIR", 6)
    expander(plan)
    monkeypatch.setattr(expansion, "MESSAGES_PER_PAIR", 5)
    assert_refused(plan, "more than 5 messages to rank 1 in one collective")


def test_an_expansion_begins_empty() -> None:
    assert Expansion().messages() == 0


def test_ranks_of_a_ring_share_all_but_peers() -> None:
    plan, _ = world_plan([collective("all_reduce", 4096)], nranks=4)
    first, second, *_ = [expander(rank).expansion(0) for rank in plan.ranks()]
    assert first.needs is second.needs
    assert first.send_sizes is second.send_sizes
    assert first.dependents is second.dependents
    assert (first.send_peers, second.send_peers) == ([11] * 6, [12] * 6)
