"""The page of a run in the sections of BMWG's drafts, of runs made by hand."""

from __future__ import annotations

from array import array
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from chakram.formats.ns3 import PauseEvent
from chakram.records.row_layout import LINK_SAMPLE_FIELDS
from chakram.report import bmwg_page
from chakram.report.bmwg_page import deviations
from chakram.report.run.data import RunData
from chakram.report.run.links_over_time import LinksOverTime
from chakram.report.run.rows import report_rows
from chakram.run_directory.reader import open_run
from tests.drawn_plots import facts_in, plots_in, sections_of, tables_in
from tests.made_runs import COUNTED, EXPERIMENT, ODD_LINKS, link, made_run
from tests.run_directories import STARTED, begin
from tests.small_run import row_of, small_plan, small_rows

if TYPE_CHECKING:
    from pathlib import Path

    from chakram.report.page import Section
    from chakram.run_directory.reader import RunResults

SECOND_NS = 10**9


def page_of(results: RunResults) -> dict[str, Any]:
    """Return what the page is made of; sections by title."""
    taken: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bmwg_page, "render_page", lambda **page: taken.update(page) or "")
        bmwg_page.bmwg_page(results)
    taken["sections"] = sections_of(taken["groups"])
    return taken


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> RunResults:
    return made_run(tmp_path_factory.mktemp("runs"), links=ODD_LINKS)


@pytest.fixture(scope="module")
def sections(results: RunResults) -> dict[str, Section]:
    found: dict[str, Section] = page_of(results)["sections"]
    return found


def test_the_sections_are_those_of_the_drafts(sections: dict[str, Section]) -> None:
    assert list(sections) == [
        "1. Identification of the device under test",
        "2. Topology",
        "3. Test configuration",
        "4. Host configuration",
        "5. Results",
        "Flow completion times",
        "6. Anomalies",
        "7. Repeatability",
        "8. Comparability",
        "Raw files",
    ]
    first = facts_in(sections["1. Identification of the device under test"])
    assert "device under test" in first
    assert list(plots_in(sections["2. Topology"])) == ["topology"]
    assert facts_in(sections["6. Anomalies"])["1"].startswith("4 packets were dropped")
    assert facts_in(sections["8. Comparability"])["N"] == "4 ranks"


def test_a_section_without_a_plot_has_its_facts(tmp_path: Path) -> None:
    made = made_run(tmp_path, iterations=(0,), experiment={})
    found = page_of(made)["sections"]
    (block,) = found["2. Topology"].blocks
    assert block.rows == ()
    assert found["2. Topology"].text.startswith("No topology is drawn")
    assert "Flow completion times" not in found


# ---- deviations ----------------------------------------------------------------------


def lasting(data: RunData, *, measured_ns: int, warmup_ns: int) -> RunData:
    """Return a run whose iterations last so long in all."""
    example = data.ranks[0]
    data.ranks = [
        replace(example, measured=False, start_ns=5, end_ns=5 + warmup_ns // 2),
        replace(example, measured=False, start_ns=9, end_ns=5 + warmup_ns),
        replace(example, measured=True, start_ns=7 + warmup_ns, end_ns=9 + warmup_ns),
        replace(
            example, measured=True, start_ns=8 + warmup_ns,
            end_ns=7 + warmup_ns + measured_ns,
        ),
    ]  # fmt: skip
    return data


@pytest.mark.parametrize(
    ("measured_ns", "warmup_ns", "told"),
    [
        (60 * SECOND_NS, 10 * SECOND_NS, []),
        (60 * SECOND_NS - 1, 10 * SECOND_NS, ["measured for 60s"]),
        (60 * SECOND_NS, 10 * SECOND_NS - 1, ["warm-up of 10s"]),
        (SECOND_NS, 0, ["measured for 1s", "warm-up of 0ns"]),
    ],
)
def test_trials_that_are_too_short_are_told(
    results: RunResults, measured_ns: int, warmup_ns: int, told: list[str]
) -> None:
    data = lasting(RunData(results), measured_ns=measured_ns, warmup_ns=warmup_ns)
    found = [has for _, has in deviations(data, ())]
    times = [has for has in found if has.startswith(("measured", "warm-up"))]
    assert times == told


def test_times_of_a_stretched_run_are_those_that_are_not(tmp_path: Path) -> None:
    data = RunData(made_run(tmp_path, dilation=10))
    found = dict(deviations(lasting(data, measured_ns=10**10, warmup_ns=10**9), ()))
    assert found["trial of at least 60 s"] == "measured for 1s"
    assert found["warm-up of at least 10 s"] == "warm-up of 100ms"
    assert found["real time"] == "stretched by 10; values are divided by it"


@pytest.mark.parametrize(("samples", "told"), [(99, True), (100, False)])
def test_too_few_iterations_are_told(
    results: RunResults, samples: int, told: bool
) -> None:
    data = RunData(results)
    rows = report_rows(data)
    rows = [
        replace(each, row=replace(each.row, samples=count))
        for each, count in zip(rows, (500, samples, 101), strict=True)
    ]
    found = dict(deviations(data, rows))
    text = f"{samples} collectives in the row with the fewest"
    assert (found.get("at least 100 iterations") == text) == told
    assert found["matrix of sizes and N"] == "3 sizes in the replayed trace"


@pytest.mark.parametrize(
    ("fields", "name", "text"),
    [
        ({}, "a device under test", "the kernel of this machine (namespaces)"),
        ({"world": "external"}, "a device under test", None),
        (
            {"world": "simulate"},
            "a device under test",
            "simulated switches, in virtual time",
        ),
        ({}, "real time", None),
        ({"size_scale": "1/64"}, "sizes of the workload", "scaled by 1/64"),
        ({}, "sizes of the workload", None),
        ({"world": "simulate"}, "time stamps to 100 ns, rates to 0.1 %", None),
        (
            {},
            "time stamps to 100 ns, rates to 0.1 %",
            "software: clocks 0: one clock for all ranks; pacing error P99 N/A",
        ),
    ],
)
def test_what_a_run_is_not_is_told(
    tmp_path: Path, fields: dict[str, Any], name: str, text: str | None
) -> None:
    data = RunData(made_run(tmp_path, iterations=(0, 0), **fields))
    assert dict(deviations(data, ())).get(name) == text


# ---- configuration and hosts ---------------------------------------------------------


def test_configuration_and_host_are_those_of_the_manifest(tmp_path: Path) -> None:
    made = made_run(
        tmp_path,
        iterations=(),
        traces={"moe": {"trace": "t", "producer": "pytorch"}},
        jobs={"moe": {"order": "recorded times"}, "b": {"order": "data"}},
        host={
            "cpu_model": "X1", "usable_cores": 8, "memory_bytes": 2**34,
            "rmem_max_bytes": 5, "wmem_max_bytes": 6,
        },
        versions={"chakram": "1.2", "kernel": "6.1", "python": "3.12"},
    )  # fmt: skip
    found = page_of(made)["sections"]
    facts = facts_in(found["3. Test configuration"])
    assert facts["workload"] == "moe: t, produced by pytorch"
    assert facts["iterations"] == "3 after 1 of warm-up"
    assert facts["driven by"] == "the trace's data, recorded times"
    assert facts["generator"] == "Chakram 1.2, software"
    facts = facts_in(found["4. Host configuration"])
    assert facts["CPU"] == "X1, 8 cores"
    assert facts["memory"] == "16GiB"
    assert facts["socket buffers"] == "receive at most 5 B, send at most 6 B"
    assert (facts["kernel"], facts["Python"]) == ("6.1", "3.12")
    assert found["4. Host configuration"].text == "Data of the controller's machine."


def test_unknown_properties_of_a_host_are_blank(tmp_path: Path) -> None:
    # Only Linux tells them.
    host = {"usable_cores": 8, "rmem_max_bytes": None}
    found = page_of(made_run(tmp_path, iterations=(), host=host))["sections"]
    facts = facts_in(found["4. Host configuration"])
    assert facts["CPU"] == "N/A, 8 cores"
    assert facts["memory"] == "N/A"
    assert facts["socket buffers"] == "receive at most N/A, send at most N/A"


def test_hosts_of_agents_are_not_those_of_the_controller(tmp_path: Path) -> None:
    made = made_run(tmp_path, iterations=(), world="external")
    section = page_of(made)["sections"]["4. Host configuration"]
    assert section.text == (
        "Data of the controller's machine; hosts of agents are not recorded."
    )


def test_rates_are_of_what_queue_pairs_counted_in_the_whole_run(
    results: RunResults, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "traffic", lambda: COUNTED)
    facts = facts_in(page_of(results)["sections"]["5. Results"])
    # In 3.75 ms.
    assert facts["retransmissions"] == "30 packets, 8e+03 per second"


# ---- results -------------------------------------------------------------------------


def test_results_are_those_of_the_run(sections: dict[str, Section]) -> None:
    section = sections["5. Results"]
    facts = facts_in(section)
    assert facts["JCT of moe"] == "750us per iteration"
    assert facts["JCT ratio"] == (
        "0.052 (compute 200us, communication at line rate 14.2ms)"
    )
    assert facts["overlap fraction of moe"] == "0.0 %"
    assert facts["ECN ratio"] == "1.190 % of data packets"
    assert facts["retransmissions"] == "24 packets of measured iterations"
    assert facts["drops"] == "N/A"
    assert facts["link balance"] == "MMR 2.667, JFI 0.5625 (b)"
    assert facts["B_acc"] == "1Gbit/s of layer 2"
    assert facts["PFC pause events, queues"].startswith(
        "N/A: its links were not sampled"
    )
    (table,) = tables_in(section).values()
    # 12 x 1 MiB bits in 440, and 480, 440, 400 and 400 us.
    assert table.rows[0] == (
        *("all_reduce", "ring", "1MiB", "1.5MiB", "4", "1.5", "28.6"),
        *("26.21", "28.6", "31.46", "31.46", "2859.8"),
    )
    assert len(table.rows) == 3
    (table,) = tables_in(sections["7. Repeatability"]).values()
    assert table.rows == (
        ("JCT of moe", "3", "750us", "0.0"),
        ("all_reduce, ring, 1MiB, N 4", "3", "440us", "7.4"),
        ("all_to_all, direct, 256KiB, N 2", "6", "100us", "0.0"),
        ("send_recv, 64KiB, N 2", "3", "50us", "0.0"),
    )
    assert "a CV of 5 %" in table.note


def test_drops_are_told_where_all_links_count_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    links = [link("a-b", "up", 5, drops=3), link("a-b", "down", 5, drops=0)]
    made = made_run(tmp_path, links=links)
    assert facts_in(page_of(made)["sections"]["5. Results"])["drops"] == "3 packets (b)"
    monkeypatch.setattr(made, "traffic", lambda: COUNTED)
    found = page_of(made)["sections"]["5. Results"]
    # Of 6720 data packets.
    assert facts_in(found)["drops"] == "3 packets (b), 446 ppm"


def test_what_communication_computation_hides_is_the_overlap(
    results: RunResults,
) -> None:
    measured = results.measurements()
    ranks = [
        replace(each, communication_ns=1000, exposed_ns=250) for each in measured.ranks
    ]
    with pytest.MonkeyPatch.context() as patch:
        changed = replace(measured, ranks=ranks)
        patch.setattr(results, "measurements", lambda: changed)
        found = page_of(results)["sections"]["5. Results"]
    assert facts_in(found)["overlap fraction of moe"] == "75.0 %"


def test_pauses_and_queues_of_switches_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queues = np.zeros((3, 100), np.int64)
    queues[0, :] = 9000  # at a host
    queues[1, :90], queues[1, 90:] = 1024, 2048
    queues[2, :] = 1500
    none = np.zeros(queues.shape)
    found = LinksOverTime(
        ports=("h0:eth0", "s0:h0", "s0:h1"), classes=(3, 3, 3),
        queue_max_bytes=queues, marked=none, paused=none,
        bin_ns=1.0, counted=frozenset(LINK_SAMPLE_FIELDS),
    )  # fmt: skip
    monkeypatch.setattr(bmwg_page, "links_over_time", lambda data: found)
    events = [
        PauseEvent(**{**dict.fromkeys(PauseEvent._fields, 0), "pauses": pauses})
        for pauses in (True, False, True, False, True)
    ]
    monkeypatch.setattr(bmwg_page, "pause_events", lambda results: events)
    links = [
        link("h0-s0", "up", 5, kind="host", port="h0:eth0", paused_ns=4000),
        link("h0-s0", "down", 5, kind="host", port="s0:h0", paused_ns=2000),
    ]
    made = made_run(tmp_path, links=links, dilation=2)
    page = page_of(made)["sections"]
    facts = facts_in(page["5. Results"])
    assert facts["PFC pause events with non-zero quanta"].startswith(
        "3 (b), 3us in total over ports and classes"
    )
    # Not that of a host.
    assert facts["longest queue of a switch"] == (
        "2KiB at s0:h0 (b), P95 over time 2KiB"
    )
    table = tables_in(page["3. Test configuration"])["Deviations from the drafts"]
    assert "health of the device" in [row[0] for row in table.rows]
    # Some switches report neither.
    found = replace(
        found, queue_max_bytes=none.astype(np.int64), counted=frozenset({"bytes"})
    )
    facts = facts_in(page_of(made)["sections"]["5. Results"])
    assert facts["longest queue of a switch"] == "N/A: the switches do not report it"


@pytest.mark.parametrize(
    ("klass", "paused_ns", "why"),
    [
        (3, (9, 9), "does not list its ports"),
        (-1, (9, 9), "does not list its ports"),
        (3, (-1, 9), "contains no queue samples"),
    ],
)
def test_pauses_that_cannot_be_counted_have_a_reason(
    tmp_path: Path, klass: int, paused_ns: tuple[int, ...], why: str
) -> None:
    # It ended before its table of links, or its switches told their pauses once.
    directory = begin(tmp_path, experiment=EXPERIMENT)
    directory.begin(small_plan(), ports=("a:0", "b:0"))
    directory.add(small_rows(0))
    samples = array("q")
    for time_ns, each_ns in zip((1000, 2000), paused_ns, strict=True):
        values = {"queue_max_bytes": 5, "paused_ns": each_ns, "traffic_class": klass}
        samples.extend(row_of(LINK_SAMPLE_FIELDS, port=0, time_ns=time_ns, **values))
    directory.add_link_samples(samples)
    directory.finish(ended=STARTED)
    found = page_of(open_run(directory.path))["sections"]["5. Results"]
    assert facts_in(found)["PFC pause events with non-zero quanta"] == (
        f"N/A: the run {why}"
    )
