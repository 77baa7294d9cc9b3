"""What the tables of a trace set say in words."""

from __future__ import annotations

import pytest

from chakram.chakra.sets.trace_set import TraceSet
from chakram.chakra.summary.summary import summarize
from chakram.collectives.groups import ProcessGroup, world_group
from chakram.collectives.ops import CollectiveOp
from chakram.report.trace.tables import (
    dimension_words,
    group_names_text,
    groups_table,
    pairs_table,
    sizes_table,
    trace_facts,
)
from tests.made_graphs import Row, collective, job, receive, send

AG = CollectiveOp.ALL_GATHER


def made(*ranks: list[Row], purposes: dict[str, str], **members: tuple[int, ...]):
    groups = {
        name.lstrip("g"): ProcessGroup(name=name.lstrip("g"), ranks=ranks)
        for name, ranks in members.items()
    }
    traces = TraceSet(
        name="made",
        graphs=job(*ranks),
        groups={**groups, "world": world_group(len(ranks))},
        digest="d" * 64,
        warnings=(),
        producer="test",
        schema="1",
        purposes=purposes,
    )
    return traces, summarize(traces.graphs, traces.groups)


def pair(group: str) -> list[Row]:
    return [
        collective(1, size=2048, group=group),
        collective(2, size=2048, group=group),
        collective(3, AG, size=3072, group=group),
    ]


def test_groups_that_are_alike_share_the_rows_of_their_sizes() -> None:
    _, summary = made(
        pair("1"), pair("1"), pair("2"), pair("2"), purposes={}, g1=(0, 1), g2=(2, 3)
    )
    assert sizes_table(summary).rows == (
        ("all_reduce", "1, 2", "2", "2KiB", "2", "8KiB", "100.0 %", "#" * 12),
        ("all_gather", "1, 2", "2", "3KiB", "1", "6KiB", "100.0 %", "#" * 12),
    )


def test_sizes_that_differ_between_ranks_are_counted_in_nodes() -> None:
    one, other = (
        [collective(1, CollectiveOp.ALL_TO_ALL_V, size=size, group="1")]
        for size in (1024, 3072)
    )
    _, summary = made(one, other, purposes={}, g1=(0, 1))
    assert [row[3:6] for row in sizes_table(summary).rows] == [
        ("1KiB", "1 node", "1KiB"),
        ("3KiB", "1 node", "3KiB"),
    ]


def test_messages_have_sizes_but_no_group() -> None:
    _, summary = made(
        [send(1, 1, size=1024), send(2, 1, size=3072)],
        [receive(1, 0, size=1024), receive(2, 0, size=3072)],
        purposes={},
    )
    assert sizes_table(summary).rows == (
        ("send", "", "", "1KiB", "1", "1KiB", "25.0 %", "###........."),
        ("", "", "", "3KiB", "1", "3KiB", "75.0 %", "#########..."),
    )


def test_the_pairs_are_shown_with_their_share() -> None:
    _, summary = made(
        [send(1, 1, size=2048), send(2, 2, size=1024)],
        [send(1, 2, size=1024)],
        [],
        purposes={},
    )
    table = pairs_table(summary, 2)
    assert table.rows == (("0", "1", "2KiB", "50.00 %"), ("0", "2", "1KiB", "25.00 %"))
    assert table.note == "3 pairs send data, 1 more send as much as the last"
    assert pairs_table(made([], purposes={})[1], 2).rows == ()


def test_groups_that_nobody_uses_are_told() -> None:
    traces, summary = made(
        pair("3"), pair("3"), purposes={}, g1=(0,), g2=(1,), g3=(0, 1), gx=(1, 0)
    )
    facts = dict(trace_facts(traces, summary, bytes_per_element=None).rows)
    assert facts["process groups"] == (
        "4 defined; unused: 1, 2 (1 rank each), x (2 ranks each)"
    )
    assert "for" not in groups_table(traces, summary).header


@pytest.mark.parametrize(
    ("rows", "members", "text"),
    [
        (pair("1"), {"g1": (0, 1)}, "1 defined, all of them used"),
        (
            [*pair("1"), collective(9)],
            {"g1": (0, 1)},
            "1 defined (and all ranks together), all of them used",
        ),
        ([collective(1)], {}, "none defined: all ranks together"),
        ([], {}, "none defined"),
    ],
)
def test_the_number_of_groups_is_told(
    rows: list[Row], members: dict[str, tuple[int, ...]], text: str
) -> None:
    traces, summary = made(rows, rows, purposes={}, **members)
    facts = dict(trace_facts(traces, summary, bytes_per_element=None).rows)
    assert facts["process groups"] == text


def test_what_groups_are_for_stands_beside_them_and_below_in_words() -> None:
    traces, summary = made(pair("1"), pair("1"), purposes={"1": "tensor"}, g1=(0, 1))
    table = groups_table(traces, summary)
    assert table.header[:2] == ("group", "for")
    assert table.rows[0][:2] == ("1", "tensor")
    assert table.note.startswith("tensor: tensor parallelism: each rank has a part of")


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("tp[0:8]", ["tp"]),
        ("EXPERT_MODEL_PARALLEL_GROUP", ["expert"]),
        ("expert data", ["expert data"]),
        ("EXPERT_DP_3", ["expert dp"]),
        ("edp-3", ["edp"]),
        ("dp_cp", ["cp", "dp"]),
        ("EMBEDDING_GROUP", ["embedding"]),
        ("17", []),
        ("temp", []),
        ("default", []),
    ],
)
def test_labels_are_known_in_the_names_that_frameworks_give(
    name: str, labels: list[str]
) -> None:
    words = dimension_words([name])
    assert [part.partition(":")[0] for part in words.split("; ") if part] == labels


def test_names_of_groups_are_put_together() -> None:
    assert group_names_text(["1", "2", "3", "10"]) == "1-3, 10"
    assert group_names_text(["b", "a"]) == "b, a"
    assert group_names_text(list("abcdef")) == "a, b, c, d and 2 more"
