"""Names with parameters: canonical text and strict parsing."""

from __future__ import annotations

import pytest

from chakram.collectives.algorithms import algorithm, algorithm_fitting, parameters_of
from chakram.collectives.ops import CollectiveOp
from chakram.foundation.errors import ScheduleError

AR, BC = CollectiveOp.ALL_REDUCE, CollectiveOp.BROADCAST


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("ring", "ring"),
        ("ring(channels=1,chunks=1)", "ring"),
        ("ring(chunks=4,channels=2)", "ring(channels=2,chunks=4)"),
        ("ring(channels=02)", "ring(channels=2)"),
        ("ring(order=ascending)", "ring"),
        ("ring(order=ascending/descending)", "ring(order=ascending/descending)"),
        ("ring(order=0-2-1-3)", "ring(order=0-2-1-3)"),
        ("bidirectional_ring(channels=2)", "bidirectional_ring"),
        ("double_binary_tree(chunks=4)", "double_binary_tree"),
        ("hierarchical(ranks_per_node=8)", "hierarchical"),
    ],
)
def test_a_name_has_one_canonical_text(written: str, canonical: str) -> None:
    how = algorithm(AR, written)
    assert how.name == canonical
    assert algorithm(AR, canonical) is how


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("", "'' is not the name of an algorithm"),
        ("Ring", "'Ring' is not the name of an algorithm"),
        ("ring (chunks=2)", "is not the name of an algorithm"),
        ("ring(chunks=2)x", "is not the name of an algorithm"),
        ("ring((chunks=2))", "is not the name of an algorithm"),
        ("r" * (1 << 16) + "x", "is not the name of an algorithm"),
        ("ring()", "'' is not a parameter of ring"),
        ("ring(chunks)", "'chunks' is not a parameter of ring"),
        ("ring(chunks=)", "'chunks=' is not a parameter of ring"),
        ("ring(chunks=2,chunks=2)", "ring has chunks twice (write chunks once)"),
        (
            "ring(slices=2)",
            "no parameter 'slices' (choose from channels, chunks, order)",
        ),
        ("tree(chunks=2)", "tree has no parameter 'chunks' (write tree alone)"),
        (
            "ring(chunks=0)",
            "ring: chunks is '0' (use a whole number from 1 to 256)",
        ),
        ("ring(chunks=257)", "chunks is '257'"),
        ("ring(chunks=-1)", "chunks is '-1'"),
        ("ring(chunks=²)", "chunks is '²'"),
        ("ring(order=sideways)", "order is 'sideways' (use ascending, descending,"),
        ("ring(order=0-1-1)", "order is '0-1-1'"),
        ("ring(order=1-2)", "order is '1-2'"),
        ("ring(order=" + "/".join(["ascending"] * 33) + ")", "(use at most 32 orders)"),
    ],
)
def test_a_name_is_read_strictly(written: str, told: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        algorithm(AR, written)
    assert str(caught.value).startswith("collectives.all_reduce: ")
    assert told in str(caught.value)


def test_a_broadcast_has_an_order_for_each_channel() -> None:
    how = algorithm(BC, "ring(order=ascending/descending)")
    first = [send.dst for send in how.sends(0, nranks=4, root=0) if send.step == 0]
    assert first == [1, 3]


def test_orders_make_channels() -> None:
    how = algorithm(AR, "ring(order=ascending/interleaved)")
    ways = {(t.channel, t.dst) for t in how.sends(0, nranks=4, root=0)}
    assert ways == {(0, 1), (1, 2)}


def test_fewer_channels_than_orders_are_refused() -> None:
    with pytest.raises(ScheduleError) as caught:
        algorithm(AR, "ring(channels=2,order=ascending/descending/interleaved)")
    assert "has 3 orders for 2 channels (remove channels" in str(caught.value)


def test_rings_go_in_the_order_they_are_given() -> None:
    def way(order: str, nranks: int) -> list[int]:
        how = algorithm(CollectiveOp.ALL_GATHER, f"ring(order={order})")
        found = [0]
        while len(found) < nranks:
            found.append(next(how.sends(found[-1], nranks=nranks, root=0)).dst)
        return found

    assert way("ascending", 5) == [0, 1, 2, 3, 4]
    assert way("descending", 5) == [0, 4, 3, 2, 1]
    assert way("interleaved", 5) == [0, 2, 4, 1, 3]
    assert way("0-3-1-2", 4) == [0, 3, 1, 2]


def test_an_order_that_does_not_fit_the_group_is_refused() -> None:
    with pytest.raises(ScheduleError) as caught:
        algorithm_fitting(AR, "ring(order=0-2-1)", nranks=4)
    assert str(caught.value) == (
        "collectives.all_reduce: ring(order=0-2-1) does not fit a group of 4 ranks: "
        "its order names 3 positions, but a group has 4 ranks "
        "(use an order that fits every group, e.g. ascending)"
    )


def test_parameters_are_listed() -> None:
    names = [parameter.name for parameter in parameters_of(AR, "ring")]
    assert names == ["channels", "chunks", "order"]
    assert parameters_of(AR, "tree") == ()
    with pytest.raises(ScheduleError, match="no algorithm 'rign'"):
        parameters_of(AR, "rign")
