"""What the page and the timeline of a run of a million flows cost."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import chakram
from tests.bench.extent import at_most, sized
from tests.chromium import open_page, require_chromium
from tests.support import REPO_ROOT

if TYPE_CHECKING:
    from chakram.run_directory.reader import RunResults

FLOWS = sized(1_000_000, 10_000)
PAGE_S, PAGE_BYTES = 5.0, 20_000_000
SLOWEST_NS = 7_777_777_777
"""Completion time that one flow of the million is given: it has to be drawn."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunResults:
    """Return a simulated run whose flows were multiplied, each time a little later."""
    run = chakram.simulate(
        REPO_ROOT / "configs/quickstart.yaml",
        set={"iterations.measured": "1"},
        runs=tmp_path_factory.mktemp("runs"),
    )
    path = run.path / "flows.parquet"
    flows = pq.read_table(path)
    many = pa.concat_tables([flows] * -(-FLOWS // flows.num_rows))
    many = many.unify_dictionaries().combine_chunks()
    times_ns = many["fct_ns"].to_numpy()
    chance = np.random.default_rng(1)
    late_ns = (times_ns * chance.exponential(0.3, len(times_ns))).astype(np.int64)
    late_ns[-1] = SLOWEST_NS - times_ns[-1]
    for name in ("fct_ns", "last_acked_ns"):
        column = pa.array(many[name].to_numpy() + late_ns)
        many = many.set_column(many.schema.get_field_index(name), name, column)
    pq.write_table(many, path, compression="zstd")
    return chakram.open_run(run.path)


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def cpu_seconds(*arguments: str) -> float:
    """Return the processor time of a command, its start included."""
    code = (
        "import sys, time\n"
        "from chakram.cli import main\n"
        "done = main(sys.argv[1:])\n"
        "print(time.process_time(), file=sys.stderr)\n"
        "sys.exit(done)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stderr.split()[-1])


def test_a_page_of_a_million_flows_is_small_and_quick(
    run: RunResults, tmp_path: Path
) -> None:
    require_chromium()
    out = tmp_path / "page.html"
    took_s = min(
        cpu_seconds("report", str(run.path), "--out", str(out), "--force")
        for _ in range(sized(3, 1))
    )
    size = out.stat().st_size
    say(f"page of {FLOWS:,} flows: {took_s:.1f} s of CPU, {size / 1e6:.1f} MB")
    assert took_s < at_most(PAGE_S)
    assert size < PAGE_BYTES
    text = out.read_text(encoding="utf-8")
    # Down-sampled, and said so; the slowest flow is there all the same.
    assert "each of the 100 slowest" in text
    assert "9.72ms: 100 %" in text  # undilated
    page = open_page(out, profile=tmp_path / "profile")
    assert page.complaints == []


def test_a_timeline_of_a_million_flows_is_streamed(
    run: RunResults, tmp_path: Path
) -> None:
    out = tmp_path / "timeline.json.gz"
    took_s = cpu_seconds("timeline", str(run.path), "--out", str(out))
    size = out.stat().st_size
    say(f"timeline of {FLOWS:,} flows: {took_s:.1f} s of CPU, {size / 1e6:.1f} MB")
    arrows = 0
    with gzip.open(out, "rt") as lines:
        for line in lines:
            arrows += line.startswith('{"ph":"s"')
    assert arrows == run.table("flows", "step").num_rows
