"""Passes over routers have the times, orders and bytes of single events."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from chakram.collectives.algorithms import algorithm
from chakram.collectives.ops import CollectiveOp
from chakram.foundation.errors import FabricError
from chakram.predict.levels.cost_models import Division
from chakram.predict.levels.level_network import LevelNetwork, network_of
from chakram.predict.levels.message_level import MessageLevel
from chakram.predict.levels.message_times import WireTimes
from chakram.predict.levels.router_passes import RouterPasses
from chakram.topology.topology import Topology
from chakram.topology.topology_builders import fat_tree
from chakram.topology.topology_helpers import LinkKind, single_switch
from tests.leaf_spines import clos
from tests.level_networks import ring
from tests.support import fewer

GBIT = 10**9
TIMES = WireTimes(path_mtu=1024)
FOR_EVER_NS = 1 << 62
LONGEST_NS = 4 * 10**9
RANKS = pytest.mark.parametrize(
    "nranks", [64, pytest.param(512, marks=pytest.mark.soak)]
)
DIRECT = CollectiveOp.ALL_TO_ALL, "direct"
GATHER = CollectiveOp.ALL_GATHER, "direct"
BARRIER = CollectiveOp.BARRIER, "dissemination"
FOLLOWING = ((), (DIRECT,), (GATHER,), (BARRIER,), (BARRIER, DIRECT))

Step = tuple[tuple[CollectiveOp, str], int]


def drawn_fabric(random: Random, nranks: int) -> Topology:
    """Return two or three tiers of switches, perhaps oversubscribed."""
    host, uplink = (
        LinkKind(
            rate_bps=random.choice((4, 10, 400)) * GBIT,
            delay_ns=random.choice((0, 1, random.randrange(2_000))),
        )
        for _ in range(2)
    )
    if random.random() < 0.5:
        uplink = host
    if random.random() < 0.4:
        leaves = random.choice((4, 8, nranks // 4))
        return clos(
            leaves,
            random.choice((1, 2, 3, 8)),
            nranks // leaves,
            host.rate_bps,
            uplink.rate_bps,
            host_delay_ns=host.delay_ns,
            uplink_delay_ns=uplink.delay_ns,
        )
    pods, leaves = random.choice((2, 4)), random.choice((2, 4))
    return fat_tree(
        pods,
        leaves,
        random.choice((1, 2, 3)),
        random.choice((1, 2, 4)),
        nranks // pods // leaves,
        host=host,
        uplink=uplink,
        core=uplink,
    )


def drawn_network(random: Random, nranks: int) -> LevelNetwork:
    """Return a network, perhaps with a slow link or without an uplink."""
    topology = drawn_fabric(random, nranks)
    rates_bps = {}
    if random.random() < 0.4:
        link = random.choice(topology.links)
        rates_bps = {str(link.a): GBIT, str(link.b): GBIT}
    if random.random() < 0.4:
        down = random.choice(topology.links[nranks:]).name
        try:
            return network_of(topology, without={down}, rates_bps=rates_bps)[0]
        except FabricError:  # the only path of some hosts
            pass
    return network_of(topology, rates_bps=rates_bps)[0]


def outcome(
    level: MessageLevel,
    steps: Sequence[Step],
    hosts: Sequence[int],
    begins_ns: Sequence[int] = (),
) -> tuple[list[tuple[int, ...]], list[int], int]:
    """Let every rank run collectives one after another, the first at *begins_ns*.

    Returns:
        The ends in their order, the bytes on links and the number of messages.
    """
    nranks = len(hosts)
    firsts = []
    for (op, name), size in steps:
        how = algorithm(op, name)

        def columns(how: object = how, size: int = size) -> object:
            return Division().columns(how, nranks=nranks, root=0, input_bytes=size)

        firsts.append(level.open(level.shape((how, size), columns)))
        for rank, host in enumerate(hosts):
            level.place(firsts[-1] + rank, host, rank)
    ends: list[tuple[int, ...]] = []
    late_ns = begins_ns or [0] * nranks
    due = sorted(range(nranks), key=late_ns.__getitem__)
    while len(ends) < nranks * len(steps):
        if not level.run(late_ns[due[0]] if due else FOR_EVER_NS):
            level.advance(late_ns[due[0]])
            level.begin(firsts[0] + due.pop(0), 0, 0, -1)
        done, level.done = level.done, []
        for share in done:
            sent, received = level.sent_bytes(share), level.received_bytes(share)
            ends.append((level.now_ns, share, sent, received))
            if share + nranks < firsts[-1] + nranks:
                level.begin(share + nranks, 0, 0, -1)
    return ends, level.link_bytes(), level.messages


@RANKS
@pytest.mark.parametrize("seed", fewer([*range(30)]))
def test_passes_have_the_ends_of_single_events(seed: int, nranks: int) -> None:
    random = Random(seed)
    network = drawn_network(random, nranks)
    hosts = list(range(nranks))
    if random.random() < 0.5:
        random.shuffle(hosts)
    # Long exchanges have no passes, such as gathers of many ranks.
    most = 20_000 * 64**2 // nranks**2
    size = nranks * random.randint(1, most) + random.choice((0, 7))
    kinds = (random.choice((DIRECT, DIRECT, GATHER)), *random.choice(FOLLOWING))
    steps = [(kind, 0 if kind is BARRIER else size) for kind in kinds]
    chosen = random.choice((None, seed))
    passes = RouterPasses(network, TIMES, seed=chosen)
    events = MessageLevel(network, TIMES, seed=chosen)
    found = outcome(passes, steps, hosts)
    assert found == outcome(events, steps, hosts)
    if found[0][0][0] < LONGEST_NS:
        assert passes.passed
        assert passes.events < events.events
    else:
        assert nranks > 64


@RANKS
@pytest.mark.parametrize("seed", range(30))
def test_positions_that_begin_one_after_another_have_passes(
    seed: int, nranks: int
) -> None:
    random = Random(seed)
    network = drawn_network(random, nranks)
    most = 20_000 * 64**2 // nranks**2
    size = nranks * (500 + random.randint(0, most)) + random.choice((0, 7))
    # The first message takes longer than this, at any rate of a host.
    span_ns = random.choice((1, 5, 500 * 8 // 400))
    begins_ns = [random.randint(0, span_ns) for _ in range(nranks)]
    hosts = random.sample(range(nranks), nranks)
    following = ((DIRECT, size),) * random.randint(0, 2)
    steps = [(random.choice((DIRECT, GATHER)), size), *following]
    passes = RouterPasses(network, TIMES, seed=seed)
    events = MessageLevel(network, TIMES, seed=seed)
    found = outcome(passes, steps, hosts, begins_ns)
    assert found == outcome(events, steps, hosts, begins_ns)
    assert passes.passed or (nranks > 64 and found[0][0][0] > LONGEST_NS)


@pytest.mark.parametrize("late_ns", [300, 398, 399, 400, 500])
def test_no_passes_after_a_message_has_reached_a_router(late_ns: int) -> None:
    passes = RouterPasses(leaf_spine(), TIMES, seed=1)
    events = MessageLevel(leaf_spine(), TIMES, seed=1)
    reach_ns = 399  # of the first message
    begins_ns = [*[0] * 63, late_ns]
    steps = [(DIRECT, 64 * 420)]
    found = outcome(passes, steps, range(64), begins_ns)
    assert found == outcome(events, steps, range(64), begins_ns)
    assert passes.passed == (late_ns < reach_ns)


def leaf_spine(
    *, host_rate_bps: int | None = 10 * GBIT, uplink_rate_bps: int = 10 * GBIT
) -> LevelNetwork:
    return network_of(clos(8, 4, 8, host_rate_bps, uplink_rate_bps))[0]


@pytest.mark.parametrize(
    ("network", "kind", "size"),
    [
        (network_of(single_switch(64, 10 * GBIT))[0], DIRECT, 64 << 10),
        (ring(64, rate_bps=10 * GBIT, delay_ns=0), DIRECT, 64 << 10),
        (leaf_spine(host_rate_bps=None), DIRECT, 64 << 10),
        (leaf_spine(uplink_rate_bps=100_000), DIRECT, 64 << 10),
        (leaf_spine(), (CollectiveOp.ALL_REDUCE, "ring"), 64 << 10),
        (leaf_spine(), (CollectiveOp.ALL_REDUCE, "direct"), 64 << 10),
    ],
    ids=["one switch", "ring", "no time", "long", "rings", "sums"],
)
def test_other_collectives_have_events(
    network: LevelNetwork, kind: tuple[CollectiveOp, str], size: int
) -> None:
    passes = RouterPasses(network, TIMES, seed=1)
    events = MessageLevel(network, TIMES, seed=1)
    steps = [(kind, size)] * 2
    hosts = range(64)
    assert outcome(passes, steps, hosts) == outcome(events, steps, hosts)
    assert not passes.passed


def test_an_exchange_alone_needs_no_events() -> None:
    passes = RouterPasses(leaf_spine(), TIMES, seed=1)
    events = MessageLevel(leaf_spine(), TIMES, seed=1)
    passes.is_alone = True
    steps = [(DIRECT, 64 << 10)]
    assert outcome(passes, steps, range(64)) == outcome(events, steps, range(64))
    assert passes.events == 1 + 64  # the passes, and the ends of all shares


@pytest.mark.parametrize(
    ("begins_ns", "late", "passed"),
    [
        (20, 0, 0),
        (20, 12, 0),
        (6_000, 0, 0),
        (9_000, 0, 1),
        (30_000, 0, 2),
        (30_000, 12, 2),
    ],
    ids=[
        "overlap",
        "late positions",
        "before an end",
        "after an end",
        "after all",
        "late, after all",
    ],
)
def test_no_passes_while_others_may_begin(
    begins_ns: int, late: int, passed: int
) -> None:
    """Some positions begin late, and another exchange begins later."""
    found = []
    passes = RouterPasses(leaf_spine(), TIMES, seed=1)
    for level in (MessageLevel(leaf_spine(), TIMES, seed=1), passes):
        how = algorithm(*DIRECT)

        def columns(how: object = how) -> object:
            return Division().columns(how, nranks=33, root=0, input_bytes=3_300)

        shape = level.shape(0, columns)
        one, other = level.open(shape), level.open(shape)
        for rank in range(33):
            level.place(one + rank, rank, rank)
            level.place(other + rank, 63 - rank, rank)
        ends = []
        begins = [
            (0, range(one, one + 33 - late)),
            (10, range(one + 33 - late, one + 33)),
            (begins_ns, range(other, other + 33)),
        ]
        for now_ns, shares in (
            *(each for each in begins if each[1]),
            (FOR_EVER_NS, range(0)),
        ):
            while level.run(now_ns):
                ends += [(level.now_ns, share) for share in level.done]
                level.done = []
                if len(ends) == 66:
                    break
            else:
                level.advance(now_ns)
            for share in shares:
                level.begin(share, 0, 0, -1)
        found.append(ends)
    assert found[0] == found[1]
    assert len(found[0]) == 66
    assert passes.passed == passed


@pytest.mark.parametrize("is_alone", [False, True])
def test_passes_report_their_progress(is_alone: bool) -> None:
    passes = RouterPasses(leaf_spine(), TIMES, seed=1)
    passes.is_alone = is_alone
    reported: list[int] = []
    passes.report = reported.append
    outcome(passes, [(DIRECT, 64 << 10)], range(64))
    assert passes.passed
    total = 64 * 63
    within = [each for each in reported if 0 < each < total]
    assert within == sorted(within)
    # Each of eight routers with hosts has two stages, and four others have one.
    assert len(set(within)) == (19 if is_alone else 39)
