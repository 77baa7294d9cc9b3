"""Pages of runs, in a browser: what a reader sees of them."""

from __future__ import annotations

import json
import re
import shutil
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import chakram
from chakram.analysis.run_causes import why_document, why_of
from chakram.cli import main
from chakram.diagnosis.verification import verify
from chakram.foundation.units import about_size
from chakram.report.chromium_figures import drawn_figures
from chakram.report.run import page as page_of_run
from chakram.report.run.data import RunData
from chakram.report.run.rows import report_rows
from tests.axe import axe_violations
from tests.chromium import NOT_A_NUMBER, open_page, require_chromium
from tests.support import REPO_ROOT

if TYPE_CHECKING:
    from chakram.run_directory.reader import RunResults

OF_EVERY_RUN = {
    "topology",
    "busbw",
    "fct-cdf",
    "slowdown",
    "sessions",
    "nic-transmit",
    "nic-receive",
    "rank-times",
    "gantt",
    "path-parts",
}
SECTIONS = (
    *("Fabric and its loads", "Device under test", "Bytes per uplink"),
    *("NIC utilization", "Collectives", "Iterations", "Bandwidth and times"),
    *("Bus bandwidth by size", "Measured against simulated"),
    *("Flows", "Flow completion times", "Slowest flows", "Session bandwidth"),
    *("Ranks and lost time", "Compute, exposed communication, idle"),
    *("Timeline of ranks", "Causes of lost time", "Queues, marks, retransmissions"),
    *("Congestion and retransmissions", "Faults", "Faults"),
    *("Configuration, measurement, raw files", "Generator, clocks and payload"),
    *("Balancing source ports", "Comparability", "Raw files"),
)
SMALL = {
    "jobs[0].trace.all_to_all": "256KiB",
    "jobs[0].trace.all_reduce": "512KiB",
    "jobs[0].trace.dense": "256KiB",
    "iterations.warmup": "0",
    "iterations.measured": "2",
}
MARKED = {
    "fabric.links.host.ecn": "{kmin: 20KiB, kmax: 60KiB, pmax: 0.5}",
    "transport.congestion_control": "dcqcn",
}
# More than are recorded.
MANY_MESSAGES = """\
version: 1
name: many
jobs:
  - name: job
    trace:
      synth: collectives
      ranks: 502
      streams: [{op: all_to_all, size: 1MiB, count: 1}]
    compute: {from: none}
iterations: {warmup: 0, measured: 1, sync: free}
fabric:
  kind: namespaces
  topology: {single_switch: {hosts: 502}}
  links: {host: {rate: 400Gbit}}
simulation: {level: message}
"""
MARKS = re.compile(r"<(path|rect|circle|image|line|polyline)\b")


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> RunResults:
    """Return a simulation with collectives of several kinds, marks and uplinks."""
    return chakram.simulate(
        REPO_ROOT / "configs/quickstart.yaml",
        set={
            **SMALL,
            **MARKED,
        },
        runs=tmp_path_factory.mktemp("runs"),
    )


@pytest.fixture(scope="module")
def page_file(simulated: RunResults, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return its page, as it is without any options."""
    out = tmp_path_factory.mktemp("page") / "page.html"
    written(simulated, out=out)
    return out


@pytest.fixture(scope="module")
def page(page_file: Path) -> str:
    """Return the text of that page."""
    return page_file.read_text(encoding="utf-8")


def written(run: RunResults, *options: str, out: Path) -> str:
    assert main(["report", str(run.path), "--out", str(out), *options]) == 0
    return out.read_text(encoding="utf-8")


def headings(page: str) -> list[str]:
    sections = page.partition('<details id="')[2]
    found = re.findall(r'<h[23]>(.*?)<|<p class="absent"><b>(.*?)</b>', sections)
    return [(section or left_out).strip() for section, left_out in found]


def complaints(page: Path, scratch: Path) -> list[str]:
    opened = open_page(page, profile=scratch / "profile")
    assert any("document idle" in line for line in opened.console)
    return opened.complaints


def test_every_section_is_there_in_its_order(page: str) -> None:
    assert headings(page) == list(SECTIONS)
    # What a run lacks is said in one line.
    assert "left out, because this run is itself a simulation." in page


@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_readers_with_disabilities_can_use_the_page(
    page_file: Path, tmp_path: Path, dark: bool
) -> None:
    require_chromium()
    assert axe_violations(page_file, tmp_path / "axe", dark=dark) == []


@pytest.mark.slow
def test_the_page_opens_without_complaint_or_network(
    page_file: Path, page: str, tmp_path: Path
) -> None:
    require_chromium()
    assert not re.search(r'<(script|link|img)[^>]*(src|href)="(?!data:)', page)
    assert complaints(page_file, tmp_path) == []


@pytest.mark.soak
def test_figures_are_drawn_before_the_page_has_loaded(
    page: str, tmp_path: Path
) -> None:
    require_chromium()
    script = """<script>addEventListener("load", () => {
      const all = typeof Bokeh === "undefined" ? [] : Bokeh.documents;
      const is_drawn = all.length && all.every((each) => each.is_idle);
      document.title = is_drawn ? "drawn" : "blank";
    });</script></head>"""
    file = tmp_path / "page.html"
    file.write_text(page.replace("</head>", script, 1), encoding="utf-8")
    # Without virtual time, Chromium returns the page at its event "load".
    opened = open_page(file, profile=tmp_path / "profile", timing="--timeout=60000")
    assert "<title>drawn</title>" in opened.dom


@pytest.mark.slow
def test_every_figure_is_drawn_and_written_as_a_file(
    simulated: RunResults, tmp_path: Path
) -> None:
    require_chromium()
    folder = tmp_path / "figures"
    written(simulated, "--figures", str(folder), out=tmp_path / "page.html")
    names = {*OF_EVERY_RUN, "uplinks", "congestion", "queues", "marks"}
    assert {path.name for path in folder.iterdir()} == {
        f"{name}.{form}" for name in names for form in ("svg", "png")
    }
    for name in names:
        svg = (folder / f"{name}.svg").read_text(encoding="utf-8")
        assert len(MARKS.findall(svg)) > 10, name
        assert not NOT_A_NUMBER.search(svg), name
        assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG"), name


def test_the_numbers_are_in_the_page_and_right(
    simulated: RunResults, page: str
) -> None:
    found = re.search(r'id="data">(.*?)</script>', page)
    assert found
    data = json.loads(found[1])
    summary = simulated.summary()
    assert len(data["results"]) == len(summary.rows)
    flows = simulated.table("flows", "measured", "collective", "src", "dst", "bytes")
    rows = [row for row in flows.to_pylist() if row["measured"]]
    for row in data["report"]["rows"]:
        # Each iteration's flows of that kind carry S_fabric for each of its ranks.
        own = [each for each in rows if each["collective"] == row["collective"]]
        kinds = [
            each
            for each in data["report"]["rows"]
            if each["collective"] == row["collective"]
        ]
        samples = {
            (each.op, each.size_bytes): each.samples * each.nranks
            for each in summary.rows
        }
        assert sum(each["bytes"] for each in own) == sum(
            each["fabric_bytes"] * samples[each["collective"], each["size_bytes"]]
            for each in kinds
        )
        assert row["line_rate_bps"] == 100e9
        assert 0 < row["line_rate_share"] <= 1
        slow, *_, fast = row["busbw_percentiles_bps"]
        assert slow <= row["busbw_bps"] <= fast
    for p01, p50, p99 in data["report"]["sessions_bps"].values():
        assert 0 < p01 <= p50 <= p99 <= 100e9
    (roofline,) = data["report"]["rooflines"]
    assert roofline["ratio"] > 0.5
    assert roofline["iteration_ns"] == summary.iterations[0].mean_ns


def test_the_document_of_a_large_run_lists_some_ranks_and_links(
    simulated: RunResults, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = RunData(simulated)
    rows = report_rows(data)
    whole = page_of_run.run_document(data, rows)
    assert whole["report"]["left_out"] == {"ranks": 0, "links": 0}
    monkeypatch.setattr(page_of_run, "_MOST_LISTED", 3)
    some = page_of_run.run_document(data, rows)
    for name, column in (("ranks", "exposed_ns"), ("links", "bytes")):
        order = sorted(whole[name], key=itemgetter(column), reverse=True)
        assert some[name] == order[:3]
        assert some["report"]["left_out"][name] == len(whole[name]) - 3


def test_the_page_has_the_causes_of_chakram_why(
    simulated: RunResults, page: str
) -> None:
    found = re.search(r'id="data">(.*?)</script>', page)
    assert found
    why = json.loads(found[1])["why"]
    charged = why_of(simulated)
    verified = verify(simulated, charged)
    assert verified.verdict is not None
    assert why == why_document(charged, verified.verdict)
    assert why["causes"][0]["place"] in page
    # The path is drawn through the ranks that it goes over.
    assert "critical path" in page


def test_page_of_a_run_without_its_records_names_the_table(
    simulated: RunResults, tmp_path: Path
) -> None:
    old = tmp_path / "old"
    shutil.copytree(simulated.path, old)
    (old / "operations.parquet").unlink()
    page = written(chakram.open_run(old), out=tmp_path / "page.html")
    assert (
        "<b>Causes of lost time</b>: left out, because it no longer has "
        "operations.parquet." in page
    )
    assert "from the first message that a rank posted" in page


def test_source_ports_are_proposed_that_balance_the_uplinks(
    simulated: RunResults, page: str, tmp_path: Path
) -> None:
    found = re.search(r"transport: \{source_ports: (\[[0-9, ]+\])\}", page)
    assert found
    said = re.search(r">up ([\d.]+) now, ([\d.]+) with the proposal; down", page)
    assert said
    now, then = map(float, said.groups())
    # What was sent again is in what was counted, and in no plan.
    assert now == pytest.approx(balance(simulated), rel=0.02)
    # Of five flows that leave a leaf, four are larger than the fifth: 2 and 3 of them.
    assert 1 <= then < now - 0.1
    again = chakram.simulate(
        REPO_ROOT / "configs/quickstart.yaml",
        set={**SMALL, "transport.source_ports": found[1]},
        runs=tmp_path / "runs",
    )
    assert balance(again) == pytest.approx(then, rel=0.02)
    page = written(again, out=tmp_path / "again.html")
    assert "no other ports are better; single flows are this large" in page


def balance(run: RunResults) -> float:
    """Return the bytes of the busiest uplink away from hosts over their mean."""
    links = run.summary().links
    up = [
        each.bytes for each in links if each.kind == "uplink" and each.direction == "up"
    ]
    return max(up) * len(up) / sum(up)


def test_files_are_listed_with_their_digests(simulated: RunResults, page: str) -> None:
    import hashlib

    for name in ("flows.parquet", "run.json"):
        digest = hashlib.sha256((simulated.path / name).read_bytes()).hexdigest()
        assert digest in page


@pytest.mark.slow
def test_two_runs_stand_side_by_side(simulated: RunResults, tmp_path: Path) -> None:
    require_chromium()
    chakram.simulate(
        REPO_ROOT / "configs/quickstart.yaml",
        set={**SMALL, **MARKED, "fabric.links.uplink.rate": "100Gbit"},
        runs=tmp_path / "runs",
    )
    # A folder with one run is that run.
    page = written(simulated, str(tmp_path / "runs"), out=tmp_path / "page.html")
    assert complaints(tmp_path / "page.html", tmp_path) == []
    assert set(drawn_figures(page)) == {"busbw", "fct-cdf"}
    assert "B/A" in page
    title = "Simulation quickstart: fabric.links.uplink.rate 200Gbit (A) against 100G"
    assert f"<h1>{title}bit (B)</h1>" in page
    # What `chakram compare` says stands on top; where values were seen, once.
    assert '<p class="verdict">Iteration of moe takes' in page
    assert re.search(r"B against A</th><td[^>]*>Iteration of moe takes", page)
    assert "longer (" in page
    assert "nominal time of the critical path" in page
    assert page.count('<dl class="observed">') == 1


def test_the_sections_of_bmwg_have_no_verdict(
    simulated: RunResults, tmp_path: Path
) -> None:
    page = written(simulated, "--bmwg", out=tmp_path / "page.html")
    numbered = [each for each in headings(page) if each[0].isdigit()]
    assert [each[0] for each in numbered if each[1] == "."] == list("12345678")
    assert "measured for" in page  # a deviation: less than 60 s
    assert re.search(r"\b0 \(v\), 0 ?\w+ in total over ports and classes", page)
    (longest,) = re.findall(r"([\d.]+[KM]iB) at (\S+) \(v\), P95 over time", page)
    samples = simulated.table("link_samples").to_pylist()
    of_switches = (row for row in samples if not row["port"].startswith("h"))
    most = max(of_switches, key=lambda row: row["queue_max_bytes"])
    assert longest == (about_size(most["queue_max_bytes"]), most["port"])
    text = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL).lower()
    assert not re.search(r"\b(pass|passed|failed)\b", text)


def test_pauses_of_links_are_told(tmp_path: Path) -> None:
    run = chakram.simulate(
        REPO_ROOT / "configs/incast.yaml",
        set={
            "iterations.measured": "1",
            "fabric.switch": "model",
            "fabric.switches": "{profile: ns3, buffer: 512KiB}",
            "transport.congestion_control": "none",
            "transport.window": "256KiB",
            "records.sample_bin": "100us",
        },
        runs=tmp_path / "runs",
    )
    assert main(["export", "pfc", str(run.path), "--out", str(tmp_path)]) == 0
    lines = (tmp_path / "pfc.txt").read_text().splitlines()
    events = sum(line.endswith(" 1") for line in lines)
    assert events
    page = written(run, "--bmwg", out=tmp_path / "bmwg.html")
    assert f"{events} (v), " in page
    assert ">health of the device" in page


def test_what_is_not_recorded_is_left_out_and_not_zero(tmp_path: Path) -> None:
    experiment = tmp_path / "many.yaml"
    experiment.write_text(MANY_MESSAGES)
    run = chakram.simulate(experiment, runs=tmp_path / "runs")
    page = written(run, out=tmp_path / "page.html")
    for section in ("Congestion and retransmissions", "NIC utilization"):
        assert f"<b>{section}</b>: left out, because no flow was recorded." in page


def test_a_page_is_not_replaced_unasked(
    simulated: RunResults, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "page.html"
    out.write_text("mine")
    assert main(["report", str(simulated.path), "--out", str(out)]) == 2
    assert out.read_text() == "mine"
    assert "exists already" in capsys.readouterr().err
    assert "<h1>" in written(simulated, "--force", out=out)
