"""Closed forms of minimum bytes, compared with correct algorithms."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chakram.collectives.algorithms import algorithm, algorithm_names
from chakram.collectives.algorithms.symbolic_execution import Action, Message
from chakram.collectives.algorithms.transfer_lists import listed_from
from chakram.collectives.groups import world_group
from chakram.collectives.ops import ROOTED, CollectiveOp
from chakram.collectives.schedule import transfer_bytes
from chakram.collectives.schedule_check import build_schedule
from chakram.program.least_bytes import (
    largest_input_bytes,
    moved_bytes,
    too_small_warnings,
)
from chakram.user_algorithms.byte_count_checks import ByteFlow
from tests.made_plans import collective, program

EVERY = [
    (op, name)
    for op in CollectiveOp
    if op not in (CollectiveOp.ALL_TO_ALL_V, CollectiveOp.BARRIER)
    for name in algorithm_names(op)
]


@st.composite
def moved(draw: st.DrawFn) -> tuple[CollectiveOp, str, int, int, int]:
    op, name = draw(st.sampled_from(EVERY))
    nranks = draw(st.integers(2, 9))
    root = draw(st.integers(0, nranks - 1)) if op in ROOTED else 0
    return op, name, nranks, root, draw(st.integers(1, 10**6))


@given(moved())
def test_bytes_of_a_correct_algorithm_suffice_for_its_buffer(
    case: tuple[CollectiveOp, str, int, int, int],
) -> None:
    op, name, nranks, root, size = case
    size *= nranks  # whole parts
    how = algorithm(op, name)
    transfers = build_schedule(how, nranks=nranks, root=root).transfers
    sizes = [
        transfer_bytes(how, each, nranks=nranks, input_bytes=size) for each in transfers
    ]
    ends = ((each.src, each.dst) for each in transfers)
    sent, received = moved_bytes(ends, sizes, nranks=nranks)
    largest = largest_input_bytes(op, root=root, sent=sent, received=received)
    assert largest is not None
    assert largest >= size


@given(moved())
def test_correct_algorithms_are_not_refused_for_their_bytes(
    case: tuple[CollectiveOp, str, int, int, int],
) -> None:
    op, name, nranks, root, _ = case
    size = 9_240  # every rank has some, whatever the number of ranks and chunks
    listed = listed_from(algorithm(op, name), name="x", nranks=nranks, root=root)
    transfers = listed.transfers
    actions: list[Action] = []
    messages: list[Message] = []
    arrivals: dict[int, int] = {}
    for place, each in enumerate(transfers):
        messages.append(Message(src=each.src, dst=each.dst, channel=each.channel))
        actions.append(
            Action(
                rank=each.src,
                where="x",
                after=[arrivals[other] for other in each.after],
                sends=place,
            )
        )
        arrivals[place] = len(actions)
        actions.append(Action(rank=each.dst, where="x", receives=place))
    flow = ByteFlow(
        nranks=nranks,
        actions=actions,
        messages=messages,
        sizes=[
            listed.chunk_bytes(place, nranks=nranks, input_bytes=size)
            for place in range(len(transfers))
        ],
    )
    flow.execute()
    flow.compare(op, root)
    assert flow.problems == []


@pytest.mark.parametrize(
    ("op", "sent", "received", "largest"),
    [
        (CollectiveOp.ALL_REDUCE, [10, 10], [10, 10], 10),
        (CollectiveOp.ALL_REDUCE, [10, 10, 10], [10, 10, 10], 7),
        (CollectiveOp.ALL_GATHER, [9, 9, 9], [9, 9, 9], 4),
        (CollectiveOp.REDUCE_SCATTER, [7, 7], [7, 7], 15),
        (CollectiveOp.BROADCAST, [8, 0, 0], [0, 8, 6], 6),
        (CollectiveOp.BARRIER, [0, 0], [0, 0], None),
    ],
)
def test_bytes_bound_the_buffer(
    op: CollectiveOp, sent: list[int], received: list[int], largest: int | None
) -> None:
    assert largest_input_bytes(op, root=0, sent=sent, received=received) == largest


def test_collectives_larger_than_fixed_messages_are_reported() -> None:
    ring = listed_from(
        algorithm(CollectiveOp.ALL_REDUCE, "ring"), name="chakra:x", nranks=2
    )
    fixed = replace(
        ring, transfers=tuple(replace(each, nbytes=50) for each in ring.transfers)
    )
    rows = [
        collective("all_reduce", size, number=number, algorithm="chakra:x")
        for number, size in enumerate((99, 100, 101, 500))
    ]

    def warnings(how: object) -> list[str]:
        programs = [
            replace(program(rank, world_group(2), rows), algorithms=(how,))
            for rank in range(2)
        ]
        return too_small_warnings(programs)

    assert warnings(ring) == []
    assert warnings(fixed) == [
        "chakra:x moves enough data only for an all_reduce of up to 100 bytes per "
        "rank, but one has 500 bytes"
    ]
