"""Rings in steps of all positions have the times of single messages."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from chakram.collectives.algorithms import algorithm
from chakram.collectives.ops import CollectiveOp
from chakram.predict.levels.cost_models import Division
from chakram.predict.levels.level_network import LevelNetwork
from chakram.predict.levels.message_level import MessageLevel
from chakram.predict.levels.message_times import WireTimes
from tests.level_networks import ring, star
from tests.support import fewer

TIMES = WireTimes(path_mtu=1024)
FOR_EVER_NS = 1 << 62
RINGS = [
    (CollectiveOp.ALL_REDUCE, "ring"),
    (CollectiveOp.ALL_GATHER, "ring"),
    (CollectiveOp.REDUCE_SCATTER, "ring"),
    (CollectiveOp.ALL_TO_ALL, "ring"),
]


def drawn_network(random: Random, nranks: int) -> LevelNetwork:
    """Return a star or a ring of hosts with links of different rates."""
    make = random.choice((star, ring))
    network = make(nranks, rate_bps=10**9, delay_ns=random.randrange(2_000))
    rates = [None, 10**9, 10**10, 999_999_937]
    return replace(
        network,
        links=tuple(
            replace(link, rate_bps=random.choice(rates)) for link in network.links
        ),
    )


def end_times(
    network: LevelNetwork,
    ring: tuple[CollectiveOp, str],
    size: int,
    begins_ns: list[list[int]],
    *,
    is_stepped: bool,
) -> tuple[list[dict[int, int]], list[int]]:
    """Return when the positions end some collectives, and the bytes on links.

    Positions begin the first one at *begins_ns*, and each other one some time after
    they have ended the one before.
    """
    nranks = len(begins_ns[0])
    level = MessageLevel(network, TIMES)
    level.is_stepped = is_stepped
    how = algorithm(*ring)

    def columns() -> object:
        return Division().columns(how, nranks=nranks, root=0, input_bytes=size)

    shape = level.shape(size, columns)
    assert level.ring_distance(shape) == 1
    firsts = [level.open(shape) for _ in begins_ns]
    ends_ns: list[dict[int, int]] = [{} for _ in begins_ns]
    due = [(at_ns, rank, 0) for rank, at_ns in enumerate(begins_ns[0])]
    for first in firsts:
        for rank in range(nranks):
            level.place(first + rank, rank, rank)
    while due or any(len(each) < nranks for each in ends_ns):
        due.sort()
        if not level.run(due[0][0] if due else FOR_EVER_NS):
            at_ns, rank, number = due.pop(0)
            level.advance(at_ns)
            level.begin(firsts[number] + rank, 0, 0, -1)
        done, level.done = level.done, []
        for share in done:
            number = max(at for at, first in enumerate(firsts) if first <= share)
            rank = share - firsts[number]
            ends_ns[number][rank] = level.now_ns
            if number + 1 < len(firsts):
                pause_ns = begins_ns[number + 1][rank]
                due.append((level.now_ns + pause_ns, rank, number + 1))
    return ends_ns, level.link_bytes()


@pytest.mark.parametrize("ring", RINGS, ids=[f"{op}" for op, _ in RINGS])
@pytest.mark.parametrize("seed", fewer([*range(8)]))
def test_steps_have_the_times_of_single_messages(
    ring: tuple[CollectiveOp, str], seed: int
) -> None:
    random = Random(seed)
    nranks = random.choice((2, 3, 7, 16, 64))
    network = drawn_network(random, nranks)
    size = nranks * random.randrange(5_000)
    begins_ns = [
        [random.choice((0, random.randrange(100_000))) for _ in range(nranks)]
        for _ in range(3)
    ]
    whole = end_times(network, ring, size, begins_ns, is_stepped=False)
    assert end_times(network, ring, size, begins_ns, is_stepped=True) == whole


@pytest.mark.parametrize(
    ("op", "name", "size"),
    [
        (CollectiveOp.ALL_REDUCE, "ring", 5 * 8 + 1),
        (CollectiveOp.ALL_REDUCE, "ring(channels=2)", 160),
        (CollectiveOp.ALL_TO_ALL, "direct", 40),
        (CollectiveOp.BROADCAST, "ring", 40),
        (CollectiveOp.BARRIER, "dissemination", 0),
    ],
)
def test_other_kinds_have_no_steps(op: CollectiveOp, name: str, size: int) -> None:
    level = MessageLevel(star(5, rate_bps=10**9, delay_ns=0), TIMES)
    shape = level.shape(
        0,
        lambda: Division().columns(
            algorithm(op, name), nranks=5, root=0, input_bytes=size
        ),
    )
    assert level.ring_distance(shape) == 0
