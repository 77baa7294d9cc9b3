"""Lists of transfers equal their source."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from chakram.collectives.algorithms import algorithm, algorithm_names, algorithm_of
from chakram.collectives.algorithms.transfer_lists import (
    ListedAlgorithm,
    check_listed,
    listed_from,
    runs_of,
)
from chakram.collectives.groups import world_group
from chakram.collectives.ops import CollectiveOp
from chakram.collectives.schedule import LocalTransfer, rank_schedule, transfer_bytes
from chakram.control.program_codec import decode_listed, encode_listed
from chakram.foundation.field_bounds import Fault
from chakram.topology.topology_helpers import single_switch
from tests.made_plans import collective, make_plan, program
from tests.plans import parse_plan, plan_bytes

EVERY = [
    (op, name)
    for op in CollectiveOp
    if op != CollectiveOp.ALL_TO_ALL_V  # its sizes are not those of an algorithm
    for name in algorithm_names(op)
]


def as_list(op: CollectiveOp, name: str, nranks: int, root: int = 0) -> ListedAlgorithm:
    return listed_from(algorithm(op, name), name="user:x", nranks=nranks, root=root)


@given(
    which=st.sampled_from(EVERY),
    nranks=st.integers(2, 9),
    place=st.integers(0, 8),
    size=st.integers(0, 10**6),
)
# Position 1 sends position 0 two messages in one step, the later part of the buffer
# first: they are numbered by part here, and by their turn in the list.
@example(which=(CollectiveOp.ALL_TO_ALL, "pxn"), nranks=9, place=0, size=81)
@example(which=(CollectiveOp.ALL_TO_ALL, "pxn"), nranks=9, place=1, size=81)
def test_transfer_list_expands_to_its_source(
    which: tuple[CollectiveOp, str], nranks: int, place: int, size: int
) -> None:
    how = algorithm(*which)
    position = place % nranks
    if which[0] == CollectiveOp.BARRIER:
        size = 0  # its messages are empty
    listed = as_list(*which, nranks)
    ours, theirs = (
        rank_schedule(each, position=position, nranks=nranks, root=0)
        for each in (how, listed)
    )
    assert [_seen(send) for send in ours.sends] == [
        _seen(send, listed) for send in theirs.sends
    ]
    assert Counter(_seen(receive) for receive in ours.receives) == Counter(
        _seen(receive, listed) for receive in theirs.receives
    )
    for mine, other in zip(ours.sends, theirs.sends, strict=True):
        assert transfer_bytes(
            how, mine, nranks=nranks, input_bytes=size
        ) == transfer_bytes(listed, other, nranks=nranks, input_bytes=size)
        assert {_seen(ours.receives[need]) for need in mine.needs} == {
            _seen(theirs.receives[need], listed) for need in other.needs
        }
    assert how.peers(position, nranks=nranks, root=0) == listed.peers(
        position, nranks=nranks, root=0
    )


def _seen(
    transfer: LocalTransfer, listed: ListedAlgorithm | None = None
) -> tuple[int, int, int, tuple[tuple[int, int], ...]]:
    """Return step, peer, channel and the parts of the buffer of a message.

    Not its number: both ends take it from the same algorithm or the same list.
    """
    parts = (
        runs_of(transfer.chunks)
        if listed is None
        else listed.transfers[transfer.chunk].parts
    )
    return transfer.step, transfer.peer, transfer.channel, parts


@given(which=st.sampled_from(EVERY), nranks=st.integers(2, 9))
@example(which=(CollectiveOp.ALL_TO_ALL, "pxn"), nranks=9)
def test_both_ends_of_a_list_number_its_messages_equally(
    which: tuple[CollectiveOp, str], nranks: int
) -> None:
    listed = as_list(*which, nranks)
    shares = [
        rank_schedule(listed, position=position, nranks=nranks, root=0)
        for position in range(nranks)
    ]
    sent = {
        (position, send.peer, send.channel, send.message): send.chunk
        for position, share in enumerate(shares)
        for send in share.sends
    }
    received = {
        (receive.peer, position, receive.channel, receive.message): receive.chunk
        for position, share in enumerate(shares)
        for receive in share.receives
    }
    assert sent == received
    assert sorted(sent.values()) == list(range(len(listed.transfers)))


@given(which=st.sampled_from(EVERY), nranks=st.integers(2, 9))
def test_list_is_unchanged_after_encoding(
    which: tuple[CollectiveOp, str], nranks: int
) -> None:
    listed = as_list(*which, nranks)
    assert decode_listed(encode_listed(listed)) == listed
    fixed = replace(
        listed,
        transfers=tuple(replace(each, nbytes=7) for each in listed.transfers),
    )
    assert decode_listed(encode_listed(fixed)) == fixed


def test_a_plan_carries_each_list_once_and_ranks_share_it() -> None:
    listed = as_list(CollectiveOp.ALL_REDUCE, "ring", 3)
    world = world_group(3)
    programs = [
        replace(
            program(rank, world, [collective("all_reduce", 99, algorithm="user:x")]),
            algorithms=(listed,),
        )
        for rank in range(3)
    ]
    plan = make_plan(programs, single_switch(3, 10**9)).agents[0]
    parsed = parse_plan(plan_bytes(plan), where="x")
    assert parsed == plan
    first, second, _ = (rank.program.algorithms[0] for rank in parsed.ranks)
    assert first is second


def test_algorithms_of_a_program_precede_ours() -> None:
    listed = as_list(CollectiveOp.ALL_REDUCE, "ring", 3)

    def found(name: str, nranks: int) -> object:
        return algorithm_of(
            CollectiveOp.ALL_REDUCE, name, nranks=nranks, root=0, listed=(listed,)
        )

    assert found("user:x", 3) is listed
    assert found("ring", 3) is algorithm(CollectiveOp.ALL_REDUCE, "ring")


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"src": 9}, "transfer 3: outside 3 positions"),
        ({"dst": 0}, "transfer 3: position 0 sends to itself"),
        ({"parts": ((2, 2),)}, "transfer 3: outside 3 parts"),
        ({"after": (5,)}, "transfer 3: waits for transfer 5, which is later"),
        (
            {"after": (0,)},
            "transfer 3: waits for transfer 0, which goes to another position",
        ),
        ({"step": 0, "after": (2,)}, "waits for transfer 2 of step 0, but is in"),
        ({"step": 9}, "the steps are not in ascending order"),
    ],
)
def test_impossible_list_is_reported(changes: dict[str, Any], told: str) -> None:
    listed = as_list(CollectiveOp.ALL_REDUCE, "ring", 3)
    transfers = list(listed.transfers)
    transfers[3] = replace(transfers[3], **changes)
    found = check_listed(
        transfers, op=listed.op, nranks=listed.nranks, nparts=listed.nparts
    )
    assert any(told in text for text in found)


def test_columns_of_different_lengths_are_refused() -> None:
    message = encode_listed(as_list(CollectiveOp.ALL_REDUCE, "ring", 3))
    del message.sources[-1]
    with pytest.raises(Fault) as caught:
        decode_listed(message)
    assert caught.value.found == "11 entries for 12 transfers"
    message = encode_listed(as_list(CollectiveOp.ALL_REDUCE, "ring", 3))
    message.after_counts[0] = 4
    with pytest.raises(Fault):
        decode_listed(message)


def test_impossible_list_in_a_message_is_refused() -> None:
    message = encode_listed(as_list(CollectiveOp.ALL_REDUCE, "ring", 3))
    message.destinations[3] = message.sources[3]
    with pytest.raises(Fault, match=r"transfer 3: position \d sends to itself"):
        decode_listed(message)
