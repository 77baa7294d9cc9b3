"""Hierarchical algorithms: peers, also with a smaller last node."""

from __future__ import annotations

import pytest

from chakram.collectives.algorithms import algorithm
from chakram.collectives.algorithms.hierarchical import Nodes
from chakram.collectives.ops import CollectiveOp
from chakram.collectives.schedule_check import check_schedule


def test_a_small_node_keeps_several_rails() -> None:
    nodes = Nodes(nranks=10, rails=4)
    assert nodes.count == 3
    assert list(nodes.members(2)) == [8, 9]
    assert [nodes.keeper(2, rail) for rail in range(4)] == [8, 9, 8, 9]
    assert list(nodes.kept_by(8)) == [0, 2]
    assert list(nodes.kept_by(5)) == [1]


def test_a_group_smaller_than_a_node_has_as_many_rails_as_ranks() -> None:
    assert [list(Nodes(nranks=3, rails=8).kept_by(p)) for p in range(3)] == [
        [0],
        [1],
        [2],
    ]


@pytest.mark.parametrize("nranks", [8, 10])
def test_nodes_communicate_only_between_equal_rails(nranks: int) -> None:
    how = algorithm(CollectiveOp.ALL_TO_ALL, "pxn(ranks_per_node=4)")
    peers = {
        position: {peer for _, peer in how.peers(position, nranks=nranks, root=0)}
        for position in range(nranks)
    }
    assert peers[1] == {0, 2, 3, 5} | ({9} if nranks == 10 else set())
    if nranks == 10:
        assert peers[8] == {9, 0, 2, 4, 6}
    assert check_schedule(how, nranks=nranks) == []


def test_a_hierarchical_all_reduce_crosses_on_its_rail_only() -> None:
    how = algorithm(CollectiveOp.ALL_REDUCE, "hierarchical(ranks_per_node=4)")
    for position in range(12):
        crossing = {
            transfer.dst
            for transfer in how.sends(position, nranks=12, root=0)
            if transfer.dst // 4 != position // 4
        }
        assert crossing == {(position + 4) % 12}
    assert check_schedule(how, nranks=12) == []
