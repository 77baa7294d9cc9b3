"""Pages of sweeps: ``chakram report FOLDER``."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from chakram.cli import main
from chakram.report.chromium_figures import drawn_figures
from tests.axe import axe_violations
from tests.chromium import NOT_A_NUMBER, open_page, require_chromium

EXPERIMENT = """\
version: 1
name: base
jobs:
  - name: j
    trace:
      synth: collectives
      ranks: 4
      streams: {op: all_reduce, sizes: [64KiB, 256KiB], count: 1}
    compute: {from: none}
iterations: {warmup: 0, measured: 2}
fabric:
  kind: namespaces
  topology: {clos: {leaves: 2, spines: 1, hosts_per_leaf: 2}}
  links: {host: {rate: 100Gbit, delay: 500ns}, uplink: {rate: 100Gbit}}
simulation: {level: message}
"""
SUITE = """\
version: 1
name: shapes
base: base.yaml
cases:
  - {name: plain}
  - {name: slow, set: {fabric.links.host.rate: 80Gbit}}
matrix:
  ranks: [2, 4]
  collectives.all_reduce: [ring, recursive_doubling]
baseline: {case: plain, collectives.all_reduce: ring}
repetitions: 2
"""
SECTIONS = (
    *("Best and worst", "Cells", "Comparisons", "Bus bandwidth by size"),
    *("Over two axes", "Changes from the baselines"),
    *("Repetitions", "Spread of repetitions", "Settings", "Varied settings"),
    *("Runs and raw files", "Runs of the cells", "Raw files"),
)


def sweep(folder: Path, suite: str, *options: str) -> int:
    (folder / "base.yaml").write_text(EXPERIMENT)
    (folder / "suite.yaml").write_text(suite)
    path = str(folder / "suite.yaml")
    return main(["sweep", path, "--out", str(folder / "sweep"), *options])


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("suite")
    assert sweep(folder, SUITE) == 0
    return folder


def page_of(folder: Path, out: Path) -> str:
    assert main(["report", str(folder / "sweep"), "--out", str(out)]) == 0
    return out.read_text(encoding="utf-8")


def data_of(page: str) -> Any:
    found = re.search(r'id="data">(.*?)</script>', page)
    assert found
    return json.loads(found[1])


def test_every_section_and_every_cell_is_present(
    swept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = page_of(swept, tmp_path / "page.html")
    heading = r'<h2>(.*?)<|<section id="[^"]*">\s*<h3>(.*?)<'
    headings = re.findall(heading, page.partition('<details id="')[2])
    assert [(a or b).strip() for a, b in headings] == list(SECTIONS)
    capsys.readouterr()
    assert sweep(swept, SUITE, "--json") == 0
    cells = json.loads(capsys.readouterr().out)["cells"]
    own = data_of(page)["cells"]
    assert len(own) == len(cells) == 8
    for shown, cell in zip(own, cells, strict=True):
        assert shown == {key: cell[key] for key in shown}
        ratio = "base" if cell["baseline"] is None else f"{1 + cell['change']:.3f}"
        assert f">{ratio}</td>" in page
    # Slower ports are what lost most, and the fastest cell is one of the others.
    worst = max(cells, key=lambda cell: cell["change"] or 0)
    assert worst["case"] == "slow"
    loss = f"+{100 * worst['change']:.1f} %"
    assert f"<dt>largest loss</dt><dd>{loss}</dd>" in page
    assert re.search(rf"<li>case slow, [^<]*: {re.escape(loss)}<small>", page)


def test_cells_lead_to_their_runs(swept: Path, tmp_path: Path) -> None:
    (tmp_path / "pages").mkdir()
    page = page_of(swept, tmp_path / "pages" / "page.html")
    targets = re.findall(r'<a href="(.*?)"', page)
    assert len(set(targets)) == 16
    for target in targets:
        directory = tmp_path / "pages" / unquote(target)
        assert (directory / "run.json").is_file()
    # A folder that was moved has its runs with it.
    moved = tmp_path / "moved"
    moved.mkdir()
    (swept / "sweep").rename(moved / "sweep")
    try:
        page = page_of(moved, tmp_path / "pages" / "moved.html")
    finally:
        (moved / "sweep").rename(swept / "sweep")
    assert all(
        target.startswith("../moved/sweep/runs/")
        for target in re.findall(r'<a href="(.*?)"', page)
    )


@pytest.mark.slow
def test_every_figure_is_drawn_without_complaint(swept: Path, tmp_path: Path) -> None:
    require_chromium()
    page = page_of(swept, tmp_path / "page.html")
    opened = open_page(tmp_path / "page.html", profile=tmp_path / "profile")
    assert opened.complaints == []
    assert axe_violations(tmp_path / "page.html", tmp_path / "axe") == []
    figures = drawn_figures(page)
    assert set(figures) == {
        *("busbw", "busbw-2", "heat-ratio", "heat-ratio-2"),
        *("heat-busbw", "heat-busbw-2", "changes", "spread"),
    }
    for name, forms in figures.items():
        svg = forms["svg"].decode()
        assert len(re.findall(r"<(path|rect|circle)\b", svg)) > 10, name
        assert not NOT_A_NUMBER.search(svg), name


def test_missing_parts_are_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    suite = """\
version: 1
name: half
base: base.yaml
cases:
  - {name: there}
  - {name: gone, set: {jobs.0.trace: {path: gone}}}
"""
    assert sweep(tmp_path, suite) == 4
    page = page_of(tmp_path, tmp_path / "page.html")
    assert "1 of 2 results are missing." in page
    assert "no result: gone, repetition 0: " in page
    assert "<b>Over two axes</b>: left out, because" in page
    # A shard has a page of its part.
    assert sweep(tmp_path, suite, "--shard", "1/2") == 0
    (tmp_path / "sweep/suite.json").write_text("{}")
    capsys.readouterr()
    assert main(["report", str(tmp_path / "sweep"), "--out", str(tmp_path / "x")]) == 2
    assert "suite.json: is damaged" in capsys.readouterr().err


def test_merged_shards_have_a_page(tmp_path: Path) -> None:
    parts = [str(tmp_path / f"part{index}") for index in (1, 2)]
    (tmp_path / "base.yaml").write_text(EXPERIMENT)
    (tmp_path / "suite.yaml").write_text(SUITE.replace("repetitions: 2", ""))
    verb = ["sweep", str(tmp_path / "suite.yaml")]
    for index, part in enumerate(parts, 1):
        assert main([*verb, "--shard", f"{index}/2", "--out", part]) == 0
    merged = ["--merge", parts[0], "--merge", parts[1]]
    assert main([*verb, *merged, "--out", str(tmp_path / "sweep")]) == 0
    page = page_of(tmp_path, tmp_path / "page.html")
    assert all(cell["repetitions"] == 1 for cell in data_of(page)["cells"])
    assert "<b>Spread of repetitions</b>: left out" in page
    targets = re.findall(r'<a href="(.*?)"', page)
    assert {target.split("/")[0] for target in targets} == {"part1", "part2"}
