"""Laws of the flow level: rates are max-min fair and respect link rates."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from chakram.collectives.algorithms import algorithm, algorithm_names
from chakram.collectives.ops import CollectiveOp
from chakram.predict.levels.collective_messages import message_columns
from chakram.predict.levels.flow_level import FlowLevel
from chakram.predict.levels.level_network import LevelNetwork, network_of
from chakram.predict.levels.message_times import WireTimes
from tests.leaf_spines import clos
from tests.level_networks import ring, star
from tests.level_runs import FOR_EVER_NS, run_collective
from tests.support import examples

TIMES = WireTimes(path_mtu=1024)
RATES = st.sampled_from([10**9, 4 * 10**9, 7 * 10**9, 400 * 10**9])
SIZES = st.integers(0, 1 << 22)


@st.composite
def networks(draw: st.DrawFn, hosts: int) -> LevelNetwork:
    kind = draw(st.sampled_from(["star", "ring", "clos"]))
    if kind == "star":
        return star(hosts, rate_bps=draw(RATES), delay_ns=draw(st.integers(0, 500)))
    if kind == "ring":
        return ring(hosts, rate_bps=draw(RATES), delay_ns=draw(st.integers(0, 500)))
    leaves = draw(st.integers(1, 3))
    topology = clos(leaves, 2, -(-hosts // leaves), draw(RATES), draw(RATES))
    return network_of(topology)[0]


def fair(ways: list[list[int]], capacity: dict[int, Fraction]) -> list[Fraction]:
    """Return max-min fair rates, by raising all together until a link is full."""
    rates = [Fraction(0)] * len(ways)
    rising = set(range(len(ways)))
    while rising:
        room = {
            link: (
                total - sum(rates[flow] for flow, way in enumerate(ways) if link in way)
            )
            / count
            for link, total in capacity.items()
            if (count := sum(link in ways[flow] for flow in rising))
        }
        step = min(room.values())
        for flow in rising:
            rates[flow] += step
        full = {link for link, left in room.items() if left == step}
        rising = {flow for flow in rising if not full & set(ways[flow])}
    return rates


def post(level: FlowLevel, pairs: list[tuple[int, int]], sizes: list[int]) -> None:
    """Start each message separately."""
    for (source, target), size in zip(pairs, sizes, strict=True):
        shape = level.shape(size, lambda size=size: message_columns(size))
        share = level.open(shape)
        level.place(share, source, source)
        level.place(share + 1, target, target)
        level.begin(share + 1, 0, 0, -1)
        level.begin(share, 0, 0, -1)


@given(st.data())
@settings(deadline=None)
def test_rates_equal_those_of_an_independent_solver(data: st.DataObject) -> None:
    hosts = data.draw(st.integers(2, 7))
    network = data.draw(networks(hosts))
    pairs = data.draw(
        st.lists(
            st.tuples(st.integers(0, hosts - 1), st.integers(0, hosts - 1)).filter(
                lambda pair: pair[0] != pair[1]
            ),
            min_size=1,
            max_size=20,
        )
    )
    level = FlowLevel(network, TIMES, batch=0, seed=data.draw(st.integers(0, 9)))
    post(level, pairs, [1 << 20] * len(pairs))
    level.run(0)
    ways = level.ways()
    assert len(ways) == len(pairs)
    for way, (source, target) in zip(ways, pairs, strict=True):
        assert len(way) == len(network.path(source, target))
    capacity = {
        number: Fraction(link.rate_bps, 8 * 10**9)
        for number, link in enumerate(network.links)
        if link.rate_bps
    }
    wanted = fair(ways, capacity)
    for rate, exact in zip(level.rates(), wanted, strict=True):
        assert abs(rate - float(exact)) <= 1e-9 * float(exact)


@given(st.data())
@settings(deadline=None)
def test_bytes_stay_and_no_link_carries_more_than_its_rate(data: st.DataObject) -> None:
    nranks = data.draw(st.integers(2, 7))
    op = data.draw(st.sampled_from([CollectiveOp.ALL_REDUCE, CollectiveOp.ALL_TO_ALL]))
    how = algorithm(op, data.draw(st.sampled_from(algorithm_names(op))))
    network = data.draw(networks(nranks))
    batch = data.draw(st.sampled_from([0, 0.01, 0.2]))
    level = FlowLevel(network, TIMES, batch=batch, seed=1)
    totals = run_collective(level, how, nranks=nranks, input_bytes=data.draw(SIZES))
    assert sum(sent for sent, _ in totals.values()) == sum(
        received for _, received in totals.values()
    )
    for link, total_bytes in zip(network.links, level.link_bytes(), strict=True):
        assert link.rate_bps is not None
        assert level.now_ns * link.rate_bps >= total_bytes * 8 * 10**9 * (1 - 1e-9)


@given(hosts=st.integers(2, 9), part=st.integers(1, 1 << 20), rate_bps=RATES)
@settings(deadline=None)
def test_sequential_messages_take_the_time_of_their_bytes(
    hosts: int, part: int, rate_bps: int
) -> None:
    level = FlowLevel(star(hosts, rate_bps=rate_bps, delay_ns=300), TIMES, batch=0.01)
    how = algorithm(CollectiveOp.ALL_REDUCE, "ring")
    run_collective(level, how, nranks=hosts, input_bytes=part * hosts)
    step_ns = TIMES.wire_bytes(part) * 8 * 10**9 / rate_bps + 600
    assert abs(level.now_ns - 2 * (hosts - 1) * step_ns) <= 4 * hosts


@given(st.data())
@settings(deadline=None, max_examples=examples(50))
def test_batches_change_times_by_at_most_the_stated_share(data: st.DataObject) -> None:
    hosts = data.draw(st.integers(3, 7))
    network = data.draw(networks(hosts))
    pairs = data.draw(
        st.lists(
            st.tuples(st.integers(0, hosts - 1), st.integers(0, hosts - 1)).filter(
                lambda pair: pair[0] != pair[1]
            ),
            min_size=2,
            max_size=15,
        )
    )
    sizes = data.draw(
        st.lists(st.integers(1, 1 << 22), min_size=len(pairs), max_size=len(pairs))
    )
    ends_ns = []
    for batch in (0, 0.01):
        level = FlowLevel(network, TIMES, batch=batch, seed=1)
        post(level, pairs, sizes)
        left = 2 * len(pairs)
        while left:
            assert level.run(FOR_EVER_NS)
            left -= len(level.done)
            level.done = []
        ends_ns.append(level.now_ns)
    assume(ends_ns[0] > 1000)
    # One end that is late makes the next ones late, so parts add up along a chain.
    assert 0.99 <= ends_ns[1] / ends_ns[0] <= 1.01**4
