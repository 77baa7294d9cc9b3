"""Laws of the message level: bytes, link rates and closed forms."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chakram.collectives.algorithms import algorithm, algorithm_names
from chakram.collectives.algorithms.base import turns_by
from chakram.collectives.ops import ROOTED, CollectiveOp
from chakram.collectives.schedule import rank_schedule, transfer_bytes
from chakram.predict.levels.collective_messages import collective_columns
from chakram.predict.levels.level_network import LevelNetwork, network_of
from chakram.predict.levels.message_level import MessageLevel
from chakram.predict.levels.message_times import WireTimes
from chakram.topology.topology_builders import forwarding_nodes, torus_pairs
from chakram.topology.topology_helpers import LinkKind
from tests.leaf_spines import clos
from tests.level_networks import fully_connected, ring, star
from tests.level_runs import run_collective
from tests.schedules import received_bytes, sent_bytes

EVERY_ALGORITHM = [
    (op, name)
    for op in CollectiveOp
    if op is not CollectiveOp.ALL_TO_ALL_V
    for name in algorithm_names(op)
]
RATES = st.sampled_from([None, 10**9, 400 * 10**9, 999_999_937])
TIMES = WireTimes(path_mtu=1024)


def torus(nodes: int, *, rate_bps: int | None, delay_ns: int) -> LevelNetwork:
    """Return nodes of two rows, as an experiment has them."""
    between = LinkKind(rate_bps=rate_bps, delay_ns=delay_ns)
    pairs = torus_pairs([-(-nodes // 2), 2])
    topology = forwarding_nodes(
        nodes + nodes % 2, pairs, host=LinkKind(), between=between
    )
    return network_of(topology)[0]


@st.composite
def networks(draw: st.DrawFn, nranks: int) -> LevelNetwork:
    rate_bps, delay_ns = draw(RATES), draw(st.integers(0, 2000))
    make = draw(st.sampled_from([star, ring, fully_connected, torus, None]))
    if make is not None:
        return make(nranks, rate_bps=rate_bps, delay_ns=delay_ns)
    leaves = draw(st.integers(1, 3))
    topology = clos(
        leaves, 2, -(-nranks // leaves), rate_bps, draw(RATES), host_delay_ns=delay_ns
    )
    return network_of(topology)[0]


@pytest.mark.parametrize(("op", "name"), EVERY_ALGORITHM)
def test_rotated_schedule_equals_that_of_every_position(
    op: CollectiveOp, name: str
) -> None:
    how = algorithm(op, name)
    for nranks in range(1, 8):
        turn = turns_by(how, nranks)
        if turn is None:
            continue
        columns = collective_columns(how, nranks=nranks, root=0, input_bytes=10_007)
        for position in range(nranks):
            own = rank_schedule(how, position=position, nranks=nranks)
            assert len(own.sends) == len(columns.peers)
            for index, send in enumerate(own.sends):
                assert send.peer == (columns.peers[index] + position) % nranks
                chunk = (columns.sizes[index] + position * turn) % (nranks * turn)
                assert columns.chunk_sizes[chunk] == transfer_bytes(
                    how, send, nranks=nranks, input_bytes=10_007
                )
                there = rank_schedule(how, position=send.peer, nranks=nranks)
                receive = there.receives[columns.receives[index]]
                assert (receive.peer, receive.message) == (position, send.message)
                assert bool(columns.waits[index]) == bool(send.needs)


def test_large_schedules_are_rotated() -> None:
    whole = {
        ("all_reduce", "ring"),
        ("all_reduce", "direct"),
        ("all_gather", "ring"),
        ("all_gather", "direct"),
        ("reduce_scatter", "ring"),
        ("reduce_scatter", "direct"),
        ("all_to_all", "direct"),
    }
    for op, name in whole:
        assert turns_by(algorithm(CollectiveOp(op), name), 1024) == 1


@given(st.data())
@settings(deadline=None)
def test_bytes_stay_and_no_link_carries_more_than_its_rate(data: st.DataObject) -> None:
    nranks = data.draw(st.integers(1, 9))
    op, name = data.draw(st.sampled_from(EVERY_ALGORITHM))
    size = data.draw(st.sampled_from([0, 1, 1023, 1025, 70_001, 1 << 20]))
    root = data.draw(st.integers(0, nranks - 1)) if op in ROOTED else 0
    network = data.draw(networks(nranks))
    how = algorithm(op, name)
    seed = data.draw(st.sampled_from([None, 1, 2]))
    level = MessageLevel(network, TIMES, seed=seed)
    totals = run_collective(level, how, nranks=nranks, input_bytes=size, root=root)
    for rank, (sent, received) in totals.items():
        where = {"position": rank, "nranks": nranks, "root": root}
        assert sent == sent_bytes(how, input_bytes=size, **where)
        assert received == received_bytes(how, input_bytes=size, **where)
    crossed: Counter[int] = Counter()
    for rank in range(nranks):
        for send in rank_schedule(how, position=rank, nranks=nranks, root=root).sends:
            wire_bytes = TIMES.wire_bytes(
                transfer_bytes(how, send, nranks=nranks, input_bytes=size)
            )
            crossed[rank] += wire_bytes
    carried = level.link_bytes()
    for rank, host in enumerate(network.hosts[:nranks]):
        if host.up is not None:
            assert carried[host.up] == crossed[rank]
    for link, total_bytes in zip(network.links, carried, strict=True):
        if link.rate_bps:
            assert level.now_ns * link.rate_bps >= total_bytes * 8 * 10**9


@given(
    nranks=st.integers(2, 12),
    part=st.integers(0, 1 << 20),
    rate_bps=RATES,
    delay_ns=st.integers(0, 5000),
)
@settings(deadline=None)
def test_a_star_takes_the_closed_form_of_rings_and_direct_exchanges(
    nranks: int, part: int, rate_bps: int | None, delay_ns: int
) -> None:
    network = star(nranks, rate_bps=rate_bps, delay_ns=delay_ns)
    hold_ns = TIMES.hold_ns(network.links[0], part)
    hop_ns = hold_ns + delay_ns
    direct_ns = (nranks - 2) * hold_ns + 2 * hop_ns
    for op, name, size, wanted_ns in (
        ("all_reduce", "ring", part * nranks, 4 * (nranks - 1) * hop_ns),
        ("reduce_scatter", "ring", part * nranks, 2 * (nranks - 1) * hop_ns),
        ("all_gather", "ring", part, 2 * (nranks - 1) * hop_ns),
        ("all_to_all", "direct", part * nranks, direct_ns),
        ("all_gather", "direct", part, direct_ns),
        ("all_reduce", "direct", part * nranks, 2 * direct_ns),
    ):
        level = MessageLevel(network, TIMES)
        how = algorithm(CollectiveOp(op), name)
        run_collective(level, how, nranks=nranks, input_bytes=size)
        assert level.now_ns == wanted_ns
