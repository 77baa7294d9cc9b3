"""Messages that a rank posts together, which share one row in the queue of its link."""

from __future__ import annotations

from functools import partial

import pytest

from chakram.collectives.algorithms import algorithm
from chakram.collectives.ops import CollectiveOp
from chakram.predict.levels.cost_models import Division
from chakram.predict.levels.message_level import MessageLevel
from chakram.predict.levels.message_times import WireTimes
from chakram.records.row_layout import FLOW_FIELDS
from tests.level_networks import star

RANKS = 4
RATE_BPS = 8 * 10**9
"""One byte per nanosecond."""
TIMES = WireTimes(path_mtu=1 << 20, verb="write", overhead_bytes=0)


@pytest.mark.parametrize("server", [False, True])
def test_later_messages_wait_for_a_whole_series(server: bool) -> None:
    network = star(RANKS, rate_bps=RATE_BPS, delay_ns=0)
    level = MessageLevel(network, TIMES, record=True)
    how = algorithm(CollectiveOp.ALL_TO_ALL, "direct")
    collectives = []
    for size_bytes in (100, 30):
        columns = partial(
            Division().columns,
            how,
            nranks=RANKS,
            root=0,
            input_bytes=RANKS * size_bytes,
        )
        first = level.open(level.shape(size_bytes, columns))
        for rank in range(RANKS):
            # Ranks 0 and 2 may share a server, and rank 2 is in the middle of a series.
            in_server = {"server": 0} if server and rank in (0, 2) else {}
            level.place(first + rank, rank, rank, **in_server)
        collectives.append(first)
    for first in collectives:
        for rank in range(RANKS):
            level.begin(first + rank, 0, 0, -1)
    while level.run(1 << 40):
        level.done = []

    flows = level.take_flows()
    width = len(FLOW_FIELDS)
    rows = [flows[at : at + width] for at in range(0, len(flows), width)]
    assert len(rows) == 2 * RANKS * (RANKS - 1)
    for rank in range(RANKS):
        sent = sorted((row[10], row[7], row[5]) for row in rows if row[1] == rank)
        at_ns = 0
        left = [each for each in sent if not (server and {rank, each[2]} == {0, 2})]
        for left_ns, size_bytes, _ in left:
            assert left_ns == at_ns
            at_ns += TIMES.wire_bytes(size_bytes)
        assert [size_bytes for _, size_bytes, _ in left] == sorted(
            (size_bytes for _, size_bytes, _ in left), reverse=True
        )
    assert sum(level.link_bytes()) == 2 * sum(
        TIMES.wire_bytes(row[7])
        for row in rows
        if not (server and {row[1], row[5]} == {0, 2})
    )
