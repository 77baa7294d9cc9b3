"""What a run's page says of switches over time, of series made by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from bokeh.models import Range1d, Step

from chakram.records.row_layout import LINK_SAMPLE_FIELDS
from chakram.report.blocks import Facts, Table
from chakram.report.page import Plot, Section
from chakram.report.run import queues as run_queues
from chakram.report.run.data import RunData
from chakram.report.run.links_over_time import LinksOverTime
from chakram.report.run.queues import switch_blocks
from tests.drawn_plots import (
    data_of,
    facts_in,
    legend_of,
    plots_in,
    tables_in,
    tips_of,
)
from tests.made_runs import ODD_LINKS, link, made_run

if TYPE_CHECKING:
    from pathlib import Path

    from chakram.run_directory.reader import RunResults

END_NS = 4000


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> RunResults:
    return made_run(tmp_path_factory.mktemp("runs"), iterations=(0,), links=ODD_LINKS)


def series(
    queues: list[list[int]],
    *,
    marked: list[list[float]] | None = None,
    paused: list[list[float]] | None = None,
    classes: tuple[int, ...] | None = None,
) -> LinksOverTime:
    none = np.zeros((len(queues), len(queues[0])))
    return LinksOverTime(
        ports=tuple(f"s{number}:0" for number in range(len(queues))),
        classes=classes or (3,) * len(queues),
        queue_max_bytes=np.array(queues),
        marked=none if marked is None else np.array(marked),
        paused=none if paused is None else np.array(paused),
        bin_ns=1000.0,
        counted=frozenset(LINK_SAMPLE_FIELDS),
    )


def shown(results: RunResults, found: LinksOverTime | str) -> Section:
    """Return what is shown, as a section."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_queues, "links_over_time", lambda data: found)
        blocks = tuple(switch_blocks(RunData(results), Range1d(0, END_NS), {}))
    assert all(isinstance(block, Plot | Facts | Table) for block in blocks)
    return Section(title="t", blocks=blocks)


def test_the_longest_queues_are_drawn_the_longest_first(results: RunResults) -> None:
    queues: list[list[int]] = [[0, 5, 0, 0], [0, 0, 0, 0], [9, 0, 0, 0], [0, 5, 7, 0]]
    section = shown(results, series(queues))
    plot = plots_in(section)["queues"]
    assert [tip for (tip,) in tips_of(plot.figure)] == [
        ("s2:0", "@y"), ("s3:0", "@y"), ("s0:0", "@y"),
    ]  # fmt: skip
    first, *_ = data_of(plot.figure, Step)
    # Each column begins where the one before ends.
    assert list(first["x"]) == [0, 1000, 2000, 3000]
    assert list(first["y"]) == [9, 0, 0, 0]
    assert plot.caption == (
        "Packets waiting at ports (b): of 4 ports and classes, the 3 with the "
        "longest queues."
    )
    assert list(plots_in(section)) == ["queues"]
    assert "queues" not in facts_in(section)


def test_classes_are_named_where_there_are_several(results: RunResults) -> None:
    found = series([[1, 0], [2, 0]], classes=(0, 3))
    plot = plots_in(shown(results, found))["queues"].figure
    assert legend_of(plot) == ["s1:0 class 3", "s0:0 class 0"]


def test_of_many_ports_eight_are_drawn(results: RunResults) -> None:
    found = series([[number, 0] for number in range(1, 11)])
    plot = plots_in(shown(results, found))["queues"]
    assert len(legend_of(plot.figure)) == 8
    assert legend_of(plot.figure)[0] == "s9:0"
    assert "of 10 ports and classes, the 8 with the longest queues" in plot.caption


def test_marks_and_pauses_are_drawn_where_there_are_some(results: RunResults) -> None:
    found = series(
        [[1, 0], [0, 0]], marked=[[0, 3], [0, 0]], paused=[[0, 0], [0.25, 1]]
    )
    section = shown(results, found)
    assert list(plots_in(section)) == ["queues", "marks", "pauses"]
    (marks,) = data_of(plots_in(section)["marks"].figure, Step)
    assert list(marks["y"]) == [0, 3]
    pauses = plots_in(section)["pauses"]
    (rested,) = data_of(pauses.figure, Step)
    # In percent of the time.
    assert list(rested["y"]) == [25, 100]
    assert pauses.caption == "Ports that received pause frames (b)."
    assert tips_of(pauses.figure) == [[("s1:0", "@y")]]
    assert facts_in(section) == {}


def test_what_never_was_is_said(results: RunResults) -> None:
    section = shown(results, series([[0, 0]]))
    assert plots_in(section) == {}
    assert facts_in(section) == {
        "queues": "all queues were always empty",
        "PFC pauses over time": ("2 pause frames were counted, but not sampled"),
    }


def test_without_samples_the_reason_is_told(results: RunResults) -> None:
    section = shown(results, "nobody looked")
    assert facts_in(section)["depths of queues over time"] == "nobody looked"


@pytest.mark.parametrize(("count", "note"), [(24, False), (25, True)])
def test_many_odd_links_are_cut(tmp_path: Path, count: int, note: bool) -> None:
    links = [
        link(f"l{number:02}", "up", 1, drops=number + 1, port="p")
        for number in range(count)
    ]
    made = made_run(tmp_path, iterations=(0,), links=links)
    (table,) = tables_in(shown(made, "nobody looked")).values()
    assert len(table.rows) == 24
    # Those with most first.
    assert table.rows[0][0] == f"l{count - 1:02} up"
    assert table.note.startswith("1 more rows are left out.") == note


def test_stretched_times_of_links_are_those_that_are_not(tmp_path: Path) -> None:
    links = [link("a", "up", 1, paused_ns=8000, down_ns=6000)]
    made = made_run(tmp_path, iterations=(0,), links=links, dilation=2)
    (table,) = tables_in(shown(made, "nobody looked")).values()
    row: Any = table.rows[0]
    assert row == ("a up", "N/A", "N/A", "N/A", "N/A", "4us", "3us", "1B")


def test_links_that_did_nothing_odd_are_not_listed(tmp_path: Path) -> None:
    links = [link("a", "up", 5, drops=0, marked=0, pauses=0, paused_ns=0, down_ns=0)]
    made = made_run(tmp_path, iterations=(0,), links=links)
    section = shown(made, "nobody looked")
    assert tables_in(section) == {}
    assert facts_in(section)["PFC pauses over time"] == "no port received a pause frame"
