"""Sections of a run's page on traffic: sessions, uplinks, congestion, ports, flows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from bokeh.models import HBar, Image, Quad, Range1d, Step

from chakram.collectives.ops import CollectiveOp
from chakram.records.row_layout import PORT_FIELDS, QUEUE_PAIR_FIELDS, RecordRows
from chakram.report.page import Section
from chakram.report.run import traffic as run_traffic
from chakram.report.run.data import TIME_BINS, NicTraffic, RunData
from chakram.report.run.traffic import (
    congestion,
    nic_utilization,
    predicted_link_bytes,
    sessions,
    slowest_flows,
    uplinks,
)
from chakram.run_directory.reader import open_run
from tests.drawn_plots import (
    data_of,
    facts_in,
    legend_of,
    plots_in,
    renderers,
    tables_in,
)
from tests.made_runs import (
    COUNTED,
    EXPERIMENT,
    ODD_LINKS,
    changed_flows,
    made_run,
)
from tests.run_directories import STARTED, begin
from tests.small_run import row_of, small_rows

if TYPE_CHECKING:
    from pathlib import Path

    from chakram.run_directory.reader import RunResults

END_NS = 3_750_000
"""Rank 0 is done with its fourth iteration of 1 ms after 750 us of it."""
HEADER = 58
WIRE = 4 * (6 * (2**18 + 64 * HEADER) + 2**17 + 32 * HEADER)
"""What a rank sends of its all-reduce and all-to-all in four iterations."""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> RunResults:
    return made_run(tmp_path_factory.mktemp("runs"), links=ODD_LINKS)


@pytest.fixture
def data(results: RunResults) -> RunData:
    return RunData(results)


def axis() -> Range1d:
    return Range1d(0, END_NS)


# ---- sessions ------------------------------------------------------------------------


def test_a_session_has_its_payload_over_the_time_it_is_under_way(data: RunData) -> None:
    # 4.5 MiB of each in 1.2 ms, of rank 3 in 1.32 ms.
    table = tables_in(sessions(data))["Percentiles"]
    assert table.rows == (
        ("all_reduce", "4", "28.6Gbit/s", "31.5Gbit/s", "31.5Gbit/s", "0.9984", "1.1"),
        ("all_to_all", "4", "10.5Gbit/s", "10.5Gbit/s", "10.5Gbit/s", "1.0000", "1"),
        ("send_recv", "1", "10.5Gbit/s", "10.5Gbit/s", "10.5Gbit/s", "1.0000", "1"),
    )
    slow, middle, fast = data_of(plots_in(sessions(data))["sessions"].figure, HBar)
    bits = 3 * 6 * 2**18 * 8
    assert slow["name"] == ["all_reduce", "all_to_all", "send_recv"]
    assert slow["value"][0] == pytest.approx(bits / 1.32e-3)
    assert middle["value"][0] == fast["value"][0] == pytest.approx(bits / 1.2e-3)
    assert legend_of(plots_in(sessions(data))["sessions"].figure) == [
        "P01", "P50", "P99",
    ]  # fmt: skip


def test_without_flows_there_is_no_session(tmp_path: Path) -> None:
    data = RunData(made_run(tmp_path, iterations=(0,)))
    for section in (sessions(data), slowest_flows(data)):
        assert section.blocks == ()
        assert section.text == "no flow of a measured iteration was recorded."


# ---- uplinks -------------------------------------------------------------------------


def test_bytes_of_uplinks_are_told_beside_what_paths_say(data: RunData) -> None:
    # Rank 1 over the first spine; rank 3, one half over each.
    predicted = predicted_link_bytes(data)
    assert predicted == {
        ("leaf0-spine0", "up"): WIRE,
        ("leaf0-spine1", "up"): 0,
        ("leaf1-spine0", "up"): WIRE // 2,
        ("leaf1-spine1", "up"): WIRE // 2,
        ("leaf0-spine0", "down"): WIRE // 2,
        ("leaf0-spine1", "down"): WIRE // 2,
        ("leaf1-spine0", "down"): WIRE,
        ("leaf1-spine1", "down"): 0,
    }
    section = uplinks(data)
    assert section.text == ""
    table = tables_in(section)["Balance"]
    # Busiest over mean: 400 of 200; (sum of x)^2 over n times the sum of x^2.
    assert table.rows == (
        ("up, measured (b)", "4", "800B", "2.000", "0.7273", "3"),
        ("up, predicted (m)", "4", "13.18MiB", "2.000", "0.6667", ""),
        # No link downward counts drops.
        ("down, measured (b)", "4", "400B", "3.000", "0.4000", "N/A"),
        ("down, predicted (m)", "4", "13.18MiB", "2.000", "0.6667", ""),
    )
    measured, expected = data_of(plots_in(section)["uplinks"].figure, HBar)
    # Away from hosts first, the busiest on top.
    assert measured["name"] == [
        *("leaf0-spine0 up", "leaf1-spine1 up", "leaf0-spine1 up", "leaf1-spine0 up"),
        *("leaf0-spine1 down", "leaf0-spine0 down"),
        *("leaf1-spine0 down", "leaf1-spine1 down"),
    ]
    assert measured["value"] == [400, 200, 100, 100, 300, 100, 0, 0]
    assert expected["value"][:2] == [WIRE, WIRE // 2]
    assert "left out" not in plots_in(section)["uplinks"].caption


def test_of_many_uplinks_the_busiest_and_the_idlest_are_drawn(
    data: RunData, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_traffic, "_LINKS_SHOWN", (2, 1))
    plot = plots_in(uplinks(data))["uplinks"]
    measured = data_of(plot.figure, HBar)[0]
    assert measured["value"] == [400, 200, 100, 300, 100, 0]
    assert plot.caption.endswith(
        "For each direction, the 2 busiest and the 1 least busy links are drawn; "
        "2 others are left out."
    )
    monkeypatch.setattr(run_traffic, "_LINKS_SHOWN", (3, 1))
    plot = plots_in(uplinks(data))["uplinks"]
    assert len(data_of(plot.figure, HBar)[0]["value"]) == 8
    assert "left out" not in plot.caption


def test_without_paths_nothing_is_predicted(tmp_path: Path) -> None:
    no_paths = made_run(tmp_path, links=ODD_LINKS, ending={"messages": None})
    data = RunData(no_paths)
    assert predicted_link_bytes(data) is None
    section = uplinks(data)
    assert section.text == "The paths of flows are unknown."
    assert len(tables_in(section)["Balance"].rows) == 2
    assert len(data_of(plots_in(section)["uplinks"].figure, HBar)) == 1


@pytest.mark.parametrize(
    ("links", "why"),
    [
        ((), "the links of this fabric are not counted."),
        (ODD_LINKS[-1:], "no link between switches was counted."),
    ],
)
def test_without_uplinks_that_is_said(tmp_path: Path, links: Any, why: str) -> None:
    section = uplinks(RunData(made_run(tmp_path, iterations=(), links=links)))
    assert (section.text, section.blocks) == (why, ())


# ---- congestion ----------------------------------------------------------------------


def test_marks_and_repeats_are_spread_over_what_counted_them(data: RunData) -> None:
    section = congestion(data, axis())
    plot = plots_in(section)["congestion"]
    marked, again = data_of(plot.figure, Step)
    assert legend_of(plot.figure)[:2] == [
        "CE: packets received with a congestion mark", "retransmitted",
    ]  # fmt: skip
    # Two packets each of four shares of an all-reduce and an all-to-all, and of two of
    # a message, in four iterations; and 1, 2 and 3 of four senders.
    assert sum(marked["y"]) == pytest.approx(80, abs=0.2)
    assert sum(again["y"]) == pytest.approx(24, abs=0.1)
    assert len(marked["x"]) == TIME_BINS
    assert marked["x"][1] == END_NS / TIME_BINS
    # The all-to-all of the second iteration: 1.6 to 1.7 ms.
    at = np.array(again["x"])
    inside = (at >= 1.59e6) & (at <= 1.7e6)
    assert sum(np.array(again["y"])[inside]) == pytest.approx(4, abs=0.05)
    assert plot.caption.startswith("There are no samples: counts are spread evenly")
    assert plot.caption.endswith(" None: CNP.")
    assert plot.figure.title.text == "Packets in 9.38us"
    table = tables_in(section)["Of measured iterations"]
    # 1680 packets in each of three iterations.
    assert table.rows == (("5,040", "60", "1.190 %", "24", "0.476 %"),)


def test_what_queue_pairs_have_counted_is_of_the_whole_run(
    results: RunResults, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "traffic", lambda: COUNTED)
    section = congestion(RunData(results), axis())
    (facts,) = (
        table
        for table in tables_in(section).values()
        if table.header[0] == "data packets"
    )
    assert facts.title == "Of the whole run, warm-up included"
    assert facts.rows == (("6,720", "80", "1.190 %", "30", "0.446 %"),)


def test_bars_above_the_curves_say_what_was_under_way(data: RunData) -> None:
    plot = plots_in(congestion(data, axis()))["congestion"].figure
    bands = data_of(plot, Quad)
    # What took most time first: all-reduces.
    assert bands[0]["left"] == [200_000, 1_200_000, 2_200_000, 3_200_000]
    assert bands[0]["right"] == [600_000, 1_600_000, 2_640_000, 3_680_000]
    assert bands[1]["left"][0] == 600_000
    assert legend_of(plot)[2:] == [
        f"{op} in progress" for op in ("all_reduce", "all_to_all", "send_recv")
    ]


def test_of_many_kinds_four_have_bars(
    results: RunResults, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = results.measurements()
    records = list(measured.collectives)
    ops = [
        CollectiveOp(name) for name in ("all_gather", "broadcast", "reduce", "gather")
    ]
    made = [
        record._replace(identity=replace(record.identity, op=op))
        for record, op in zip(records, ops, strict=False)
    ]
    changed = replace(measured, collectives=[*records, *made])
    monkeypatch.setattr(results, "measurements", lambda: changed)
    plot = plots_in(congestion(RunData(results), axis()))["congestion"].figure
    assert len(renderers(plot, Quad)) == 4


def test_samples_of_queue_pairs_are_taken_where_there_are_some(tmp_path: Path) -> None:
    directory = begin(tmp_path, experiment=EXPERIMENT)
    for iteration in range(4):
        directory.add(small_rows(iteration, retransmitted=iteration))
    rows = RecordRows()
    for time_ns, cnp, again in ((1_000_000, 3, 0), (2_000_000, 3, 10)):
        rows.queue_pairs.extend(
            row_of(
                QUEUE_PAIR_FIELDS, time_ns=time_ns, rank=1, peer=2, qpn=0x101,
                cnp_rx=cnp, data_frames_retransmitted=again,
            )
        )  # fmt: skip
    directory.add(rows)
    directory.finish(ended=STARTED)
    section = congestion(RunData(open_run(directory.path)), axis())
    plot = plots_in(section)["congestion"]
    assert plot.caption.startswith("From samples of queue pairs.")
    assert plot.caption.endswith(" None: CE.")
    cnp, again = data_of(plot.figure, Step)
    # From the start of the first rank to the first sample, and between the two.
    at = np.array(cnp["x"])
    assert sum(np.array(cnp["y"])[at < 1_000_000]) == pytest.approx(3, abs=0.1)
    assert sum(cnp["y"]) == pytest.approx(3, abs=0.1)
    between = (at > 990_000) & (at < 2_000_000)
    assert sum(np.array(again["y"])[between]) == pytest.approx(10, abs=0.1)


def test_a_run_without_marks_or_repeats_says_so(tmp_path: Path) -> None:
    data = RunData(made_run(tmp_path, iterations=(0,)))
    section = congestion(data, axis())
    # Nothing was measured: the warm-up alone.
    assert (section.text, section.blocks) == ("no flow was recorded.", ())
    empty = RunData(made_run(tmp_path / "b", iterations=()))
    assert congestion(empty, axis()).text == "no rank completed an iteration."


def test_only_what_happened_is_drawn(
    results: RunResults, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = results.measurements()
    quiet = [each._replace(ce=0, retransmitted=0) for each in measured.collectives]
    changed = replace(measured, collectives=quiet)
    monkeypatch.setattr(results, "measurements", lambda: changed)
    data = RunData(results)
    plot = plots_in(congestion(data, axis()))["congestion"]
    assert len(data_of(plot.figure, Step)) == 1
    assert plot.caption.endswith(" None: CE, CNP.")
    data.flows = changed_flows(data, retransmitted=0)
    section = congestion(data, axis())
    assert "congestion" not in plots_in(section)
    assert section.text.startswith("No packet was marked or retransmitted")
    row = tables_in(section)["Of measured iterations"].rows[0]
    assert row == ("5,040", "0", "0.000 %", "0", "0.000 %")


# ---- queues and links ----------------------------------------------------------------


def test_links_that_did_anything_odd_are_listed_those_with_most_first(
    data: RunData,
) -> None:
    section = congestion(data, axis())
    table = tables_in(section)[
        "Links that dropped, marked, were paused or were down (b)"
    ]
    assert table.rows == (
        (
            *("leaf0-spine0 up", "leaf0:up0", "3", "1,234", "N/A"),
            *("N/A", "9us", "400B"),
        ),
        ("leaf1-spine0 up", "leaf1:up0", "N/A", "N/A", "2", "7us", "N/A", "100B"),
        ("h0-leaf0 up", "h0:eth0", "1", "N/A", "N/A", "N/A", "N/A", "4.883KiB"),
    )
    facts = facts_in(section)
    assert facts["PFC pauses over time"] == (
        "2 pause frames were counted, but not sampled"
    )
    assert "its links were not sampled" in facts["depths of queues over time"]


@pytest.mark.parametrize(
    ("pauses", "text"),
    [
        (0, "no port received a pause frame"),
        (None, "they are not counted on this fabric"),
    ],
)
def test_without_pauses_that_is_said(
    tmp_path: Path, pauses: int | None, text: str
) -> None:
    links = [replace(ODD_LINKS[1], pauses=pauses)]
    data = RunData(made_run(tmp_path, links=links))
    section = congestion(data, axis())
    assert facts_in(section)["PFC pauses over time"] == text
    assert len(tables_in(section)) == 1


def test_ports_that_rested_are_drawn_from_their_samples(tmp_path: Path) -> None:
    directory = begin(tmp_path, experiment=EXPERIMENT)
    for iteration in range(4):
        directory.add(small_rows(iteration))
    rows = RecordRows()
    for port in (0, 2):
        for time_ns, paused_ns in ((1_875_000, 0), (END_NS, port * 468_750)):
            rows.ports.extend(
                row_of(PORT_FIELDS, time_ns=time_ns, port=port, paused_ns=paused_ns)
            )
    directory.add(rows)
    directory.finish(ended=STARTED)
    plot = plots_in(congestion(RunData(open_run(directory.path)), axis()))["pauses"]
    assert plot.caption == "Ports that received pause frames (c)."
    (rested,) = data_of(plot.figure, Step)
    # Half of the second half.
    assert rested["y"][TIME_BINS // 2 - 2] == 0
    assert rested["y"][-1] == pytest.approx(50, abs=0.1)
    assert rested["x"][-1] == pytest.approx(END_NS * (1 - 1 / TIME_BINS))
    assert [
        each.tooltips for each in plot.figure.tools if hasattr(each, "tooltips")
    ] == [[("h2", "@y")]]


# ---- ports ---------------------------------------------------------------------------


def test_ports_are_as_busy_as_the_wire_bytes_of_their_flows(data: RunData) -> None:
    nics = data.nics
    assert isinstance(nics, NicTraffic)
    assert nics.hosts == ("h0", "h1", "h2", "h3")
    assert not nics.is_sampled
    capacity = 10**9 / 8e9 * nics.bin_ns
    message = 4 * (2**16 + 16 * HEADER)
    assert nics.transmit.sum(axis=1) * capacity == pytest.approx(
        [WIRE + message, WIRE, WIRE, WIRE]
    )
    assert nics.receive.sum(axis=1) * capacity == pytest.approx(
        [WIRE, WIRE + message, WIRE, WIRE]
    )
    section = nic_utilization(data, axis())
    mean = 100 * 8 * (4 * WIRE + message) / 4 / END_NS
    assert f"transmit {mean:.1f} %, receive {mean:.1f} % of the rate" in section.text
    assert "Ports have no samples" in section.text
    assert section.observed == "(c), (m)"
    assert list(plots_in(section)) == ["nic-transmit", "nic-receive"]


def test_samples_of_ports_are_taken_where_there_are_some(tmp_path: Path) -> None:
    directory = begin(tmp_path, experiment=EXPERIMENT)
    directory.add(small_rows(0))
    rows = RecordRows()
    for time_ns, sent, got in ((375_000, 1000, 0), (750_000, 3000, 500)):
        rows.ports.extend(
            row_of(PORT_FIELDS, time_ns=time_ns, port=1, tx_bytes=sent, rx_bytes=got)
        )
    directory.add(rows)
    directory.finish(ended=STARTED)
    data = RunData(open_run(directory.path))
    nics = data.nics
    assert isinstance(nics, NicTraffic)
    assert nics.is_sampled
    capacity = 10**9 / 8e9 * nics.bin_ns
    sent = nics.transmit * capacity
    assert sent.sum(axis=1) == pytest.approx([0, 3000, 0, 0])
    assert sent[1, : TIME_BINS // 2].sum() == pytest.approx(1000, rel=0.01)
    assert (nics.receive * capacity)[1, TIME_BINS // 2 :].sum() == pytest.approx(500)
    section = nic_utilization(data, Range1d(0, data.end_ns))
    assert section.observed == "(c)"
    assert section.text.endswith("all packets, acknowledgments included.")


def made_nics(data: RunData, shares: Any) -> Section:
    hosts = tuple(f"h{number}" for number in range(len(shares)))
    shares = np.array(shares, float)
    data.nics = NicTraffic(
        hosts=hosts, transmit=shares, receive=0 * shares, bin_ns=1, is_sampled=True
    )
    return nic_utilization(data, axis())


def image_of(section: Section, name: str) -> Any:
    (drawn,) = data_of(plots_in(section)[name].figure, Image)
    return drawn["image"][0]


@pytest.mark.parametrize(
    ("count", "height", "figures"),
    [(1, 146, 2), (8, 258, 2), (15, 370, 2), (16, 386, 4), (17, 266, 4), (99, 420, 4)],
)
def test_figures_of_ports_grow_with_them(
    data: RunData, count: int, height: int, figures: int
) -> None:
    section = made_nics(data, [[0.5, 0.25]] * count)
    plots = plots_in(section)
    assert plots["nic-transmit"].figure.height == height
    assert len(plots) == figures
    assert "transmit 37.5 %, receive 0.0 %" in section.text


def test_of_sixteen_ports_and_more_it_is_told_how_many_are_how_busy(
    data: RunData,
) -> None:
    # Of 16 ports 12 are idle, 3 in [50, 55) %, one at more than all.
    section = made_nics(data, [[0.0]] * 12 + [[0.5], [0.52], [0.549], [1.3]])
    image = image_of(section, "nics-by-transmit")
    assert image.shape == (20, 1)
    assert {int(at): int(image[at, 0]) for at in np.flatnonzero(image[:, 0])} == {
        0: 75,
        10: 19,
        19: 6,
    }
    figure = plots_in(section)["nics-by-transmit"].figure
    assert figure.y_range.end == 100


@pytest.mark.parametrize(
    ("count", "rows", "first"),
    [(128, 128, [0, 1]), (129, 65, [0.5, 2.5]), (257, 86, [1, 4])],
)
def test_of_very_many_ports_a_row_is_the_mean_of_neighbors(
    data: RunData, count: int, rows: int, first: list[float]
) -> None:
    section = made_nics(data, [[0.02 * number] for number in range(count)])
    image = image_of(section, "nic-transmit")
    assert image.shape == (rows, 1)
    assert image[:2, 0].tolist() == [round(2 * each) for each in first]
    # The last one has fewer.
    assert image[-1, 0] == min(255, round(2 * (count - 1)))
    assert section.text.endswith("Each row is the mean of neighboring ports.") == (
        count > 128
    )
    named = plots_in(section)["nic-transmit"].figure.yaxis[0].major_label_overrides
    assert named[0] == ("h0" if count == 128 else "h0 ...")


# ---- flows ---------------------------------------------------------------------------


def test_the_flows_with_the_largest_slowdown_are_listed_first(data: RunData) -> None:
    (table,) = tables_in(slowest_flows(data)).values()
    assert len(table.rows) == 20
    # 100 us over 2^17 / 8 ns, as also of the message: in the order of their times.
    assert table.rows[2] == (
        "1 > 0", "all_to_all of ep0 #0", "leaf0:up0 spine0:down1", "1", "128KiB",
        "100us", "6.1", "10.5Gbit/s", "no limit", "1", "0",
    )  # fmt: skip
    assert [row[:2] for row in table.rows[:2]] == [
        ("0 > 1", "all_to_all of ep0 #0"), ("0 > 1", "send_recv of p2p:0>1 #0"),
    ]  # fmt: skip
    assert [row[2] for row in table.rows[:2]] == ["one switch"] * 2
    slow = [float(row[6]) for row in table.rows]
    assert slow == sorted(slow, reverse=True)
    # Then rank 3's last steps: 66.67 and 80 or 40 us over 32.768.
    assert slow[15:18] == [4.48, 3.26, 2.03]
    assert table.note.startswith("Ordered by slowdown: ")


def test_without_bounds_the_longest_flows_are_listed(tmp_path: Path) -> None:
    made = made_run(tmp_path, ending={"flow_bound": None, "messages": None})
    (table,) = tables_in(slowest_flows(RunData(made))).values()
    assert table.note.startswith(
        "Ordered by completion time, because no flow has a bound."
    )
    assert [row[5] for row in table.rows[:4]] == ["147us", "107us", "100us", "100us"]
    assert {row[6] for row in table.rows} == {"N/A"}
    assert {row[2] for row in table.rows} == {"N/A"}


def test_rates_of_flows_are_those_of_the_fabric_that_is_not_stretched(
    tmp_path: Path,
) -> None:
    made = made_run(tmp_path, dilation=10)
    data = RunData(made)
    data.flows = changed_flows(data, rate_at_start_bps=25_000_000)
    (table,) = tables_in(slowest_flows(data)).values()
    assert {row[8] for row in table.rows} == {"250Mbit/s"}
    assert table.rows[2][5] == "10us"
    assert table.rows[2][7] == "105Gbit/s"
