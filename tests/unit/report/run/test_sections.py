"""Sections of a run's page: what was measured, and what its time was lost by."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from bokeh.models import (
    BoxAnnotation,
    HBar,
    Line,
    LogAxis,
    Range1d,
    Segment,
    Span,
    Step,
    VBar,
)

from chakram.analysis.critical_path import Operation, Part, Piece
from chakram.analysis.critical_path import Path as CriticalPath
from chakram.analysis.lost_time_causes import Cause, Why
from chakram.report.page import Plot, Section
from chakram.report.palette import ORANGE, RED
from chakram.report.run import page as run_page
from chakram.report.run import timeline
from chakram.report.run.bandwidth_and_fct import bandwidth, completion_times
from chakram.report.run.causes_and_faults import why_section
from chakram.report.run.data import RunData
from chakram.report.run.flows import Flows
from chakram.report.run.page import comparability, warnings_of
from chakram.report.run.rows import report_rows
from chakram.report.run.sections import (
    against_simulation,
    collectives,
    device,
    generator,
    iterations,
    rank_times,
)
from chakram.report.run.timeline import gantt
from chakram.run_directory.manifest import ClockReading
from chakram.summary.generator_advice import KeepingUp
from chakram.summary.generator_health import GeneratorSummary
from chakram.summary.run_summary import Verification
from tests.drawn_plots import (
    data_of,
    facts_in,
    laid_over,
    legend_of,
    plots_in,
    sections_of,
    tables_in,
)
from tests.made_runs import ODD_LINKS, changed_flows, made_run
from tests.run_directories import EP1, WORLD

if TYPE_CHECKING:
    from pathlib import Path

    from chakram.run_directory.reader import RunResults


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> RunResults:
    return made_run(tmp_path_factory.mktemp("runs"), links=ODD_LINKS)


@pytest.fixture
def data(results: RunResults) -> RunData:
    return RunData(results)


# ---- device and headline -------------------------------------------------------------


def test_the_device_is_drawn_with_the_bytes_of_its_links(data: RunData) -> None:
    section = device(data)
    facts = facts_in(section)
    assert facts["topology"] == "4 hosts, 4 switches, 4 links between switches"
    assert facts["device under test"] == facts["transport"] == "N/A"
    plot = plots_in(section)["topology"]
    assert plot.caption == "Bytes of links (b), whole run, warm-up included."
    texts = {text for each in data_of(plot.figure) for text in each.get("text", ())}
    # Both directions: 400 and 100.
    assert "leaf0-spine0 (leaf0 to spine0): 1Gbit/s, 500B" in texts
    assert "h0-leaf0 (h0 to leaf0): 1Gbit/s, 4.883KiB" in texts


def test_a_device_without_a_topology_says_why_none_is_drawn(tmp_path: Path) -> None:
    section = device(RunData(made_run(tmp_path, iterations=(), experiment={})))
    assert section.text == ("No topology is drawn: the run does not record its fabric.")
    assert plots_in(section) == {}
    assert "topology" not in facts_in(section)


def test_without_counters_the_caption_says_so(tmp_path: Path) -> None:
    plot = plots_in(device(RunData(made_run(tmp_path, iterations=()))))["topology"]
    assert plot.caption == "The bytes of its links were not counted."


@pytest.mark.parametrize(("hosts", "told"), [(64, False), (65, True)])
def test_of_many_hosts_the_caption_says_that_a_box_stands_for_all(
    tmp_path: Path, hosts: int, told: bool
) -> None:
    experiment = {
        "fabric": {
            "kind": "namespaces",
            "topology": {"single_switch": {"hosts": hosts}},
            "links": {"host": {"rate": "1Gbit"}},
        }
    }
    data = RunData(made_run(tmp_path, iterations=(), experiment=experiment))
    caption = plots_in(device(data))["topology"].caption
    assert ("A box represents all hosts of a switch" in caption) == told


def test_bandwidths_and_iterations_are_those_of_the_run(data: RunData) -> None:
    rows = report_rows(data)
    # 3 x 440, 6 x 100 and 3 x 50 us.
    assert tables_in(collectives(data, rows))["Bandwidth"].rows == (
        (
            *("all_reduce, ring", "1MiB", "1.5MiB", "4", "1.5", "3", "440us", "7.4"),
            *("3.575", "28.6Gbit/s", "2859.8", "3.277", "63.8"),
        ),
        (
            *("all_to_all, direct", "256KiB", "128KiB", "2", "0.5", "6", "100us"),
            *("0.0", "1.311", "10.5Gbit/s", "1048.6", "1.311", "29.0"),
        ),
        (
            *("send_recv", "64KiB", "64KiB", "2", "1", "3", "50us", "0.0"),
            *("1.311", "10.5Gbit/s", "1048.6", "1.311", "7.2"),
        ),
    )
    facts = facts_in(iterations(data, rows))
    assert facts["JCT of moe"] == (
        "750us per iteration, mean of 3 (P50 750us, P99 750us, CV 0.0 %)"
    )
    # Rank 0: 8 x (1.5 x 1 MiB + 0.5 x 256 KiB + 64 KiB) bits at 1 Gbit/s.
    assert facts["JCT ratio"] == (
        "0.052: over Roofline_seq (m) = compute 200us + 8 S algo_factor / B_acc 14.2ms"
    )
    assert facts["line rate, B_acc (f)"].startswith("1Gbit/s per accelerator")


def test_rows_that_waited_for_the_generator_are_marked(data: RunData) -> None:
    first, *others = report_rows(data)
    plain = tables_in(collectives(data, (first, *others)))["Bandwidth"]
    assert "*" not in plain.note
    waited = replace(first, row=replace(first.row, generator_bound=2))
    table = tables_in(collectives(data, (waited, *others)))["Bandwidth"]
    assert [row[0] for row in table.rows][:2] == [
        "all_reduce, ring *", "all_to_all, direct",
    ]  # fmt: skip
    assert "*: includes some of the 2 collectives that waited" in table.note


def test_a_stretched_run_has_the_numbers_of_the_one_that_is_not(
    tmp_path: Path,
) -> None:
    data = RunData(made_run(tmp_path, dilation=10))
    rows = report_rows(data)
    assert [each.row.time_ns for each in rows] == [44_000, 10_000, 5_000]
    # Of 480, 440, 440 and 400 us, a tenth: 1.5 x 8 bits x 1 MiB over that.
    assert rows[0].percentiles_bps == pytest.approx(
        [12 * 2**20 / each for each in (48e-6, 44e-6, 40e-6, 40e-6)]
    )
    assert rows[0].line_rate_bps == 10**10
    assert rows[0].share == pytest.approx(12 * 2**20 / 44e-6 / 1e10)
    (roofline,) = data.rooflines
    assert roofline.iteration_ns == 75_000
    assert roofline.compute_ns == 20_000
    assert roofline.communication_ns == pytest.approx(1_415_577.6)


def test_a_run_of_nothing_has_no_results(tmp_path: Path) -> None:
    data = RunData(made_run(tmp_path, iterations=()))
    assert iterations(data, ()).text == "nothing was measured."
    assert collectives(data, ()).text == "none was measured."
    assert rank_times(data).text == "no rank completed a measured iteration."
    assert gantt(data, Range1d()).text == "no rank completed a measured iteration."
    none = bandwidth(data, ())
    assert none.text == "no collective with a bus bandwidth was measured."
    none = completion_times(data)
    assert none.text == "no flow of a measured iteration was recorded."
    assert against_simulation(data, ()).text.startswith("the run has no predictions")


# ---- generator -----------------------------------------------------------------------


def with_summary(data: RunData, **changes: Any) -> RunData:
    data.summary = replace(data.summary, **changes)
    return data


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"verdicts": 0}, "no collective was judged"),
        (
            {"verdicts": 7, "generator_bound": 0},
            "kept up with all 7 collectives: none waited for it for more than 5 % of "
            "its time",
        ),
        (
            {"verdicts": 7, "generator_bound": 2, "generator_wait_share": 0.04},
            "kept up: 2 of 7 collectives waited for the generator for more than 5 % of "
            "their time; those of one size for at most 4.0 % of their total time",
        ),
        (
            {"verdicts": 7, "generator_bound": 2, "generator_wait_share": 0.06},
            "GENERATOR-BOUND: 2 of 7 collectives waited for the generator for more "
            "than 5 % of their time; those of one size for at most 6.0 % of their "
            "total time",
        ),
    ],
)
def test_the_verdict_says_whether_the_generator_kept_up(
    data: RunData, changes: dict[str, Any], text: str
) -> None:
    facts = facts_in(generator(with_summary(data, **changes)))
    assert facts["generator"] == text
    assert facts["status"] == "complete"
    assert facts["clock bound"] == "0: one clock for all ranks"
    assert facts["samples lost"] == "0"
    assert "would have kept up with" not in facts


@pytest.mark.parametrize(
    ("slowdown", "dilation", "text"),
    [
        (1, 7, "a slower fabric would not help: check what else ran on this machine"),
        (2.5, None, "rates lower by a factor of 2.5"),
        (2.5, 25, "rates lower by a factor of 2.5, or a dilation of 25"),
        (None, 3, "a dilation of 3"),
        (None, None, "not known"),
    ],
)
def test_a_generator_that_was_too_slow_gets_a_remedy(
    data: RunData, slowdown: float | None, dilation: int | None, text: str
) -> None:
    found = KeepingUp(
        slowdown=slowdown, dilation=dilation, port_rate_bps=None, idle_share=None
    )
    facts = facts_in(generator(with_summary(data, keeping_up=found)))
    assert facts["would have kept up with"] == text


def test_health_of_the_generator_is_told_with_its_unknowns(data: RunData) -> None:
    health = GeneratorSummary(
        pacing_error_p99_ns=2000, generator_lag_p99_ns=None, generator_lag_max_ns=5e6,
        round_trip_p50_ns=1000, round_trip_p99_ns=3000, busy_share=0.25,
        cpu_share=None, saturated=(), beyond=frozenset(), socket_drops=3,
        send_retries=4,
    )  # fmt: skip
    facts = facts_in(generator(with_summary(data, generator=health)))
    assert facts["generator health"] == (
        "pacing error P99 2us, lag of its loop P99 N/A (max 5ms), busiest process busy "
        "25.0 %; round trips P50 1us, P99 3us (upper bounds)"
    )
    assert facts["drops at the generator"] == ("3 packets on arrival; 4 failed sends")


def test_clocks_and_payloads_are_told(tmp_path: Path) -> None:
    clocks = {"a": ClockReading(offset_ns=5, uncertainty_ns=3000)}
    data = RunData(made_run(tmp_path, clocks=clocks, dilation=2))
    told = Verification(every=1, packets=99, wrong_payloads=2)
    facts = replace(data.summary.facts, verification=told)
    found = facts_in(generator(with_summary(data, facts=facts)))
    assert found["payload"] == "99 packets checked, 2 wrong"
    assert found["clock bound"] == ("offsets of the agents' clocks are known to 1.5us")


def test_virtual_time_has_no_generator(tmp_path: Path) -> None:
    data = RunData(made_run(tmp_path, world="simulate"))
    facts = facts_in(generator(data))
    assert facts["generator"] == "none: virtual time does not depend on this machine"
    assert facts["clock bound"] == "0: one virtual clock"
    # And what was seen was seen in virtual time.
    assert data.seen("b", "c", "m") == "(v), (m)"
    section = against_simulation(data, report_rows(data))
    assert section.text == "this run is itself a simulation."


# ---- ranks and collectives -----------------------------------------------------------


def test_the_time_of_ranks_is_drawn_in_parts(data: RunData) -> None:
    plot = plots_in(rank_times(data))["rank-times"]
    compute, exposed, idle = data_of(plot.figure, VBar)
    assert compute["x"] == ["0", "1", "2", "3"]
    # Of 750 and 700 us.
    assert compute["top"] == pytest.approx([100 * 200 / 750] * 2 + [100 * 2 / 7] * 2)
    assert exposed["top"] == pytest.approx([100] * 4)
    assert compute["text"] == ["200us"] * 4
    assert exposed["text"] == ["550us", "550us", "500us", "500us"]
    assert idle["bottom"] == idle["top"]
    assert plot.caption == (
        "Mean over the measured iterations. All ranks together: compute 27.6 %, "
        "exposed communication 72.4 %, idle 0.0 %; 0.0 % of communication is hidden "
        "behind compute."
    )


def made_ranks(data: RunData, count: int, jobs: int = 1) -> Plot:
    example = data.summary.ranks[0]
    ranks = tuple(
        replace(
            example, rank=number, job=f"j{number % jobs}", iteration_ns=100.0,
            compute_ns=20.0, exposed_ns=50.0, idle_ns=30.0, communication_ns=80.0,
        )
        for number in range(count)
    )  # fmt: skip
    return plots_in(rank_times(with_summary(data, ranks=ranks)))["rank-times"]


@pytest.mark.parametrize(("count", "drawn"), [(256, 256), (257, 129), (600, 200)])
def test_of_many_ranks_some_are_drawn_evenly_chosen(
    data: RunData, count: int, drawn: int
) -> None:
    plot = made_ranks(data, count)
    (names, *_) = (each["x"] for each in data_of(plot.figure, VBar))
    assert len(names) == drawn
    assert names[1] == str(-(-count // 256))
    told = f" {drawn} of {count} ranks are drawn, evenly chosen; the shares include"
    assert (told in plot.caption) == (drawn < count)
    # 80 of communication, 50 of it exposed.
    assert "37.5 % of communication is hidden behind compute." in plot.caption
    assert "compute 20.0 %, exposed communication 50.0 %, idle 30.0 %" in plot.caption


def test_ranks_of_several_jobs_are_told_apart(data: RunData) -> None:
    (names, *_) = (each["x"] for each in data_of(made_ranks(data, 3, 2).figure, VBar))
    assert names == ["j0:0", "j1:1", "j0:2"]


def test_rows_of_several_jobs_are_told_apart(data: RunData) -> None:
    row = report_rows(data)[0]
    two = [row, replace(row, row=replace(row.row, job="other"))]
    for table in tables_in(collectives(data, two)).values():
        assert [each[0] for each in table.rows] == [
            "moe: all_reduce, ring", "other: all_reduce, ring",
        ]  # fmt: skip


def test_a_long_table_is_cut(data: RunData) -> None:
    rows = report_rows(data)[:1] * 66
    table = tables_in(collectives(data, rows))["Bandwidth"]
    assert len(table.rows) == 64
    assert table.note.startswith("2 more rows are left out. S as in nccl-tests")


def test_measured_times_stand_beside_models(data: RunData) -> None:
    rows = report_rows(data)
    table = tables_in(collectives(data, rows))["Times and models"]
    assert table.header[3:] == (
        *("time", "simulated (m)", "deviation % (m)", "alone (m)", "% of alone (m)"),
        *("bound (m)", "% of bound (m)"),
    )
    assert table.rows == (
        (
            *("all_reduce, ring", "1MiB", "4", "440us", "350us", "+25.7", "360us"),
            *("81.8", "320us", "72.7"),
        ),
        (
            *("all_to_all, direct", "256KiB", "2", "100us", "N/A", "N/A", "90us"),
            *("90.0", "80us", "80.0"),
        ),
        ("send_recv", "64KiB", "2", "50us", *("N/A",) * 6),
    )
    plot = plots_in(against_simulation(data, rows))["simulated"]
    measured, simulated = data_of(plot.figure, Line)
    assert (measured["x"], measured["y"]) == ([350_000], [440_000])
    assert measured["text"] == ["all_reduce, ring 1MiB: 440us"]
    assert (simulated["x"], simulated["y"]) == ([350_000], [350_000])


def test_without_models_only_bandwidths_are_told(tmp_path: Path) -> None:
    ending = {"predictions": {}, "bound": {}, "alone": {}}
    data = RunData(made_run(tmp_path, ending=ending))
    assert list(tables_in(collectives(data, report_rows(data)))) == ["Bandwidth"]


def test_points_stand_by_their_simulated_time(tmp_path: Path) -> None:
    times = {WORLD: 350_000, EP1: 200_000}
    ending = {"predictions": {"simulate": times}, "bound": {}, "alone": {}}
    data = RunData(made_run(tmp_path, ending=ending))
    plot = plots_in(against_simulation(data, report_rows(data)))["simulated"]
    measured, _ = data_of(plot.figure, Line)
    assert measured["x"] == [200_000, 350_000]
    assert measured["y"] == [100_000, 440_000]
    assert measured["text"] == [
        "all_to_all, direct 256KiB: 100us", "all_reduce, ring 1MiB: 440us",
    ]  # fmt: skip


# ---- curves --------------------------------------------------------------------------


def test_bus_bandwidth_has_the_line_rate_and_its_payload_as_levels(
    data: RunData,
) -> None:
    section = bandwidth(data, report_rows(data))
    plot = plots_in(section)["busbw"].figure
    assert legend_of(plot) == [
        "all_reduce, ring, N=4", "all_to_all, direct, N=2", "send_recv, N=2",
    ]  # fmt: skip
    reduce, *_ = data_of(plot, Line)
    assert reduce["x"] == [2**20]
    assert reduce["y"] == pytest.approx([12 * 2**20 / 440e-6])
    assert reduce["low"] == pytest.approx([12 * 2**20 / 480e-6])
    assert reduce["high"] == pytest.approx([12 * 2**20 / 400e-6])
    assert reduce["text"] == ["1MiB: 28.6Gbit/s, n=3"]
    levels = [each.location for each in laid_over(plot, Span)]
    # 4096 of 4154 bytes are payload.
    assert levels == pytest.approx([1e9, 1e9 * 4096 / 4154])
    texts = [each.text for each in plot.center if hasattr(each, "text")]
    assert texts == ["- - line rate 1Gbit/s", "··· payload 98.6 %"]


def test_points_of_a_line_stand_by_size(data: RunData) -> None:
    first = report_rows(data)[0]
    rows = [
        replace(first, row=replace(first.row, size_bytes=size, samples=size // 1024))
        for size in (4096, 1024, 2048)
    ]
    (line,) = data_of(plots_in(bandwidth(data, rows))["busbw"].figure, Line)
    assert line["x"] == [1024, 2048, 4096]
    assert [text.rpartition("=")[2] for text in line["text"]] == ["1", "2", "4"]


def test_rates_that_differ_are_no_level(data: RunData) -> None:
    first = report_rows(data)[0]
    rows = [first, replace(first, line_rate_bps=2e9)]
    plot = plots_in(bandwidth(data, rows))["busbw"].figure
    assert not [each for each in plot.center if hasattr(each, "text")]


def test_completion_times_are_distributions_that_begin_at_nothing(
    data: RunData,
) -> None:
    section = completion_times(data)
    plot = plots_in(section)["fct-cdf"]
    reduce, other, _ = data_of(plot.figure, Step)
    # Five steps of 66,666 ns, the last of 66,670, and of rank 3 later by 40 and 80 us.
    assert reduce["x"] == [66_666, 66_666, 66_670, 106_670, 146_670]
    assert reduce["y"] == pytest.approx(
        [0, 100 * 60 / 72, 100 * 70 / 72, 100 * 71 / 72, 100]
    )
    assert reduce["text"][0] == "66.7us: 0 % of 72"
    assert reduce["text"][1] == "66.7us: 83.33 % of 72"
    assert other["x"] == [100_000, 100_000]
    assert plot.caption.startswith("87 flows, drawn as 9 points")
    assert section.text == ""
    table = tables_in(section)["Percentiles of all flows"]
    assert table.rows == (
        (
            *("all_reduce", "72", "66.7us", "66.7us", "147us", "147us", "147us"),
            *("2.03", "4.48"),
        ),
        ("all_to_all", "12", *("100us",) * 5, "6.1", "6.1"),
        ("send_recv", "3", *("50us",) * 5, "6.1", "6.1"),
    )


def test_slowdowns_are_told_by_size(data: RunData) -> None:
    plot = plots_in(completion_times(data))["slowdown"]
    middle, tail, largest = data_of(plot.figure, Line)
    assert legend_of(plot.figure) == ["P50", "P99", "largest"]
    assert middle["x"] == [2**16, 2**17, 2**18]
    fct = (50_000 / 2**13, 100_000 / 2**14)
    assert middle["y"] == pytest.approx([*fct, 66_666 / 2**15])
    assert tail["y"] == largest["y"] == pytest.approx([*fct, 146_670 / 2**15])
    assert largest["text"][2] == "256KiB: 4.476"
    assert plot.caption.endswith("sizes are shown as they occur.")


def test_many_sizes_are_joined_to_powers_of_two(data: RunData) -> None:
    flows = data.flows
    columns = {name: flows[name] for name in flows.row(0)}
    sizes = 1025 + np.arange(len(flows))
    data.measured = Flows({**columns, "bytes": sizes}, flows.names)
    plot = plots_in(completion_times(data))["slowdown"]
    (middle, *_) = data_of(plot.figure, Line)
    assert middle["x"] == [2048]
    assert plot.caption.endswith(
        "sizes are shown as they occur, rounded up to powers of two."
    )


def test_without_bounds_slowdowns_are_left_out(data: RunData) -> None:
    data.measured = changed_flows(data, bound_ns=-1)
    section = completion_times(data)
    assert list(plots_in(section)) == ["fct-cdf"]
    assert section.text == "Slowdowns are left out: no flow has a bound."
    table = tables_in(section)["Percentiles of all flows"]
    assert {row[-2:] for row in table.rows} == {("N/A", "N/A")}


# ---- why -----------------------------------------------------------------------------


def operation(rank: int, kind: str, start: int, end: int, **more: Any) -> Operation:
    fields = dict.fromkeys(Operation._fields)
    fields |= {"rank": rank, "operation": 1, "kind": kind, "name": kind}
    fields |= {"start_ns": start, "end_ns": end, "ready_ns": start, **more}
    return Operation(**fields)  # type: ignore[arg-type] # by name


PATH = CriticalPath(
    job="moe",
    iteration=2,
    pieces=(
        Piece(Part.COMPUTE, 2_000_000, 2_200_000, 0),
        Piece(Part.TRANSFER, 2_200_000, 2_600_000, 3),
    ),
)


def why_of_two(**changes: Any) -> Why:
    values: dict[str, Any] = {
        "iterations": 2,
        "time_ns": 1_000_000,
        "parts_ns": {Part.COMPUTE: 100_000, Part.TRANSFER: 880_000, Part.QUEUE: 0,
                     Part.UNKNOWN: 20_000},
        "causes": (
            Cause(cause="slow link", place="leaf0-spine1", lost_ns=300_000, share=0.3),
            Cause(cause="straggler", place="rank 3", lost_ns=50_000, share=0.05),
        ),
        "by_rank": tuple((rank, 1000 * (9 - rank)) for rank in range(7)),
        "by_collective": (("all_reduce", 350_000),),
        "path": PATH,
    }  # fmt: skip
    return Why(**{**values, **changes})


def test_causes_are_told_as_means_and_shares(data: RunData) -> None:
    data.why = why_of_two()
    section = why_section(data)
    facts = facts_in(section)
    assert facts["critical path"] == "500us, mean of 2"
    assert facts["lost on it"] == "175us, 35.0 %"
    assert facts["unknown"] == "2.0 % of the path"
    tables = tables_in(section)
    assert tables["Causes"].rows == (
        ("slow link", "leaf0-spine1", "150us", "30.0"),
        ("straggler", "rank 3", "25us", "5.0"),
    )
    assert tables["Causes"].note == ""
    # Cause and place are texts, the others numbers.
    assert tables["Causes"].left == 2
    ranks = tables["Lost time by rank"].rows
    assert ranks[0] == ("0", "4.5us", "0.9")
    assert len(ranks) == 5
    (parts,) = data_of(plots_in(section)["path-parts"].figure, HBar)
    # The largest first, and none that took no time.
    assert parts["name"] == ["transfer", "compute", "unknown"]
    assert parts["value"] == [440_000, 50_000, 10_000]


def test_ranks_of_several_jobs_have_their_names(data: RunData) -> None:
    data.why = why_of_two(jobs=("a", "b"), by_rank=(("a rank 3", 9000),))
    section = why_section(data)
    assert facts_in(section)["critical path"] == "500us, mean of 2 of jobs a, b"
    (row,) = tables_in(section)["Lost time by rank"].rows
    assert row == ("a rank 3", "4.5us", "0.9")


def test_many_causes_are_counted_and_ten_are_listed(data: RunData) -> None:
    cause = why_of_two().causes[1]
    data.why = why_of_two(causes=(cause,) * 12, by_rank=())
    tables = tables_in(why_section(data))
    assert len(tables["Causes"].rows) == 10
    assert tables["Causes"].note == "2 more rows are left out."
    assert "Lost time by rank" not in tables


def test_stretched_causes_are_told_as_of_the_fabric(tmp_path: Path) -> None:
    data = RunData(made_run(tmp_path, dilation=10))
    data.why = why_of_two()
    section = why_section(data)
    assert facts_in(section)["critical path"] == "50us, mean of 2"
    (parts,) = data_of(plots_in(section)["path-parts"].figure, HBar)
    assert parts["value"] == [44_000, 5_000, 1_000]


@pytest.mark.parametrize(
    ("why", "text"),
    [
        ("it has no paths", "it has no paths."),
        (why_of_two(time_ns=0), "the critical paths take no time."),
    ],
)
def test_without_paths_that_is_said(data: RunData, why: Any, text: str) -> None:
    data.why = why
    assert (why_section(data).text, why_section(data).blocks) == (text, ())


# ---- timeline ------------------------------------------------------------------------


def test_the_slowest_iteration_is_drawn_from_its_flows(data: RunData) -> None:
    data.ranks = [
        replace(each, end_ns=each.end_ns + 100_000 * (each.iteration == 2))
        for each in data.ranks
    ]
    axis = Range1d()
    section = gantt(data, axis)
    # Iterations begin at whole ms, and the second was made 100 us longer.
    assert (axis.start, axis.end) == (2_000_000, 2_850_000)
    plot = plots_in(section)["gantt"]
    assert plot.caption.startswith(
        "Measured iteration 2, the slowest; each bar: from the first message that a "
        "rank posted"
    )
    assert section.observed == "(c)"
    assert plot.figure.y_range.factors == ["3", "2", "1", "0"]
    assert legend_of(plot.figure) == ["all_reduce", "all_to_all", "send_recv"]
    reduce, _, message = data_of(plot.figure, HBar)
    bars = {
        row[0]: (left, right, text)
        for row, left, right, text in zip(
            *(reduce[name] for name in ("y", "left", "right", "text")), strict=True
        )
    }
    assert bars["1"] == (
        2_200_000, 2_600_000, "rank 1, world #0: 400us, 1.5MiB sent",
    )  # fmt: skip
    # Rank 3 sends to rank 0, which is done with it.
    assert bars["0"][1] == bars["3"][1] == 2_640_000
    ends = dict(zip([y[0] for y in message["y"]], message["text"], strict=True))
    # It gets what was sent 500 ns after it was posted.
    assert ends == {
        "0": "rank 0, p2p:0>1 #0: 50us, 64KiB sent",
        "1": "rank 1, p2p:0>1 #0: 49.5us, 0B sent",
    }


def test_the_slowest_iteration_is_that_of_one_job(data: RunData) -> None:
    # The iterations of another job have the same numbers at other times.
    others = [
        replace(
            each,
            job="other",
            start_ns=each.start_ns + 10**9,
            end_ns=each.start_ns + 10**9 + 1000,
        )
        for each in data.ranks
    ]
    data.ranks = [*data.ranks, *others]
    data.whole_iterations = frozenset((each.job, each.iteration) for each in data.ranks)
    axis = Range1d()
    plot = plots_in(gantt(data, axis))["gantt"]
    assert axis.end - axis.start < 1_000_000
    assert plot.caption.startswith("Measured iteration 1, the slowest;")
    assert plot.caption.endswith(" Of job moe.")
    assert plot.figure.y_range.factors == ["3", "2", "1", "0"]


def test_the_critical_path_is_drawn_over_the_operations_of_its_iteration(
    data: RunData,
) -> None:
    data.why = why_of_two()
    data.operations = [
        operation(0, "compute", 2_000_000, 2_200_000),
        operation(3, "collective", 2_200_000, 2_600_000, group="world", k=0, name="ar"),
        operation(1, "collective", 2_200_000, 2_500_000, group="none", k=0),
    ]
    section = gantt(data, Range1d())
    plot = plots_in(section)["gantt"]
    assert section.observed == "(c), (m)"
    assert plot.caption == (
        "Measured iteration 2, the slowest; each bar: from its start on the rank to "
        "its end there. Of job moe. The red line is the critical path (m): what the "
        "end of the iteration had to wait for."
    )
    assert legend_of(plot.figure) == [
        "all_reduce", "collective", "compute", "critical path",
    ]  # fmt: skip
    reduce, other, compute = data_of(plot.figure, HBar)
    assert list(reduce["text"]) == ["rank 3, ar, world #0: 400us"]
    assert list(other["text"]) == ["rank 1, collective, none #0: 300us"]
    assert list(compute["text"]) == ["rank 0, compute: 200us"]
    assert (*compute["left"], *compute["right"]) == (2_000_000, 2_200_000)
    path, across = data_of(plot.figure, Segment)
    assert list(path["row"]) == ["0", "3"]
    assert list(path["text"]) == ["compute: 200us", "transfer: 400us"]
    assert (across["x"], across["y0"], across["y1"]) == ([2_200_000], ["0"], ["3"])


@pytest.mark.parametrize(("limit", "drawn"), [(2, ["0", "3"]), (3, ["0", "2", "3"])])
def test_of_many_ranks_those_on_the_path_are_drawn_first(
    data: RunData, monkeypatch: pytest.MonkeyPatch, limit: int, drawn: list[str]
) -> None:
    monkeypatch.setattr(timeline, "_RANKS_SHOWN", limit)
    data.why = why_of_two()
    data.operations = [
        operation(rank, "compute", 2_000_000, 2_200_000) for rank in range(4)
    ]
    plot = plots_in(gantt(data, Range1d()))["gantt"]
    assert plot.figure.y_range.factors == drawn[::-1]
    assert plot.caption.endswith(
        f" {limit} of 4 ranks are drawn, those on the path first, the others evenly "
        "chosen."
    )


def test_of_many_bars_the_longest_are_drawn(
    data: RunData, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeline, "_BARS_SHOWN", 3)
    data.why = why_of_two()
    data.operations = [
        operation(0, "compute", 2_000_000, 2_000_000 + 1000 * number)
        for number in range(1, 6)
    ]
    plot = plots_in(gantt(data, Range1d()))["gantt"]
    (bars,) = data_of(plot.figure, HBar)
    assert [right - 2_000_000 for right in bars["right"]] == [5000, 4000, 3000]
    assert plot.caption.endswith(" The 3 longest of 5 bars are drawn.")


# ---- what stands at the end ----------------------------------------------------------


def test_what_is_odd_is_a_warning(tmp_path: Path) -> None:
    preflight = {"findings": [{"verdict": "failed"}, {"what": "odd"}]}
    made = made_run(tmp_path, links=ODD_LINKS, preflight=preflight, banners=("LATE",))
    data = with_summary(RunData(made), unfinished=2)
    found = warnings_of(data)
    assert found[-5:] == [
        "2 collectives were not finished",
        "4 packets were dropped at links (b)",
        "24 packets were retransmitted (c)",
        "preflight: failed",
        "preflight: {'what': 'odd'}",
    ]
    assert "LATE" in found
    simulated = made_run(tmp_path / "s", links=ODD_LINKS, world="simulate")
    assert warnings_of(RunData(simulated))[-2:] == [
        "4 packets were dropped at links (v)",
        "24 packets were retransmitted (v)",
    ]


def test_a_run_without_oddities_has_no_warning(tmp_path: Path) -> None:
    data = with_summary(
        RunData(made_run(tmp_path, iterations=())), banners=(), unfinished=0
    )
    assert warnings_of(data) == []


def test_what_has_to_be_equal_is_told(tmp_path: Path) -> None:
    experiment: dict[str, Any] = {
        "jobs": [
            {"name": "moe", "placement": {"order": "in_turn", "ranks_per_port": 2}}
        ],
        "transport": {
            "source_ports": [5], "queue_pairs": {"per": "peer", "count": 2},
        },
    }  # fmt: skip
    traces = {"moe": {"trace": "t.et", "sha256": "0123456789abcdef"}}
    data = RunData(
        made_run(tmp_path, experiment=experiment, traces=traces, seed=7, dilation=3,
                 versions={"chakram": "1", "python": "3"})
    )  # fmt: skip
    rows = report_rows(data)
    facts = facts_in(comparability(data, rows))
    assert facts["N"] == "4 ranks"
    assert facts["placement"] == (
        "moe: order in_turn, pattern None, 2 per port, within hosts: None"
    )
    assert facts["B_acc"] == "3Gbit/s"
    assert facts["load balancing"] == (
        "UDP source ports [5], queue pairs per peer x 2, None; equal-cost paths by hash"
    )
    assert facts["world"] == "namespaces; dilation 3; sizes x 1"
    assert facts["traces"] == "moe: t.et (sha256 0123456789ab)"
    assert (facts["seed"], facts["versions"]) == ("7", "chakram 1, python 3")
    assert facts["collectives"].count(";") == 2
    experiment["jobs"][0]["placement"] |= {"first_port": 3, "ports": [0, "h4"]}
    experiment["fabric"] = {"switches": {"balancing": "random"}}
    other = RunData(made_run(tmp_path / "other", experiment=experiment))
    facts = facts_in(comparability(other, report_rows(other)))
    assert facts["placement"].endswith(", from port 3 on, of ports 0 h4")
    assert facts["load balancing"].endswith("; equal-cost paths by random")
    many = facts_in(comparability(data, rows[:1] * 14))["collectives"]
    assert many.count("all_reduce") == 12
    assert many.endswith("; and 2 more")
    assert "more" not in facts_in(comparability(data, rows[:1] * 12))["collectives"]


# ---- faults --------------------------------------------------------------------------


FAULTS = [
    {
        "fault": "down", "start_ns": 1_000_000.0, "end_ns": 1_500_000.0,
        "recovered_ns": 1_700_000.0, "packets": 1234,
    },
    {
        "fault": "loss", "start_ns": None, "end_ns": None, "recovered_ns": None,
        "packets": None,
    },
    {
        "fault": "for ever", "start_ns": -5.0, "end_ns": None, "recovered_ns": None,
        "packets": 0,
    },
    {
        "fault": "no end", "start_ns": None, "end_ns": None, "recovered_ns": 7.0,
        "packets": 1,
    },
]  # fmt: skip


def page_of(data: RunData) -> dict[str, Section]:
    """Return the sections of the page of a run by title, none of them rendered."""
    taken: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_page, "RunData", lambda results: data)
        patch.setattr(
            run_page.page, "render_page", lambda **page: taken.update(page) or ""
        )
        run_page.run_page(data.results)
    return sections_of(taken["groups"])


@pytest.fixture(scope="module")
def faulty(results: RunResults) -> dict[str, Section]:
    """Return the sections of a run with faults."""
    data = RunData(results)
    data.faults = FAULTS
    data.manifest = replace(
        data.manifest,
        injected={"drop": 3, "corrupt": 0},
        invalid={"icrc": 2, "psn": 0},
    )
    data.why = why_of_two(parts_ns={Part.REPAIR: 90_000}, path=None)
    return page_of(data)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Section]:
    """Return the sections of a run without."""
    return page_of(RunData(made_run(tmp_path_factory.mktemp("runs"))))


def test_faults_are_listed_with_their_times(faulty: dict[str, Section]) -> None:
    assert tables_in(faulty["Faults"])["Injected faults"].rows == (
        ("down", "1ms", "1.5ms", "200us", "1,234"),
        ("loss", "N/A", "N/A", "N/A", "N/A"),
        ("for ever", "0ns", "N/A", "N/A", "0"),
        ("no end", "N/A", "N/A", "N/A", "1"),
    )
    assert facts_in(faulty["Faults"]) == {
        "injected: drop": "3 packets",
        "rejected: icrc": "2 packets",
        "leaf0-spine0 up": "down for 9us",
        "recovery on the critical path": "45us of an iteration, mean (m)",
    }


@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("Congestion and retransmissions", "congestion"),
        ("NIC utilization", "nic-transmit"),
        ("Timeline of ranks", "gantt"),
    ],
)
def test_figures_over_time_are_shaded_where_there_were_faults(
    faulty: dict[str, Section], plain: dict[str, Section], title: str, name: str
) -> None:
    plot = plots_in(faulty[title])[name]
    assert plot.caption.endswith(
        "Shaded red: faults of links; orange: until traffic had recovered."
    )
    boxes = laid_over(plot.figure, BoxAnnotation)
    assert [(box.left, box.right, box.fill_color) for box in boxes] == [
        (1_000_000, 1_500_000, RED),
        # Without an end it lasts to that of the run.
        (-5, 3_750_000, RED),
        (1_500_000, 1_700_000, ORANGE),
    ]
    plot = plots_in(plain[title])[name]
    assert laid_over(plot.figure, BoxAnnotation) == []
    assert "Shaded" not in plot.caption


def test_what_is_not_over_time_has_no_shades(
    faulty: dict[str, Section], plain: dict[str, Section]
) -> None:
    plot = plots_in(faulty["Flow completion times"])["fct-cdf"]
    assert laid_over(plot.figure, BoxAnnotation) == []
    assert plain["Faults"].text == "none was injected."
    assert plain["Faults"].blocks == ()


def thousand(data: RunData, **columns: int) -> Flows:
    """Return 1000 flows of 1 to 1000 ns, of 1 KiB each, that need 1 ns at least."""
    flows = data.flows
    first = flows.row(0)
    made = {name: np.full(1000, value, np.int64) for name, value in first.items()}
    made |= {"bytes": np.full(1000, 1024), "bound_ns": np.ones(1000, np.int64)}
    made |= {name: np.full(1000, value, np.int64) for name, value in columns.items()}
    made["fct_ns"] = np.arange(1, 1001)
    return Flows(made, flows.names)


def test_percentiles_are_those_of_their_headings(data: RunData) -> None:
    data.measured = thousand(data)
    section = completion_times(data)
    (row,) = tables_in(section)["Percentiles of all flows"].rows
    assert row[1:] == (
        *("1,000", "500ns", "950ns", "990ns", "999ns", "1us", "500", "990"),
    )
    lines = data_of(plots_in(section)["slowdown"].figure, Line)
    assert [line["y"] for line in lines] == [[500], [990], [1000]]
    # Of 1000 points 200 and the 100 slowest.
    (step,) = data_of(plots_in(section)["fct-cdf"].figure, Step)
    assert list(step["x"])[-100:] == list(range(901, 1001))
    assert 250 < len(step["x"]) < 302


@pytest.mark.parametrize("columns", [{"bytes": 0}, {"bound_ns": 0}, {"bound_ns": -1}])
def test_flows_without_payload_or_bound_have_no_slowdown(
    data: RunData, columns: dict[str, int]
) -> None:
    data.measured = thousand(data, **columns)
    section = completion_times(data)
    assert list(plots_in(section)) == ["fct-cdf"]
    (row,) = tables_in(section)["Percentiles of all flows"].rows
    assert row[-2:] == ("N/A", "N/A")


def test_sizes_and_times_are_drawn_logarithmically(data: RunData) -> None:
    rows = report_rows(data)
    found = plots_in(bandwidth(data, rows)) | plots_in(completion_times(data))
    found |= plots_in(against_simulation(data, rows))
    scales = {
        name: tuple(isinstance(axis[0], LogAxis) for axis in (each.xaxis, each.yaxis))
        for name, each in ((name, plot.figure) for name, plot in found.items())
    }
    assert scales == {
        "busbw": (True, False),
        "fct-cdf": (True, False),
        "slowdown": (True, True),
        "simulated": (True, True),
    }


@pytest.mark.parametrize(
    "experiment", [{"jobs": [{"placement": "x"}]}, {"jobs": [3]}, {"jobs": 3}]
)
def test_damaged_sections_of_an_experiment_are_left_out(
    tmp_path: Path, experiment: dict[str, Any]
) -> None:
    data = RunData(made_run(tmp_path, experiment=experiment))
    section = comparability(data, ())
    assert section.title == "Comparability"
    assert section.blocks
