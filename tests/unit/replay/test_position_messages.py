from __future__ import annotations

import pytest

from chakram.collectives.algorithms import algorithm, algorithm_names
from chakram.collectives.ops import CollectiveOp
from chakram.collectives.schedule import rank_schedule, transfer_bytes
from chakram.replay.position_messages import (
    Share,
    rotated_share,
    rotated_sizes,
    share_of,
)

TURNING = [
    *(
        (op, name)
        for op in CollectiveOp
        if op is not CollectiveOp.ALL_TO_ALL_V
        for name in algorithm_names(op)
    ),
    *(
        (op, name)
        for op in (CollectiveOp.ALL_REDUCE, CollectiveOp.ALL_GATHER)
        for name in ("ring(channels=3,chunks=2)", "bidirectional_ring(chunks=3)")
    ),
]


def receives(share: Share, nranks: int, ahead: int) -> list[tuple[object, ...]]:
    """Return the arrivals, with the sends that each message releases."""
    lanes = [
        (channel, (peer + ahead) % nranks) for channel, peer in share.receive_lanes
    ]
    found: list[tuple[object, ...]] = []
    for lane, (channel, peer) in enumerate(lanes):
        number = 0
        while (index := share.receives.find(lane << 16 | number)) >= 0:
            step = share.receive_steps[index]
            assert channel == share.receive_channels[index]
            assert share.receive_lane[index] == lane
            found.append((channel, peer, number, step, share.dependents[index]))
            number += 1
    assert len(found) == len(share.receive_steps)
    return sorted(found)


@pytest.mark.parametrize(("op", "name"), TURNING)
def test_shared_expansion_equals_that_of_every_position(
    op: CollectiveOp, name: str
) -> None:
    how = algorithm(op, name)
    for nranks in range(1, 8):
        share = rotated_share(how, nranks=nranks, root=0)
        if share is None:
            continue
        for position in range(nranks):
            schedule = rank_schedule(how, position=position, nranks=nranks)
            own = share_of(schedule)
            assert share.send_messages == own.send_messages
            assert share.send_steps == own.send_steps
            assert share.send_channels == own.send_channels
            assert share.needs == own.needs
            assert share.first_sends == own.first_sends
            assert share.send_lane == own.send_lane
            assert [
                (channel, (peer + position) % nranks)
                for channel, peer in share.send_lanes
            ] == own.send_lanes
            assert receives(share, nranks, position) == receives(own, nranks, 0)
            sizes = rotated_sizes(
                share, how, position=position, nranks=nranks, input_bytes=10_007
            )
            assert sizes == [
                transfer_bytes(how, send, nranks=nranks, input_bytes=10_007)
                for send in schedule.sends
            ]


@pytest.mark.parametrize("op", ["all_reduce", "all_gather", "reduce_scatter"])
def test_rings_have_a_share_for_all_and_trees_have_not(op: str) -> None:
    ring = algorithm(CollectiveOp(op), "ring")
    assert rotated_share(ring, nranks=64, root=0) is not None
    tree = algorithm(CollectiveOp.ALL_REDUCE, "tree")
    assert rotated_share(tree, nranks=64, root=0) is None
