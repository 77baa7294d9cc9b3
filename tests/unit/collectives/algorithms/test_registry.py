"""Registered algorithms, and the default ``auto``."""

import pytest

from chakram.collectives.algorithms import (
    AUTO,
    algorithm,
    algorithm_names,
    default_algorithm,
)
from chakram.collectives.ops import CollectiveOp
from chakram.foundation.errors import ScheduleError


@pytest.mark.parametrize(
    ("op", "name"),
    [
        (CollectiveOp.ALL_REDUCE, "ring"),
        (CollectiveOp.ALL_GATHER, "ring"),
        (CollectiveOp.REDUCE_SCATTER, "ring"),
        (CollectiveOp.ALL_TO_ALL, "direct"),
        (CollectiveOp.BROADCAST, "tree"),
        (CollectiveOp.REDUCE, "tree"),
        (CollectiveOp.GATHER, "direct"),
        (CollectiveOp.SCATTER, "direct"),
        (CollectiveOp.SEND_RECV, "direct"),
        (CollectiveOp.BARRIER, "dissemination"),
    ],
)
def test_auto_is_the_default(op: CollectiveOp, name: str) -> None:
    assert default_algorithm(op) == name
    assert algorithm_names(op)[0] == name
    assert algorithm(op, AUTO) is algorithm(op, name)
    assert (algorithm(op, name).op, algorithm(op, name).name) == (op, name)


@pytest.mark.parametrize("op", CollectiveOp)
def test_every_registered_name_is_found(op: CollectiveOp) -> None:
    for name in algorithm_names(op):
        assert algorithm(op, name).name == name
        assert algorithm(op, name).op == op


def test_unknown_name_is_refused_with_the_choices() -> None:
    with pytest.raises(ScheduleError) as caught:
        algorithm(CollectiveOp.ALL_REDUCE, "rign")
    assert str(caught.value) == (
        "collectives.all_reduce: there is no algorithm 'rign' "
        "(choose from auto, ring, direct, double_binary_tree, binary_tree, "
        "hierarchical, halving_doubling, recursive_doubling, bidirectional_ring, tree)"
    )


def test_algorithms_are_hashable() -> None:
    everything = {
        algorithm(op, name) for op in CollectiveOp for name in algorithm_names(op)
    }
    assert len(everything) == sum(len(algorithm_names(op)) for op in CollectiveOp)
