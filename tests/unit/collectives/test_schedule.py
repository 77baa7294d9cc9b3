"""Transfers, their numbers and their parts."""

import pytest

from chakram.collectives.algorithms import algorithm, algorithm_names
from chakram.collectives.ops import CollectiveOp
from chakram.collectives.schedule import (
    RankSchedule,
    ShareCache,
    part_bytes,
    rank_schedule,
    transfer_bytes,
)


def test_share_is_computed_once_while_cached() -> None:
    direct = algorithm(CollectiveOp.ALL_TO_ALL, "direct")
    cache = ShareCache(limit=16)

    def ask(position: int) -> RankSchedule:
        return cache.share(direct, position=position, nranks=4, root=0)

    first, second = ask(0), ask(1)
    assert (first.transfers, cache.transfers) == (6, 14)
    assert ask(0) is first
    ask(2)  # there is room for two: the one asked for longest ago goes
    assert ask(0) is first
    assert ask(1) is not second
    assert cache.transfers == 14


def test_share_larger_than_the_cache_is_cached_alone() -> None:
    direct = algorithm(CollectiveOp.ALL_TO_ALL, "direct")
    cache = ShareCache(limit=5)
    for position in range(4):
        cache.share(direct, position=position, nranks=4, root=0)
        assert cache.transfers == 7


def test_parts_differ_by_one_byte_at_most() -> None:
    assert [part_bytes(10, nparts=4, part=part) for part in range(4)] == [2, 3, 2, 3]
    assert [part_bytes(1, nparts=3, part=part) for part in range(3)] == [0, 0, 1]


def test_position_begins_with_the_first_peer_of_the_algorithm() -> None:
    direct = algorithm(CollectiveOp.ALL_TO_ALL, "direct")
    begins_with = [
        rank_schedule(direct, position=position, nranks=4).sends[0].peer
        for position in range(4)
    ]
    # If all began with position 0, its port would be late and the others idle.
    assert begins_with == [1, 2, 3, 0]


def test_message_of_several_chunks_depends_on_all_their_arrivals() -> None:
    how = algorithm(CollectiveOp.ALL_GATHER, "recursive_doubling")
    share = rank_schedule(how, position=0, nranks=8)
    assert [send.chunks for send in share.sends] == [(0,), (0, 1), (0, 1, 2, 3)]
    assert [send.needs for send in share.sends] == [(), (0,), (0, 1)]
    assert [
        transfer_bytes(how, send, nranks=8, input_bytes=10) for send in share.sends
    ] == [10, 20, 40]


def test_a_stepwise_send_needs_the_step_before() -> None:
    how = algorithm(CollectiveOp.ALL_TO_ALL, "pairwise")
    share = rank_schedule(how, position=1, nranks=4)
    assert [send.peer for send in share.sends] == [0, 3, 2]
    assert [send.needs for send in share.sends] == [(), (0,), (1,)]


def test_a_relayed_message_needs_the_parts_of_its_node() -> None:
    how = algorithm(CollectiveOp.ALL_TO_ALL, "pxn(ranks_per_node=2)")
    share = rank_schedule(how, position=0, nranks=4)
    assert [(send.step, send.peer, send.chunks) for send in share.sends] == [
        (0, 1, (3,)),
        (0, 1, (1,)),
        (1, 2, (2, 6)),
    ]
    assert [(each.step, each.peer, each.chunks) for each in share.receives] == [
        (0, 1, (6,)),
        (0, 1, (4,)),
        (1, 2, (8, 12)),
    ]
    assert share.sends[2].needs == (0,)


@pytest.mark.parametrize(
    "op",
    [CollectiveOp.ALL_REDUCE, CollectiveOp.ALL_GATHER, CollectiveOp.REDUCE_SCATTER],
)
@pytest.mark.parametrize("nranks", [2, 3, 8, 13, 64])
def test_messages_of_neighboring_chunks_have_the_size_of_their_chunks(
    op: str, nranks: int
) -> None:
    spans, collective = 0, CollectiveOp(op)
    for name in algorithm_names(collective):
        how = algorithm(collective, name)
        if how.unfit(nranks):
            continue
        for position in range(nranks):
            sends = list(how.sends(position, nranks=nranks, root=0))
            assert how.peers(position, nranks=nranks, root=0) == {
                (each.channel, each.dst) for each in sends
            }
            for each in sends:
                spans += isinstance(each.further, range)
                assert transfer_bytes(
                    how, each, nranks=nranks, input_bytes=1001
                ) == sum(
                    how.chunk_bytes(chunk, nranks=nranks, input_bytes=1001)
                    for chunk in each.chunks
                )
    assert spans or nranks < 4
