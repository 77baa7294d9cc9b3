"""The page of a trace set, and its document, of traces made by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from bokeh.models import Rect, Step

from chakram.chakra.summary.distribution import distribution
from chakram.chakra.trace_warning import TraceWarning, WarningKind
from chakram.report.blocks import Table
from chakram.report.page import Plot, Section
from chakram.report.trace import document as document_module
from chakram.report.trace import page as trace_page
from chakram.report.trace.document import trace_document
from chakram.report.trace.tables import (
    communication_table,
    distributions_table,
    groups_table,
    operations_table,
    trace_facts,
)
from tests.drawn_plots import data_of, facts_in, legend_of, sections_of, tables_in
from tests.made_graphs import collective, receive, send
from tests.unit.report.trace.test_tables import made, pair

if TYPE_CHECKING:
    from chakram.chakra.sets.trace_set import TraceSet
    from chakram.chakra.summary.summary import TraceSummary

Made = tuple["TraceSet", "TraceSummary"]


@pytest.fixture(scope="module")
def two() -> Made:
    """Return two ranks with three collectives, and a message from 0 to 1."""
    return made(
        [*pair("1"), send(4, 1, size=1024)],
        [*pair("1"), receive(4, 0, size=1024, after=(1,))],
        purposes={},
        g1=(0, 1),
    )


def page_of(traces: Any, summary: Any, unit: int | None = None) -> dict[str, Any]:
    """Return what a page is made of; sections by title."""
    taken: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            trace_page.page, "render_page", lambda **page: taken.update(page) or ""
        )
        trace_page.trace_page(traces, summary, bytes_per_element=unit)
    taken["sections"] = sections_of(taken["groups"])
    return taken


def figures(section: Section) -> dict[str, Plot]:
    return {
        str(block.figure.title.text): block
        for block in section.blocks
        if isinstance(block, Plot)
    }


def table_of(section: Section) -> Table:
    (table,) = tables_in(section).values()
    return table


def test_a_page_is_called_like_the_last_part_of_its_path(two: Made) -> None:
    traces, summary = two
    page = page_of(replace(traces, name="folder/of/mine"), summary)
    assert page["title"] == "Trace set mine"
    assert list(page["sections"]) == [
        *("Communication", "Sizes of collectives", "Traffic between ranks"),
        *("Process groups", "Operations of each rank", "Times and dependencies"),
        "Trace set",
    ]
    answer = page["answer"]
    assert answer.verdict == (
        "2 ranks send 15KiB in one iteration, 53 % of it by all_reduce, 2 ranks."
    )
    assert [tile.value for tile in answer.tiles] == ["2", "8", "15KiB", "2", "1"]
    assert answer.points[0] == ("rank 0 to 1: 8KiB", "53.33 %")
    assert facts_in(page["sections"]["Trace set"])["ranks"] == "2"


def test_communication_is_drawn_as_it_is_listed(two: Made) -> None:
    page = page_of(*two, unit=2)
    section = page["sections"]["Communication"]
    assert [row[:9] for row in table_of(section).rows] == [
        *(
            ("all_reduce", "2", "1", "4", "2KiB", "2KiB", "4096", "8KiB", "8KiB"),
            ("all_gather", "2", "1", "2", "3KiB", "3KiB", "3072", "6KiB", "6KiB"),
            ("send", "", "", "1", "1KiB", "1KiB", "512", "1KiB", "1KiB"),
            ("receive", "", "", "1", "1KiB", "1KiB", "512", "1KiB", "0B"),
        )
    ]
    bars = page["answer"].bars
    assert bars.series == ["contributed", "sent", "on the wire"]
    # Each packet has 78 bytes more: one each, of 2 KiB or less.
    assert bars.rows == [
        ("all_reduce, 2 ranks", [8192, 8192, 8192 + 4 * 78]),
        ("all_gather, 2 ranks", [6144, 6144, 6144 + 2 * 78]),
        ("send", [1024, 1024, 1024 + 78]),
        ("receive", [1024, 0, 0]),
    ]


def test_a_group_that_is_not_defined_is_told() -> None:
    rows = [collective(1, size=2048, group="7")]
    traces, summary = made(rows, rows, purposes={})
    ((name, _),) = page_of(traces, summary)["answer"].bars.rows
    assert name == "all_reduce, group not defined"
    assert groups_table(traces, summary).rows == (
        ("7", "not defined", "2 all_reduce", "", "0B"),
    )
    assert communication_table(summary, bytes_per_element=None).rows[0][1:3] == (
        *("", "1"),
    )


def test_the_matrix_says_who_sends_to_whom(two: Made) -> None:
    section = page_of(*two)["sections"]["Traffic between ranks"]
    matrix, messages = figures(section).values()
    (data,) = data_of(matrix.figure, Rect)
    assert (data["src"], data["dst"]) == ([0, 1], [1, 0])
    # Half of all collectives, and the message.
    assert data["value"] == [7 * 1024 + 1024, 7 * 1024]
    (sizes,) = data_of(messages.figure, Step)
    assert sizes["x"] == [1024, 1024, 2048, 3072]
    assert messages.caption == (
        "7 messages of all ranks; half of them have up to 2KiB, the largest has 3KiB."
    )
    assert table_of(section).rows == (
        ("0", "1", "8KiB", "53.33 %"), ("1", "0", "7KiB", "46.67 %"),
    )  # fmt: skip


def test_what_a_set_does_not_have_is_left_out() -> None:
    traces, summary = made([], [], purposes={})
    found = page_of(traces, summary)["sections"]
    for title in ("Communication", "Sizes of collectives", "Traffic between ranks"):
        assert title not in found
    assert list(figures(found["Times and dependencies"])) == []


def test_durations_and_dependencies_are_drawn(two: Made) -> None:
    traces, summary = two
    durations = distribution([1000, 1000, 3000])
    assert durations is not None
    timed = replace(summary, durations={"compute": durations})
    section = page_of(traces, timed)["sections"]["Times and dependencies"]
    first, second = figures(section).items()
    assert first[0] == "Durations of nodes"
    assert first[1].caption == "3 of 8 nodes state a duration."
    (step,) = data_of(first[1].figure, Step)
    assert step["text"][1:] == ["1us: 66.67 % of 3", "3us: 100 % of 3"]
    assert second[0] == "Dependencies of nodes"
    waits, waited = data_of(second[1].figure, Step)
    # Seven nodes wait for none, one for one.
    assert waits["y"] == waited["y"] == [0, 87.5, 100]
    assert legend_of(second[1].figure) == ["dependencies", "dependents"]
    assert table_of(section).rows == (
        ("duration of compute", "3", "1us", "1us", "3us", "3us", "3us", "3us"),
        ("size of a message", "7", "1KiB", "2KiB", *("3KiB",) * 4),
        ("dependencies of a node", "8", "0", "0", "1", "1", "1", "1"),
        ("dependents of a node", "8", "0", "0", "1", "1", "1", "1"),
    )
    assert len(distributions_table(summary).rows) == 3


def test_warnings_of_a_kind_are_one_banner(two: Made) -> None:
    lost = replace(two[1], traffic=replace(two[1].traffic, unplaced=3))
    kinds = WarningKind.NO_SIZE, WarningKind.COLLECTIVE_BODY
    warnings = (
        TraceWarning(kinds[0], 0, "w.0, node 1", "has no size"),
        TraceWarning(kinds[1], 0, "w.0, node 2", "is a collective and a body"),
        TraceWarning(kinds[0], 1, "w.1, node 1", "has no size", count=4),
    )
    page = page_of(replace(two[0], warnings=warnings), lost)
    assert page_of(*two)["warnings"] == []
    assert page["warnings"] == [
        "3 nodes do not name their destination, so they are not in the traffic. See "
        "chakram trace lint.",
        f"w.0, node 1: has no size [{kinds[0]}: 5 times in 2 ranks]",
        f"w.0, node 2: is a collective and a body [{kinds[1]}]",
    ]


def test_ranks_that_are_alike_share_a_row() -> None:
    one, other = ([collective(1, size=2048, group=group)] for group in "12")
    _, summary = made(one, one, other, other, [], purposes={}, g1=(0, 1), g2=(2, 3))
    rows = operations_table(summary.per_rank).rows
    assert [row[0] for row in rows] == ["0-3", "4"]
    # AllReduce stands behind GeMM, Attn, ElemWise, Others and P2P.
    assert [row[6] for row in rows] == ["1", "0"]


def test_columns_that_nobody_needs_are_left_out(two: Made) -> None:
    rank = two[1].per_rank[0]
    plain = operations_table([rank]).header
    memory = operations_table([replace(rank, memory=3), rank])
    passed = operations_table([replace(rank, passed=2)])
    assert "memory" not in plain
    assert "pass" not in plain
    assert [row[memory.header.index("memory")] for row in memory.rows] == ["3", "0"]
    assert passed.rows[0][passed.header.index("pass")] == "2"
    assert "pass: nodes without effect" in passed.note
    assert "pass:" not in memory.note
    other = replace(rank, communication={**rank.communication, "gather": 5})
    table = operations_table([other, replace(rank, duration_ns=2000)])
    assert table.rows[0][table.header.index("gather")] == "5"
    assert table.rows[1][table.header.index("gather")] == "0"
    at = table.header.index("durations")
    assert [row[at] for row in table.rows] == ["-", "2us"]


def test_facts_tell_computation_and_where_it_is(two: Made) -> None:
    traces, summary = two
    first, second = summary.per_rank
    slots = {f"stream {number}": 1000 * (number + 1) for number in range(9)}
    busy = replace(
        summary,
        per_rank=(
            replace(first, slots_ns=slots, num_ops=3 * 10**9),
            replace(second, slots_ns={"stream 0": 99_000}, num_ops=10**9),
        ),
    )
    facts = dict(trace_facts(traces, busy, bytes_per_element=4).rows)
    assert facts["computation"] == "4e+09 floating-point operations on all ranks"
    # Over both ranks, the longest first; one more than are named.
    assert facts["compute slots of all ranks"] == (
        "stream 0 100us, stream 8 9us, stream 7 8us, stream 6 7us, stream 5 6us, "
        "stream 4 5us, stream 3 4us, stream 2 3us, 1 more"
    )
    assert facts["stored sizes"] == "units of 4 bytes"
    assert facts["nodes of all ranks"] == "6 collective, 1 send, 1 receive"
    assert facts["dependencies"] == "1; 7 nodes have no dependency, 7 have no dependent"
    for unit in (None, 1):
        facts = dict(trace_facts(traces, summary, bytes_per_element=unit).rows)
        assert "stored sizes" not in facts
        assert facts["compute slots of all ranks"] == "none"


def test_collectives_of_a_group_are_counted_as_such(two: Made) -> None:
    traces, summary = two
    (row,) = groups_table(traces, summary).rows
    assert row == ("1", "0, 1", "1 all_gather, 2 all_reduce", "2", "14KiB")
    (group,) = summary.groups
    odd = replace(summary, groups=(replace(group, nodes={"all_reduce": 3}),))
    (row,) = groups_table(traces, odd).rows
    assert row[2] == "3 all_reduce (nodes)"


def test_the_document_has_the_numbers_of_the_page(two: Made) -> None:
    found = trace_document(*two, bytes_per_element=2)
    assert (found["ranks"], found["nodes"], found["bytes_per_element"]) == (2, 8, 2)
    assert found["sent_bytes"] == [8192, 7168]
    assert found["matrix"] == [[0, 8192], [7168, 0]]
    assert found["largest_pairs"] == [
        {"src": 0, "dst": 1, "bytes": 8192}, {"src": 1, "dst": 0, "bytes": 7168},
    ]  # fmt: skip
    assert [each["stored"] for each in found["communication"]] == [
        4096, 3072, 512, 512,
    ]  # fmt: skip
    plain = trace_document(*two, bytes_per_element=None)
    assert plain["bytes_per_element"] == 1
    assert plain["communication"][0]["stored"] == 8192


@pytest.mark.parametrize(("limit", "there"), [(2, True), (1, False)])
def test_a_large_matrix_is_left_out(
    two: Made, monkeypatch: pytest.MonkeyPatch, limit: int, there: bool
) -> None:
    monkeypatch.setattr(document_module, "_MATRIX_RANKS", limit)
    found = trace_document(*two, bytes_per_element=None)
    assert (found["matrix"] is not None) == there
    unknown = replace(two[1], largest_pairs=None, messages=None)
    found = trace_document(two[0], unknown, bytes_per_element=None)
    assert found["largest_pairs"] is found["messages"] is None
