"""Timers of a port expire in order of time."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from hypothesis import given
from hypothesis import strategies as st

from chakram.roce.constants import NEVER
from chakram.roce.timers import Timers

entries = st.tuples(
    # A clock may have any value; QPNs have 24 bits.
    st.one_of(st.integers(0, 5), st.integers(0, 10**12), st.just(NEVER - 1)),
    st.integers(0, (1 << 24) - 1),
)


@given(steps=st.lists(st.one_of(entries, st.none()), max_size=60))
def test_timers_are_ordered_by_time_and_number(
    steps: list[tuple[int, int] | None],
) -> None:
    timers = Timers()
    model: list[tuple[int, int]] = []
    heapify(model)
    for entry in steps:
        if entry is not None:
            timers.add(*entry)
            heappush(model, entry)
        elif model:
            timers.drop_first()
            heappop(model)
        if model:
            assert (timers.first_ns, timers.first_qpn) == model[0]
        else:
            assert timers.first_ns == NEVER
