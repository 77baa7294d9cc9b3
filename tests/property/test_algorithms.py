"""Laws of every collective algorithm."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chakram.collectives.algorithms import algorithm, algorithm_names
from chakram.collectives.ops import ROOTED, CollectiveOp
from chakram.collectives.schedule import rank_schedule, transfer_bytes
from chakram.collectives.schedule_check import check_schedule
from tests.schedules import received_bytes, sent_bytes

EVERY_ALGORITHM = [(op, name) for op in CollectiveOp for name in algorithm_names(op)]


@pytest.mark.parametrize(("op", "name"), EVERY_ALGORITHM)
def test_every_algorithm_meets_its_postcondition_from_every_root(
    op: CollectiveOp, name: str
) -> None:
    for nranks in range(1, 17):
        for root in range(nranks) if op in ROOTED else (0,):
            assert check_schedule(algorithm(op, name), nranks=nranks, root=root) == []


@pytest.mark.parametrize(("op", "name"), EVERY_ALGORITHM)
@pytest.mark.parametrize(
    "nranks",
    [
        pytest.param(n, marks=() if n in (17, 24, 31, 32, 33) else pytest.mark.soak)
        for n in range(17, 34)
    ],
)
def test_every_algorithm_meets_its_postcondition_in_larger_groups(
    op: CollectiveOp, name: str, nranks: int
) -> None:
    every = nranks in (17, 32, 33)  # the others are alike, and take their time
    some = range(nranks) if every else (0, nranks // 2, nranks - 1)
    for root in some if op in ROOTED else (0,):
        assert check_schedule(algorithm(op, name), nranks=nranks, root=root) == []


@given(
    which=st.sampled_from(EVERY_ALGORITHM),
    nranks=st.integers(1, 24),
    size=st.integers(0, 10**9),
    data=st.data(),
)
def test_every_sent_message_is_received(
    which: tuple[CollectiveOp, str], nranks: int, size: int, data: st.DataObject
) -> None:
    root = data.draw(st.integers(0, nranks - 1))
    how = algorithm(*which)
    totals = [
        sum(
            count(how, position=p, nranks=nranks, root=root, input_bytes=size)
            for p in range(nranks)
        )
        for count in (sent_bytes, received_bytes)
    ]
    assert totals[0] == totals[1]


@given(
    which=st.sampled_from(EVERY_ALGORITHM),
    nranks=st.integers(1, 24),
    data=st.data(),
)
def test_sends_need_receives_of_earlier_steps_only(
    which: tuple[CollectiveOp, str], nranks: int, data: st.DataObject
) -> None:
    position, root = (data.draw(st.integers(0, nranks - 1)) for _ in range(2))
    share = rank_schedule(
        algorithm(*which), position=position, nranks=nranks, root=root
    )
    for send in share.sends:
        assert all(share.receives[need].step < send.step for need in send.needs)


RINGS = [
    (op, name)
    for op in (
        CollectiveOp.ALL_REDUCE,
        CollectiveOp.ALL_GATHER,
        CollectiveOp.REDUCE_SCATTER,
    )
    for name in ("ring(chunks=3)", "ring(channels=2)", "ring(channels=3,chunks=2)")
]


@given(
    which=st.sampled_from([*EVERY_ALGORITHM, *RINGS]),
    nranks=st.integers(1, 24),
    size=st.integers(0, 500) | st.integers(0, 10**9),
    data=st.data(),
)
def test_sent_sizes_equal_those_of_messages(
    which: tuple[CollectiveOp, str], nranks: int, size: int, data: st.DataObject
) -> None:
    position, root = (data.draw(st.integers(0, nranks - 1)) for _ in range(2))
    how = algorithm(*which)
    assert how.sent_sizes(
        position, nranks=nranks, root=root, input_bytes=size
    ) == Counter(
        transfer_bytes(how, send, nranks=nranks, input_bytes=size)
        for send in how.sends(position, nranks=nranks, root=root)
    )
