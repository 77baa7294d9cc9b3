"""Order of the collectives of a group, with and without deadlocks."""

from __future__ import annotations

import pytest

from chakram.collectives.groups import ProcessGroup
from chakram.collectives.ops import CollectiveOp
from chakram.foundation.errors import MatchingError
from chakram.program.collective_order import order_collectives
from chakram.program.matching import CollectiveId, match_ranks
from tests.made_graphs import collective, compute, job, receive, send

AG, RS = CollectiveOp.ALL_GATHER, CollectiveOp.REDUCE_SCATTER


def ordered(*ranks, overlap: bool = False, **groups: tuple[int, ...]):
    graphs = job(*ranks)
    matching = match_ranks(
        graphs,
        {name: ProcessGroup(name=name, ranks=m) for name, m in groups.items()},
    )
    return matching, order_collectives(graphs, matching, overlap=overlap)


def test_order_is_by_index_if_that_makes_no_cycle() -> None:
    rows = [collective(1), collective(2, AG), compute(3)]
    matching, ordering = ordered(rows, rows)
    assert ordering.collectives is matching.collectives
    assert ordering.chained
    assert ordering.warnings == ()


def test_overlapping_collectives_are_not_chained() -> None:
    rows = [collective(1), collective(2, AG)]
    _, ordering = ordered(rows, rows, overlap=True)
    assert not ordering.chained


# The first of rank 1 comes, by a message, after the second of rank 0; node ids say the
# opposite.
CROSSED = (
    [collective(1, AG), collective(2, RS), send(3, 1, after=[2])],
    [receive(0, 0), collective(1, AG, after=[0]), collective(2, RS)],
)


def test_a_chain_that_makes_a_cycle_is_replaced_by_one_merged_order() -> None:
    _, ordering = ordered(*CROSSED)
    assert ordering.chained
    assert ordering.collectives == {
        0: {0: CollectiveId("world", 1), 1: CollectiveId("world", 0)},
        1: {1: CollectiveId("world", 1), 2: CollectiveId("world", 0)},
    }
    assert ordering.warnings == (
        "process group 'world': its collectives would deadlock in the order of their "
        "node ids; they run in one merged order of all ranks",
    )


def test_only_groups_on_the_cycle_are_renumbered() -> None:
    # Group g is before the cycle, h after it: both keep their count.
    before = [collective(10, AG, group="g"), collective(11, RS, group="g")]
    after = [
        collective(20, AG, group="h", after=[1, 2]),
        collective(21, RS, group="h", after=[1, 2]),
    ]
    first, second = (
        [{**row, "dependencies": (*row["dependencies"], 11)} for row in rows]
        for rows in CROSSED
    )
    matching, ordering = ordered(
        [*before, *first, *after], [*before, *second, *after], g=(0, 1), h=(0, 1)
    )
    assert len(ordering.warnings) == 1
    for rank, collectives in matching.collectives.items():
        for position, identity in collectives.items():
            if identity.group != "world":
                assert ordering.collectives[rank][position] == identity


def test_crossed_collectives_are_fine_if_they_may_overlap() -> None:
    matching, ordering = ordered(*CROSSED, overlap=True)
    assert ordering.collectives is matching.collectives
    assert not ordering.chained


@pytest.mark.parametrize("overlap", [False, True])
def test_ranks_that_wait_for_each_other_are_refused(overlap: bool) -> None:
    with pytest.raises(MatchingError) as caught:
        ordered(
            [collective(1, AG, group="g"), collective(2, RS, group="h", after=[1])],
            [collective(1, RS, group="h"), collective(2, AG, group="g", after=[1])],
            overlap=overlap,
            g=(0, 1),
            h=(0, 1),
        )
    text = str(caught.value)
    assert "waits for itself across ranks" in text
    assert "collective 0 of process group 'g' (t.0.et: offset 0: rank 0 node 1" in text
    assert "collective 0 of process group 'h' (t.1.et: offset 0: rank 1 node 1" in text


def test_messages_that_wait_for_each_other_are_refused() -> None:
    with pytest.raises(MatchingError) as caught:
        ordered(
            [
                receive(1, 1),
                *(compute(i, after=[i - 1]) for i in range(2, 9)),
                send(9, 1, after=[8]),
            ],
            [receive(1, 0), send(2, 0, after=[1])],
        )
    assert "; and 5 more; which waits for the first" in str(caught.value)


def test_alike_ranks_in_a_line_are_no_circle() -> None:
    # Rank by rank, but at one position each waits for itself.
    inner = [
        [receive(1, rank - 1), send(2, rank + 1, after=[1])] for rank in range(1, 9)
    ]
    matching, ordering = ordered([send(2, 1)], *inner, [receive(1, 8)])
    assert ordering.collectives is matching.collectives


def test_alike_ranks_in_a_ring_are_refused() -> None:
    ring = [
        [receive(1, (rank - 1) % 8), send(2, (rank + 1) % 8, after=[1])]
        for rank in range(8)
    ]
    with pytest.raises(MatchingError, match="waits for itself across ranks"):
        ordered(*ring)


def test_alike_ranks_keep_the_warning_about_a_chain() -> None:
    _, alone = ordered(*CROSSED)
    copies = [
        [
            {**row, "group": f"g{copy}"}
            if "peer" not in row
            else {**row, "peer": copy * 2 + row["peer"]}
            for row in rows
        ]
        for copy in range(5)
        for rows in CROSSED
    ]
    groups = {f"g{copy}": (2 * copy, 2 * copy + 1) for copy in range(5)}
    _, ordering = ordered(*copies, **groups)
    assert len(ordering.warnings) == 5
    assert [each.number for each in ordering.collectives[8].values()] == [
        each.number for each in alone.collectives[0].values()
    ]
