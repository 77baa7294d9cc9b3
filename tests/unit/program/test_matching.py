"""Matching of nodes between ranks, and messages about mismatches."""

from __future__ import annotations

import pytest

from chakram.collectives.groups import ProcessGroup
from chakram.collectives.ops import CollectiveOp
from chakram.collectives.split_sizes import Splits
from chakram.foundation.errors import MatchingError
from chakram.program.matching import (
    CollectiveId,
    MessageId,
    check_matching,
    match_ranks,
)
from tests.made_graphs import collective, compute, job, receive, send

AG, RS = CollectiveOp.ALL_GATHER, CollectiveOp.REDUCE_SCATTER
BROADCAST = CollectiveOp.BROADCAST


def groups(**ranks: tuple[int, ...]) -> dict[str, ProcessGroup]:
    return {
        name: ProcessGroup(name=name, ranks=members) for name, members in ranks.items()
    }


def refusal(*ranks, **more) -> str:
    with pytest.raises(MatchingError) as caught:
        match_ranks(job(*ranks), groups(**more))
    return str(caught.value)


def test_kth_collectives_in_topological_order_are_matched() -> None:
    # Rank 1 has its nodes in another order in its file, and other ids.
    matching = match_ranks(
        job(
            [collective(1, AG, size=8), collective(2, RS, size=9, after=[1])],
            [collective(7, RS, size=9, after=[5]), collective(5, AG, size=8)],
        ),
        {},
    )
    assert matching.collectives == {
        0: {0: CollectiveId("world", 0), 1: CollectiveId("world", 1)},
        1: {1: CollectiveId("world", 0), 0: CollectiveId("world", 1)},
    }
    assert matching.groups["world"].ranks == (0, 1)
    orders = {rank: list(order) for rank, order in matching.orders.items()}
    assert orders == {0: [0, 1], 1: [1, 0]}
    assert matching.warnings == ()


@pytest.mark.parametrize("name", [None, "", "0", "world"])
def test_no_name_and_zero_are_all_ranks(name: str | None) -> None:
    matching = match_ranks(job(*[[collective(1, group=name)]] * 2), {})
    assert matching.collectives[1] == {0: CollectiveId("world", 0)}


def test_defined_group_zero_is_used() -> None:
    matching = match_ranks(
        job([collective(1, group="0")], [collective(1, group="0")], [compute(1)]),
        groups(**{"0": (1, 0)}),
    )
    assert matching.groups["0"].ranks == (1, 0)


def test_groups_count_for_themselves() -> None:
    rows = [collective(1, group="a"), collective(2, group="b"), collective(3)]
    matching = match_ranks(job(rows, rows), groups(a=(0, 1), b=(1, 0)))
    assert matching.collectives[0] == {
        0: CollectiveId("a", 0),
        1: CollectiveId("b", 0),
        2: CollectiveId("world", 0),
    }


def test_members_that_differ_in_order_are_matched_by_name() -> None:
    matching = match_ranks(
        job(
            [collective(1, AG, name="x"), collective(2, RS, name="y")],
            [collective(1, RS, name="y"), collective(2, AG, name="x")],
            [collective(1, AG, name="other"), collective(2, RS, name="names")],
        ),
        {},
    )
    assert matching.collectives[1] == {
        0: CollectiveId("world", 1),
        1: CollectiveId("world", 0),
    }
    assert matching.collectives[2] == {
        0: CollectiveId("world", 0),
        1: CollectiveId("world", 1),
    }
    assert matching.warnings == (
        "process group 'world': its members order its collectives differently; "
        "they are matched by node name",
    )


def test_equal_ones_are_matched_by_name_in_their_order() -> None:
    matching = match_ranks(
        job(
            [collective(1, AG, name="x"), *(collective(i, name="y") for i in (2, 3))],
            [*(collective(i, name="y") for i in (2, 3)), collective(9, AG, name="x")],
        ),
        {},
    )
    assert [matching.collectives[1][position].number for position in (0, 1, 2)] == [
        1,
        2,
        0,
    ]


def test_another_size_is_shown_with_both_nodes() -> None:
    assert refusal(
        [collective(1), collective(2, size=8, root=0)],
        [collective(1), collective(2, size=9)],
    ) == (
        "process group 'world': collective 1: rank 0 has all_reduce of 8 bytes "
        "(t.0.et: offset 0: rank 0 node 2 'all_reduce-2'); rank 1 has all_reduce of 9 "
        "bytes (t.1.et: offset 0: rank 1 node 2 'all_reduce-2') (check that the "
        "traces come from one run and include all of its ranks)"
    )


def test_sizes_of_barriers_do_not_matter() -> None:
    barrier = CollectiveOp.BARRIER
    graphs = job([collective(1, barrier, size=8)], [collective(1, barrier, size=0)])
    assert len(match_ranks(graphs, {}).collectives) == 2


def test_another_count_is_shown() -> None:
    text = refusal([collective(1), collective(2)], [collective(1)])
    assert text.startswith("process group 'world': collective 1: rank 0 has all_reduce")
    assert "rank 1 has none, only 1 collectives in total" in text


def test_a_member_without_any_is_shown() -> None:
    assert "rank 1 has none, only 0 collectives" in refusal(
        [collective(1)], [compute(1)]
    )


def test_another_root_is_shown() -> None:
    text = refusal(
        [collective(1, BROADCAST, root=1)], [collective(1, BROADCAST, root=0)]
    )
    assert "broadcast of 1024 bytes from root 1" in text


def test_a_root_outside_of_the_group_is_refused() -> None:
    rows = [collective(1, BROADCAST, root=2)]
    assert "its root is 2, but process group 'world' has 2 ranks" in refusal(rows, rows)


def test_an_unknown_group_is_refused() -> None:
    assert refusal([collective(4, group="7")]) == (
        "t.0.et: offset 0: rank 0 node 4 'all_reduce-4': names process group '7', "
        "which is not defined (define the group in comm_group.json or in the trace)"
    )


def test_group_without_the_rank_is_refused() -> None:
    ranks = [[collective(1, group="g")]] * 10
    text = refusal(*ranks, g=tuple(range(1, 10)))
    assert "but rank 0 is not a member" in text
    assert text.endswith("(the members are 1, 2, 3, 4, 5, 6, 7, 8, ...)")


def test_group_with_a_rank_without_a_trace_is_refused() -> None:
    assert "has rank 5, which has no trace" in refusal(
        [collective(1, group="g")], g=(0, 5)
    )


def test_messages_are_counted_by_tag_then_by_dependencies() -> None:
    matching = match_ranks(
        job(
            [
                send(1, 1, tag=9, size=1),
                send(3, 1, tag=2, size=2, after=[4]),
                send(4, 1, tag=2, size=3),
                receive(5, 1, tag=2),
            ],
            [
                receive(1, 0, tag=2, size=3),
                receive(2, 0, tag=2, size=2),
                receive(3, 0, tag=9, size=1),
                send(4, 0, tag=2),
            ],
        ),
        {},
    )
    assert matching.messages == {
        0: {
            2: MessageId(1, 0),
            1: MessageId(1, 1),
            0: MessageId(1, 2),
            3: MessageId(1, 0),
        },
        1: {
            0: MessageId(0, 0),
            1: MessageId(0, 1),
            2: MessageId(0, 2),
            3: MessageId(0, 0),
        },
    }


@pytest.mark.parametrize(
    ("names", "numbers"),
    [
        (["b", None, "a"], [2, 1, 0]),
        # Groups that the receives do not name say nothing.
        ([None, None, None], [0, 1, 2]),
        (["a", "b", "b"], [0, 1, 2]),
    ],
)
def test_messages_with_equal_tags_match_within_their_groups(
    names: list[str | None], numbers: list[int]
) -> None:
    matching = match_ranks(
        job(
            [
                {**send(at, 1, tag=5), "group": name}
                for at, name in enumerate(["a", None, "b"])
            ],
            [{**receive(at, 0, tag=5), "group": name} for at, name in enumerate(names)],
        ),
        groups(a=(0, 1), b=(0, 1)),
    )
    assert matching.messages[0] == {at: MessageId(1, at) for at in range(3)}
    assert matching.messages[1] == {
        at: MessageId(0, number) for at, number in enumerate(numbers)
    }


def test_no_tag_is_tag_zero() -> None:
    matching = match_ranks(job([send(1, 1)], [receive(1, 0, tag=0)]), {})
    assert matching.messages[0] == {0: MessageId(1, 0)}


@pytest.mark.parametrize(
    ("sending", "receiving", "wanted"),
    [
        (
            [send(1, 1, tag=3), send(2, 1, tag=3)],
            [receive(1, 0, tag=3)],
            "t.0.et: offset 0: rank 0 node 2 'send-2': has no counterpart: rank 0 "
            "sends 2 messages with tag 3 to rank 1, but rank 1 receives 1",
        ),
        (
            [],
            [receive(1, 0, tag=3)],
            "t.1.et: offset 0: rank 1 node 1 'receive-1': has no counterpart: rank 0 "
            "sends 0 messages with tag 3 to rank 1, but rank 1 receives 1",
        ),
        (
            [send(1, 1, size=5)],
            [receive(1, 0, size=6)],
            "t.0.et: offset 0: rank 0 node 1 'send-1': sends 5 bytes, but its receive "
            "(t.1.et: offset 0: rank 1 node 1 'receive-1') expects 6",
        ),
        ([send(1, None)], [], "is a message without a peer"),
        ([send(1, 0)], [], "is a message of a rank to itself"),
        ([send(1, 2)], [], "names rank 2, which has no trace"),
    ],
)
def test_mismatched_messages_are_shown(
    sending: list, receiving: list, wanted: str
) -> None:
    assert wanted in refusal(sending, receiving)


V = CollectiveOp.ALL_TO_ALL_V


def test_an_uneven_all_to_all_has_splits_and_no_size_to_agree_on() -> None:
    rows = (Splits((1, 2), (1, 4)), Splits((4, 8), (2, 8)))
    ranks = [[collective(1, V, size=sum(row.sent_bytes), splits=row)] for row in rows]
    matching = match_ranks(job(*ranks), {})
    assert matching.splits == {CollectiveId("world", 0): rows}
    even = match_ranks(job(*([collective(1, AG)] for _ in rows)), {})
    assert even.splits == {}


@pytest.mark.parametrize(
    ("one", "other", "wanted"),
    [
        (
            Splits((1, 2), (1, 4)),
            Splits((4, 8), (3, 8)),
            "t.0.et: offset 0: rank 0 node 1 'all_to_all_v-1': sends 2 bytes to rank "
            "1, but rank 1 expects 3 from rank 0 (t.1.et: offset 0: rank 1 node 1 "
            "'all_to_all_v-1')",
        ),
        (
            Splits((1, 2), (0, 4)),
            Splits((4, 8), (2, 8)),
            "sends 1 bytes to rank 0, but rank 0 expects 0 from rank 0",
        ),
        (
            Splits((1, 2, 3), (1, 4, 3)),
            Splits((4, 8), (2, 8)),
            "has splits for 3 ranks, but process group 'world' has 2",
        ),
    ],
)
def test_mismatched_splits_are_shown(one: Splits, other: Splits, wanted: str) -> None:
    ranks = [[collective(1, V, splits=row)] for row in (one, other)]
    assert wanted in refusal(*ranks)


def test_an_uneven_all_to_all_is_no_other_collective() -> None:
    row = Splits((1, 2), (1, 4))
    text = refusal([collective(1, V, splits=row)], [collective(1, AG, size=3)])
    assert "rank 0 has all_to_all_v (t.0.et" in text
    assert "rank 1 has all_gather of 3 bytes" in text


def all_faults(*ranks, limit: int = 100, **more) -> tuple[list[str], int]:
    matching, faults = check_matching(job(*ranks), groups(**more), limit=limit)
    assert matching is None
    return [f"{each.where}: {each.found}" for each in faults.kept], faults.more


def test_all_mismatches_are_reported() -> None:
    texts, more = all_faults(
        [
            collective(1, size=8, group="a"),
            collective(2, size=8, group="a"),
            collective(3, AG, group="b"),
            collective(4, BROADCAST, root=3, group="c"),
            send(5, 1, size=7),
            send(6, 1, tag=1),
            send(7, 9),
        ],
        [
            collective(1, size=9, group="a"),
            collective(2, size=7, group="a"),
            collective(4, BROADCAST, root=0, group="c"),
            receive(5, 0, size=8),
            collective(6, group="unknown"),
            collective(7, group="unknown"),
        ],
        a=(0, 1),
        b=(0, 1),
        c=(0, 1),
    )
    starts = (
        "t.0.et: offset 0: rank 0 node 7 'send-7': names rank 9",
        "t.1.et: offset 0: rank 1 node 6 'all_reduce-6': names process group 'unknown'",
        "process group 'a': collective 0: rank 0 has all_reduce of 8",
        "process group 'a': collective 1: rank 0 has all_reduce of 8",
        "process group 'b': collective 0: rank 0 has all_gather",
        "t.0.et: offset 0: rank 0 node 4 'broadcast-4': its root is 3",
        "t.0.et: offset 0: rank 0 node 5 'send-5': sends 7 bytes",
        "t.0.et: offset 0: rank 0 node 6 'send-6': has no counterpart",
    )
    assert more == 0
    assert [text[: len(start)] for text, start in zip(texts, starts, strict=True)] == [
        *starts
    ]


def test_shifted_member_is_reported_once() -> None:
    texts, more = all_faults(
        [collective(k, size=k) for k in range(1, 50)],
        [collective(k, size=k) for k in range(2, 50)],
    )
    assert (len(texts), more) == (1, 0)


def test_mismatches_beyond_the_limit_are_counted() -> None:
    ranks = [[collective(k, size=of) for k in range(20)] for of in (1, 2, 3)]
    texts, more = all_faults(*ranks)
    assert (len(texts), more) == (16, 24)
    texts, more = all_faults(*ranks, limit=3)
    assert (len(texts), more) == (3, 37)


def test_check_accepts_matching_collectives() -> None:
    graphs = job(*[[collective(1)]] * 2)
    matching, faults = check_matching(graphs, {})
    assert matching == match_ranks(graphs, {})
    assert faults.total == 0
