"""Laws of fair times: single, simultaneous and separate messages."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chakram.plan.wire_cost import serialisation_ns, wire_bytes
from chakram.predict.bound import ScheduleBounds
from chakram.predict.fabric_model import FabricModel
from chakram.predict.fair_sharing import FairTimes, shared_ends_ns
from chakram.predict.topology_to_fabric_model import fabric_model
from chakram.topology.topology import Link, PortRef, Topology
from tests.property.test_bound import fabrics

MTU = 1024
BITS = 10**9
PIECE = st.tuples(st.integers(0, 10**6), st.integers(1, 10**6), st.integers(0, 5))
"""When it is there, its work, its queue."""

WORKS = st.lists(PIECE, min_size=1, max_size=30)


def served_in_order_ns(pieces: list[tuple[int, int, int]]) -> list[tuple[int, int]]:
    """When a server that takes one after the other is busy: from, to."""
    busy: list[tuple[int, int]] = []
    for begin_ns, work_ns, _ in sorted(pieces):
        if busy and begin_ns <= busy[-1][1]:
            busy[-1] = busy[-1][0], busy[-1][1] + work_ns
        else:
            busy.append((begin_ns, begin_ns + work_ns))
    return busy


def ends_of(pieces: list[tuple[int, int, int]]) -> list[int]:
    begins_ns, works_ns, queues = zip(*pieces, strict=True)
    return shared_ends_ns(begins_ns, works_ns, queues)


@given(WORKS)
def test_fair_sharing_ends_with_a_sequential_server(
    pieces: list[tuple[int, int, int]],
) -> None:
    ends_ns = ends_of(pieces)
    for first_ns, last_ns in served_in_order_ns(pieces):
        within = [
            end_ns
            for (begin_ns, _, _), end_ns in zip(pieces, ends_ns, strict=True)
            if first_ns <= begin_ns < last_ns
        ]
        assert abs(max(within) - last_ns) <= 1


@given(WORKS, PIECE)
def test_additional_messages_never_shorten_a_message(
    pieces: list[tuple[int, int, int]], other: tuple[int, int, int]
) -> None:
    alone = ends_of(pieces)
    together = ends_of([*pieces, other])[:-1]
    for (start_ns, own_ns, _), before, after in zip(
        pieces, alone, together, strict=True
    ):
        assert start_ns + own_ns <= before <= after + 1


@given(st.lists(PIECE, min_size=1, max_size=30, unique_by=lambda each: each[0]))
def test_the_order_of_the_list_does_not_matter(
    pieces: list[tuple[int, int, int]],
) -> None:
    backwards = ends_of(pieces[::-1])[::-1]
    assert all(
        abs(one - other) <= 1
        for one, other in zip(ends_of(pieces), backwards, strict=True)
    )


@given(WORKS)
def test_a_queue_is_served_one_after_the_other(
    pieces: list[tuple[int, int, int]],
) -> None:
    pieces = sorted(pieces)
    ends_ns = ends_of(pieces)
    for queue in {each[2] for each in pieces}:
        own = [at for at, each in enumerate(pieces) if each[2] == queue]
        assert all(
            ends_ns[late] >= ends_ns[early] + pieces[late][1] - 1
            for early, late in pairwise(own)
        )


@given(st.integers(1, 30), st.integers(1, 10**9), st.integers(0, 10**17))
def test_equal_work_at_once_ends_at_once(
    count: int, work_ns: int, begin_ns: int
) -> None:
    ends_ns = shared_ends_ns([begin_ns] * count, [work_ns] * count, range(count))
    assert ends_ns == [begin_ns + count * work_ns] * count


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=30))
def test_of_queues_at_once_the_smaller_ends_first(works_ns: list[int]) -> None:
    works_ns.sort()
    ends_ns = shared_ends_ns([0] * len(works_ns), works_ns, range(len(works_ns)))
    assert all(a <= b for a, b in pairwise(ends_ns))
    assert ends_ns[0] == works_ns[0] * len(works_ns)


MESSAGE = st.tuples(
    st.integers(0, 5), st.integers(0, 5), st.integers(0, 2**33), st.integers(0, 10**7)
)


@given(st.data())
@settings(deadline=None)
def test_messages_apart_have_their_bounds_and_others_no_less(
    data: st.DataObject,
) -> None:
    fabric = data.draw(fabrics(6))
    bounds = ScheduleBounds(fabric, path_mtu=MTU)
    fair = FairTimes(fabric, path_mtu=MTU)
    messages = data.draw(st.lists(MESSAGE, min_size=1, max_size=8))
    alone = [
        bounds.message_ns(src=src, dst=dst, size_bytes=size_bytes)
        for src, dst, size_bytes, _ in messages
    ]
    assert all(
        taken_ns >= bound_ns - 1
        for taken_ns, bound_ns in zip(fair.times_ns(messages), alone, strict=True)
    )
    free_ns = 0
    apart = []
    for (src, dst, size_bytes, gap_ns), bound_ns in zip(messages, alone, strict=True):
        apart.append((src, dst, size_bytes, free_ns))
        free_ns += bound_ns + gap_ns
    assert fair.times_ns(apart) == pytest.approx(alone, rel=1e-9, abs=1)


def star(rates_bps: list[int], *, delay_ns: int = 500) -> FabricModel:
    hosts = tuple(f"h{number}" for number in range(len(rates_bps)))
    topology = Topology(
        hosts=hosts,
        switches=("s",),
        links=tuple(
            Link(
                a=PortRef(node=host, port="eth0"),
                b=PortRef(node="s", port=host),
                rate_bps=rate_bps,
                delay_ns=delay_ns,
                name=f"{host}-s",
            )
            for host, rate_bps in zip(hosts, rates_bps, strict=True)
        ),
    )
    return fabric_model(topology, dict(enumerate(hosts)))


@given(
    st.integers(1, 20),
    st.sampled_from([10 * BITS, 25 * BITS, 400 * BITS]),
    st.integers(1, 2**24),
    st.booleans(),
)
@settings(deadline=None)
def test_fan_in_and_fan_out_take_the_time_of_the_shared_port(
    count: int, rate_bps: int, size_bytes: int, out: bool
) -> None:
    fabric = star([rate_bps] * (count + 1))
    others = range(1, count + 1)
    pairs = [(0, other) if out else (other, 0) for other in others]
    times_ns = FairTimes(fabric, path_mtu=MTU).times_ns(
        [(src, dst, size_bytes, 77) for src, dst in pairs]
    )
    nbytes = wire_bytes(size_bytes, path_mtu=MTU)
    alone_ns = ScheduleBounds(fabric, path_mtu=MTU).message_ns(
        src=1, dst=0, size_bytes=size_bytes
    )
    one_ns = serialisation_ns(nbytes, rate_bps=rate_bps)
    whole_ns = count * one_ns + (alone_ns - one_ns)
    # A last packet that is short stores for less time than the first one.
    packet_ns = serialisation_ns(MTU + 78, rate_bps=rate_bps)
    assert len(set(times_ns)) == 1
    assert whole_ns - packet_ns - count <= times_ns[0] <= whole_ns + 1


@given(st.permutations(range(8)), st.integers(1, 2**24))
@settings(deadline=None)
def test_permutation_takes_the_time_of_one_message(
    order: list[int], size_bytes: int
) -> None:
    fabric = star([10 * BITS] * 8)
    pairs = [(src, dst) for src, dst in enumerate(order) if src != dst]
    alone_ns = ScheduleBounds(fabric, path_mtu=MTU).message_ns(
        src=1, dst=0, size_bytes=size_bytes
    )
    times_ns = FairTimes(fabric, path_mtu=MTU).times_ns(
        [(src, dst, size_bytes, 0) for src, dst in pairs]
    )
    assert times_ns == pytest.approx([alone_ns] * len(pairs), abs=1)
