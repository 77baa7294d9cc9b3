"""A run as its page needs it: facts, and flows and samples as arrays."""

from __future__ import annotations

import json
from array import array
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bokeh.models import Range1d

from chakram.foundation.errors import InputError
from chakram.records.clock_conversion import ClockLine
from chakram.records.row_layout import LINK_SAMPLE_FIELDS, PORT_FIELDS, RecordRows
from chakram.report.page import Plot
from chakram.report.run import data as module
from chakram.report.run.data import NicTraffic, Roofline, RunData
from chakram.report.run.flows import Flows, shares_of
from chakram.report.run.links_over_time import LinksOverTime, links_over_time
from chakram.report.run.page import run_page
from chakram.report.run.queues import switch_blocks
from chakram.run_directory.reader import open_run
from tests.made_runs import EXPERIMENT, made_run
from tests.run_directories import STARTED, begin
from tests.small_run import row_of, small_plan, small_rows

if TYPE_CHECKING:
    from pathlib import Path

    from chakram.run_directory.reader import RunResults


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> RunResults:
    return made_run(tmp_path_factory.mktemp("runs"))


@pytest.fixture
def data(results: RunResults) -> RunData:
    return RunData(results)


# ---- facts ---------------------------------------------------------------------------


def test_times_are_from_the_first_rank_on(tmp_path: Path) -> None:
    # Ranks report times that are 1 s later than the controller's.
    directory = begin(tmp_path, dilation=10)
    rows = small_rows(0)
    ClockLine(offset_ns=-(10**9)).convert(rows)
    directory.add(rows)
    directory.finish(ended=STARTED)
    data = RunData(open_run(directory.path))
    assert data.origin_ns == 10**9
    assert data.end_ns == 75_000
    assert data.undilated(10**9 + 500) == 50
    flows = data.flows
    assert flows["posted_ns"].min() == 20_000
    assert flows["last_acked_ns"].max() == 75_000
    assert flows["fct_ns"].max() == 10_000
    assert data.bin_ns == 75_000 / module.TIME_BINS


def test_a_run_that_ends_before_it_starts_takes_no_time(tmp_path: Path) -> None:
    directory = made_run(tmp_path).path
    table = pq.read_table(directory / "ranks.parquet")
    column = table.schema.get_field_index("end_ns")
    early = pa.array([-(10**9)] * table.num_rows, pa.int64())
    pq.write_table(
        table.set_column(column, table.schema.field(column), early),
        directory / "ranks.parquet",
    )
    data = RunData(open_run(directory))
    assert data.end_ns == 0
    assert "NIC utilization" in run_page(data.results)


def test_a_run_of_nothing_has_bins_all_the_same(tmp_path: Path) -> None:
    data = RunData(made_run(tmp_path, iterations=()))
    assert (data.origin_ns, data.end_ns, data.bin_ns) == (0, 0, 1)
    assert data.nics == "no rank completed an iteration"
    assert len(data.flows) == 0
    assert data.rooflines == ()


@pytest.mark.parametrize(
    ("experiment", "text"),
    [
        ({}, "the run does not record its fabric"),
        ({"fabric": {"kind": "of later"}}, "this version cannot draw its fabric: "),
    ],
)
def test_a_topology_that_is_not_known_says_why(
    tmp_path: Path, experiment: dict[str, Any], text: str
) -> None:
    data = RunData(made_run(tmp_path, iterations=(), experiment=experiment))
    assert isinstance(data.topology, str)
    assert data.topology.startswith(text)
    assert "\n" not in data.topology


def test_letters_are_those_of_where_it_was_seen(data: RunData, tmp_path: Path) -> None:
    assert data.seen("b", "c", "m", "c") == "(b), (c), (m)"
    virtual = RunData(made_run(tmp_path, iterations=(), world="simulate"))
    # Both points are in virtual time.
    assert virtual.seen("b", "c", "f") == "(v), (f)"


# ---- flows ---------------------------------------------------------------------------


def made_flows(**columns: list[int]) -> Flows:
    return Flows({name: np.array(each) for name, each in columns.items()}, {})


def test_chosen_flows_are_those_of_a_mask_or_of_numbers() -> None:
    flows = made_flows(bytes=[5, 6, 7, 8], step=[0, 1, 2, 3])
    masked = flows.where(flows["bytes"] > 5)
    assert (len(masked), masked["step"].tolist()) == (3, [1, 2, 3])
    again = masked.where(np.array([2, 0]))
    assert again["bytes"].tolist() == [8, 6]
    assert again.row(0) == {"bytes": 8, "step": 3}
    assert flows.row(0) == {"bytes": 5, "step": 0}
    assert flows.where(flows["bytes"] > 0) is flows


def test_measured_flows_cross_a_port(tmp_path: Path) -> None:
    made = made_run(tmp_path)
    data = RunData(made)
    assert len(data.flows) == 4 * 29
    assert len(data.measured) == 3 * 29
    path = made.path / "plan.json"
    plan = json.loads(path.read_text())
    plan["ranks"][0]["within_host"] = [1]
    path.write_text(json.dumps(plan))
    data = RunData(open_run(made.path))
    # From 0 to 1 went six steps of the ring, an all-to-all and a message.
    assert len(data.measured) == 3 * (29 - 8)
    assert len(data.flows) == 4 * 29


def test_what_a_run_did_not_note_of_flows_is_unknown(tmp_path: Path) -> None:
    directory = begin(tmp_path)
    directory.add(small_rows(0))
    directory.flush()
    flows = RunData(open_run(directory.path)).flows
    assert set(flows["bound_ns"].tolist()) == {-1}
    assert set(flows["path"].tolist()) == {-1}
    assert flows.names["path"] == ()
    assert set(flows["measured"].tolist()) == {0}


def test_shares_are_from_the_first_to_the_last_of_a_rank(data: RunData) -> None:
    shares = shares_of(data.flows)
    # Four and four of collectives, two of a message, in four iterations.
    assert len(shares) == 40
    assert len(shares.places) == 2 * len(data.flows)
    rows = {
        (shares["rank"][at], shares["collective"][at], shares["iteration"][at]): at
        for at in range(len(shares))
    }
    names = data.flows.names["collective"]
    reduce, message = names.index("all_reduce"), names.index("send_recv")
    at = rows[3, reduce, 2]
    assert shares["start_ns"][at] == 2_200_000
    assert shares["end_ns"][at] == 2_640_000
    assert shares["sent_bytes"][at] == 6 * 2**18
    at = rows[1, message, 1]
    # What it gets begins with what was sent to it.
    assert shares["start_ns"][at] == 1_700_500
    assert (shares["end_ns"][at], shares["sent_bytes"][at]) == (1_750_000, 0)


# ---- rates ---------------------------------------------------------------------------


def test_ranks_share_the_rate_of_their_port(tmp_path: Path) -> None:
    made = made_run(tmp_path, dilation=10)
    assert RunData(made).line_rate("moe") == 10**10
    path = made.path / "plan.json"
    plan = json.loads(path.read_text())
    plan["ranks"][1]["port"] = 0
    path.write_text(json.dumps(plan))
    data = RunData(open_run(made.path))
    assert data.rate_of["moe", 0] == data.rate_of["moe", 1] == 5 * 10**9
    assert data.rate_of["moe", 2] == 10**10
    # The least of all ranks.
    assert data.line_rate("moe") == 5 * 10**9
    assert data.line_rate("another") is None
    plan["ports"][3]["rate_bps"] = None
    path.write_text(json.dumps(plan))
    data = RunData(open_run(made.path))
    assert data.rate_of["moe", 3] is None
    assert data.line_rate("moe") is None
    assert data.rooflines == ()


def test_payload_is_its_part_of_a_full_packet(data: RunData) -> None:
    assert data.payload_share == 4096 / 4154


def test_a_roofline_is_that_of_the_rank_with_most_to_do(data: RunData) -> None:
    (roofline,) = data.rooflines
    # Rank 0 sends the message, too.
    bits = 8 * (1.5 * 2**20 + 0.5 * 2**18 + 2**16)
    assert roofline.communication_ns == pytest.approx(bits)
    assert (roofline.job, roofline.compute_ns) == ("moe", 200_000)
    assert roofline.ratio == pytest.approx(750_000 / (200_000 + bits))
    none = Roofline(job="j", iteration_ns=5, compute_ns=0, communication_ns=0)
    assert none.ratio is None


def test_a_session_is_as_fast_as_its_payload_over_its_time(data: RunData) -> None:
    rates = data.session_rates
    assert list(rates) == ["all_reduce", "all_to_all", "send_recv"]
    bits = 8 * 3 * 6 * 2**18
    assert rates["all_reduce"] == pytest.approx([bits / 1.2e-3] * 3 + [bits / 1.32e-3])
    assert rates["send_recv"] == pytest.approx([8 * 2**16 / 50e-6])


# ---- ports and samples ---------------------------------------------------------------


def sampled(folder: Path, samples: list[dict[str, int]], **fields: Any) -> RunData:
    """Return a run with samples of ports."""
    directory = begin(folder, experiment=EXPERIMENT, **fields)
    directory.add(small_rows(0))
    rows = RecordRows()
    for sample in samples:
        rows.ports.extend(row_of(PORT_FIELDS, **sample))
    directory.add(rows)
    directory.finish(ended=STARTED)
    return RunData(open_run(directory.path))


def test_counters_grow_between_samples_of_the_same_port(tmp_path: Path) -> None:
    data = sampled(
        tmp_path,
        [
            {"port": 1, "time_ns": 4000, "tx_bytes": 70},
            {"port": 0, "time_ns": 1000, "tx_bytes": 10, "rx_bytes": 3},
            {"port": 0, "time_ns": 3000, "tx_bytes": 40, "rx_bytes": 4},
            {"port": 1, "time_ns": 2000, "tx_bytes": 50},
        ],
        dilation=2,
    )
    found = data.deltas("ports", ("port", "shard"), ("tx_bytes",), ("rx_bytes",))
    assert found is not None
    assert {name: column.tolist() for name, column in found.items()} == {
        "port": [0, 0, 1, 1],
        "shard": [0, 0, 0, 0],
        # The first is from the start on.
        "start_ns": [0, 500, 0, 1000],
        "end_ns": [500, 1500, 1000, 2000],
        "tx_bytes": [10, 30, 50, 20],
        "rx_bytes": [3, 4, 0, 0],
    }


def test_samples_around_the_start_count_from_the_start(tmp_path: Path) -> None:
    # As in a short run with rare samples: one before, one at the end.
    samples = [
        {"port": 0, "time_ns": at, "tx_bytes": sent, "rx_bytes": 0}
        for at, sent in ((-4000, 0), (750_000, 900))
    ]
    data = sampled(tmp_path, samples)
    found = data.deltas("ports", ("port", "shard"), ("tx_bytes",))
    assert found is not None
    assert (found["start_ns"][1], found["end_ns"][1]) == (0, 750_000)
    nics = data.nics
    assert isinstance(nics, NicTraffic)
    sent_bytes = nics.transmit[0].sum() * 10**9 / 8e9 * nics.bin_ns
    assert sent_bytes == pytest.approx(900)


@pytest.mark.parametrize(
    ("times_ns", "known"), [([], False), ([5000], False), ([5000, 6000], True)]
)
def test_one_sample_each_is_of_the_end(
    tmp_path: Path, times_ns: list[int], known: bool
) -> None:
    data = sampled(
        tmp_path,
        [
            {"port": port, "time_ns": time_ns, "tx_bytes": 1, "rx_bytes": 1}
            for port in (0, 1)
            for time_ns in times_ns
        ],
    )
    found = data.deltas("ports", ("port", "shard"), ("tx_bytes",))
    assert (found is not None) == known
    nics = data.nics
    assert isinstance(nics, NicTraffic)
    assert nics.is_sampled == known


def test_pauses_of_ports_need_the_plan(tmp_path: Path) -> None:
    samples = [{"port": 0, "time_ns": at, "paused_ns": at // 2} for at in (0, 50_000)]
    data = sampled(tmp_path, samples)
    for plots in (1, 0):
        blocks = switch_blocks(data, Range1d(0, 50_000), {})
        assert sum(isinstance(each, Plot) for each in blocks) == plots
        (data.results.path / "plan.json").unlink(missing_ok=True)
        data = RunData(open_run(data.results.path))


def test_samples_of_links_keep_their_highest_queues(tmp_path: Path) -> None:
    directory = begin(tmp_path, experiment=EXPERIMENT)
    # Ports get their numbers from the fabric.
    directory.begin(small_plan(), ports=("a:0", "b:0"))
    directory.add(small_rows(0))
    bin_ns = 750_000 / module.TIME_BINS
    samples = [
        {"port": port, "time_ns": round(at * bin_ns), "queue_max_bytes": queue,
         "marked": marked, "traffic_class": 3}
        for port, at, queue, marked in (
            (0, 10, 500, 4), (0, 20, 100, 6), (0, 30, 0, 6),
            (1, 10, 0, 0), (1, 30, 7, 9),
        )
    ]  # fmt: skip
    rows = [row_of(LINK_SAMPLE_FIELDS, **sample) for sample in samples]
    directory.add_link_samples(array("q", [each for row in rows for each in row]))
    directory.finish(ended=STARTED)
    found = links_over_time(RunData(open_run(directory.path)))
    assert isinstance(found, LinksOverTime)
    assert (found.ports, found.classes) == (("a:0", "b:0"), (3, 3))
    queues = found.queue_max_bytes[0]
    # Of an interval every column has what was the most in it.
    assert set(queues[1:9].tolist()) == {500}
    assert set(queues[11:19].tolist()) == {100}
    assert set(queues[21:].tolist()) == {0}
    assert found.queue_max_bytes[1].max() == 7
    assert found.marked[0].sum() == pytest.approx(6)
    assert found.marked[0, 11:19].sum() == pytest.approx(2 * 0.8, rel=1e-3)


def test_ports_without_rates_are_not_drawn(tmp_path: Path) -> None:
    made = made_run(tmp_path, iterations=(0,))
    path = made.path / "plan.json"
    plan = json.loads(path.read_text())
    for port in plan["ports"]:
        port["rate_bps"] = None
    path.write_text(json.dumps(plan))
    nics = RunData(open_run(made.path)).nics
    assert isinstance(nics, str)
    assert nics == "the ports of this run have no rate"


def test_without_records_of_flows_ports_are_not_drawn(tmp_path: Path) -> None:
    made = made_run(tmp_path, iterations=(0,))
    (made.path / "flows.parquet").unlink()
    assert RunData(made).nics == "no flow was recorded"


# ---- why -----------------------------------------------------------------------------


def test_why_is_not_asked_of_too_many_flows(
    results: RunResults, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(results: RunResults) -> None:
        raise InputError("run", "has no paths")

    monkeypatch.setattr(module, "why_of", refuse)
    # 87 flows.
    monkeypatch.setattr(module, "WHY_FLOWS", 87)
    data = RunData(results)
    assert data.why == "it has no paths"
    assert data.operations == []
    monkeypatch.setattr(module, "WHY_FLOWS", 86)
    why = RunData(results).why
    assert why == "it has more than 86 flows; use `chakram why`"


def test_times_of_faults_are_on_the_axis_of_the_page(
    data: RunData, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = {"fault": "down", "start_ns": 700, "end_ns": None, "packets": 5}
    monkeypatch.setattr(data.results, "table", lambda name: pa.Table.from_pylist([row]))
    data.origin_ns, data.dilation = 100, 2
    assert data.faults == [
        {"fault": "down", "start_ns": 300, "end_ns": None, "packets": 5}
    ]


def test_ports_without_a_rate_are_left_out_of_utilization(tmp_path: Path) -> None:
    made = made_run(tmp_path)
    path = made.path / "plan.json"
    plan = json.loads(path.read_text())
    plan["ports"][0]["rate_bps"] = None
    path.write_text(json.dumps(plan))
    nics = RunData(open_run(made.path)).nics
    assert isinstance(nics, NicTraffic)
    assert nics.hosts == ("h1", "h2", "h3")
    assert (nics.transmit.sum(axis=1) > 0).all()
