"""Traffic between pairs of ranks."""

from __future__ import annotations

from typing import Any

import pytest

from chakram.chakra.summary.traffic import PATH_MTU, Traffic, Work, measure_traffic
from chakram.collectives.groups import WORLD, ProcessGroup, world_group
from chakram.collectives.ops import CollectiveOp
from chakram.collectives.split_sizes import Splits
from chakram.foundation.errors import TraceError
from chakram.plan.wire_cost import wire_bytes
from chakram.trace.builder import TraceGraphBuilder
from chakram.trace.graph import TraceGraph
from chakram.trace.node import NodeKind

KIB = 1024


def graph(rank: int, *nodes: dict[str, Any]) -> TraceGraph:
    builder = TraceGraphBuilder(rank=rank, source="made")
    for number, columns in enumerate(nodes):
        builder.add(node_id=number, name="n", **columns)
    return builder.build()


def collective(op: CollectiveOp, size: int, **columns: Any) -> dict[str, Any]:
    return {"kind": NodeKind.COLLECTIVE, "op": op, "comm_bytes": size, **columns}


def send(peer: int | None, size: int) -> dict[str, Any]:
    return {"kind": NodeKind.SEND, "peer": peer, "comm_bytes": size}


def measured(nranks: int, *nodes: dict[str, Any], **groups: Any) -> Traffic:
    """Return the traffic of *nranks* ranks with the same nodes."""
    return measure_traffic(
        {rank: graph(rank, *nodes) for rank in range(nranks)},
        {
            WORLD: world_group(nranks),
            **{name: ProcessGroup(name=name, ranks=r) for name, r in groups.items()},
        },
    )


def test_all_to_all_is_sent_equally_to_all_others() -> None:
    traffic = measured(4, collective(CollectiveOp.ALL_TO_ALL, 4 * KIB))
    assert [list(traffic.row(rank)) for rank in range(4)] == [
        [0 if src == dst else KIB for dst in range(4)] for src in range(4)
    ]
    of = traffic.work[Work("all_to_all", WORLD)]
    assert (of.sent_bytes, dict(of.sizes)) == (12 * KIB, {4 * KIB: 4})
    assert of.wire_bytes == 12 * wire_bytes(KIB, path_mtu=PATH_MTU)
    assert of.algorithms == {"direct"}
    assert traffic.messages == {KIB: 12}


def test_barrier_has_no_size() -> None:
    traffic = measured(2, collective(CollectiveOp.BARRIER, 8))
    assert dict(traffic.work[Work("barrier", WORLD)].sizes) == {0: 2}


def test_more_traffic_than_a_column_holds_is_refused_at_the_file() -> None:
    assert measured(2, send(1, 2**61)).sent_bytes[0] == 2**61
    with pytest.raises(TraceError, match=r"made: its traffic adds up to 2\*\*63 bytes"):
        measured(2, send(1, 2**62))


@pytest.mark.parametrize("op", [CollectiveOp.ALL_TO_ALL, CollectiveOp.ALL_TO_ALL_V])
def test_all_to_alls_with_splits_are_uneven_in_all_formats(op: CollectiveOp) -> None:
    splits = Splits((1, 5), (1, 5))
    traffic = measured(2, collective(op, 6, splits=splits))
    assert [work.what for work in traffic.work] == ["all_to_all_v"]


def test_large_all_reduce_uses_a_ring() -> None:
    size = 4 * 2**20
    traffic = measured(4, collective(CollectiveOp.ALL_REDUCE, size))
    # 2(n - 1) chunks of a quarter, to the neighbor.
    share = 2 * 3 * size // 4
    assert list(traffic.row(3)) == [share, 0, 0, 0]
    assert list(traffic.sent_bytes) == list(traffic.received_bytes) == [share] * 4


def test_equal_nodes_are_expanded_once_and_counted_each() -> None:
    node = collective(CollectiveOp.ALL_TO_ALL, 2 * KIB)
    once, thrice = measured(2, node), measured(2, node, node, node)
    assert thrice.messages == {KIB: 3 * once.messages[KIB]}
    assert list(thrice.sent_bytes) == [3 * KIB, 3 * KIB]


def test_messages_are_sent_to_their_peer() -> None:
    traffic = measure_traffic(
        {0: graph(0, send(1, 5), send(1, 5)), 1: graph(1)}, {WORLD: world_group(2)}
    )
    assert list(traffic.row(0)) == [0, 10]
    assert traffic.work[Work("send", None)].sent_bytes == 10


def test_order_of_a_group_is_the_order_of_its_ring() -> None:
    node = collective(CollectiveOp.ALL_REDUCE, 3 * 2**20, group="a")
    traffic = measured(3, node, a=(0, 2, 1))
    assert [bool(sent) for sent in traffic.row(0)] == [False, False, True]


@pytest.mark.parametrize(
    "node",
    [
        collective(CollectiveOp.ALL_REDUCE, 8, group="nowhere"),
        collective(CollectiveOp.ALL_REDUCE, 8, group="others"),
        collective(CollectiveOp.BROADCAST, 8, root=7),
        send(None, 8),
        send(5, 8),
    ],
)
def test_traffic_without_known_ranks_is_counted(node: dict[str, Any]) -> None:
    traffic = measured(2, node, others=(4, 5))
    assert traffic.unplaced == 2
    assert not any(traffic.sent_bytes)


def test_a_collective_with_several_unknown_receivers_counts_once() -> None:
    splits = Splits(sent_bytes=(8, 8, 8, 8), received_bytes=(8, 8, 8, 8))
    uneven = collective(CollectiveOp.ALL_TO_ALL, 32, group="wide", splits=splits)
    even = collective(CollectiveOp.ALL_TO_ALL, 32, group="wide")
    for node in (even, uneven):
        traffic = measured(2, node, wide=(0, 1, 4, 5))
        assert traffic.unplaced == 2
        assert list(traffic.row(0)) == [0, 8]


def test_too_many_ranks_have_no_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chakram.chakra.summary.traffic.MATRIX_RANKS", 1)
    traffic = measured(2, send(1, 8))
    assert traffic.matrix is None
    with pytest.raises(ValueError, match="no matrix"):
        traffic.row(0)
