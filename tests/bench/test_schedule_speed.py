"""What it costs a rank of 1,024 to expand its share of a collective.

The limits are those of the design: a share is expanded when its collective starts, so
it must be short against the collective.
"""

from __future__ import annotations

import gc
import time

import pytest

from chakram.collectives.algorithms import algorithm
from chakram.collectives.ops import CollectiveOp
from chakram.collectives.schedule import rank_schedule
from chakram_agent.shard import GARBAGE_THRESHOLD
from tests.bench.extent import at_most, sized

AR, A2A = CollectiveOp.ALL_REDUCE, CollectiveOp.ALL_TO_ALL


@pytest.mark.parametrize(
    ("op", "name", "limit_ms"),
    [
        (A2A, "direct", 20),
        (A2A, "pairwise", 20),
        (A2A, "bruck", 20),
        (A2A, "pxn", 20),
        (AR, "ring", 50),
        (AR, "ring(channels=2,chunks=4)", 50),
        (AR, "halving_doubling", 20),
        (AR, "hierarchical", 20),
    ],
)
def test_a_share_of_a_thousand_ranks_is_expanded_quickly(
    op: CollectiveOp, name: str, limit_ms: int
) -> None:
    how = algorithm(op, name)
    times_ms = []
    # As in a data-plane process: the collector of cycles hardly ever looks.
    threshold = gc.get_threshold()
    gc.set_threshold(GARBAGE_THRESHOLD)
    try:
        for position in sized(
            (0, 250, 500, 750, 1000), (0,)
        ):  # each is cached once it is expanded
            begin = time.process_time()
            rank_schedule(how, position=position, nranks=1024)
            times_ms.append((time.process_time() - begin) * 1e3)
    finally:
        gc.set_threshold(*threshold)
    print(f"\n{op} {name}: {min(times_ms):.1f} ms")  # noqa: T201
    assert min(times_ms) < at_most(limit_ms)
