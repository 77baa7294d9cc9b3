"""Hosts whose clocks are ahead, run too fast, or are set during a run."""

from __future__ import annotations

import json
import sys
from statistics import median
from typing import TYPE_CHECKING

import pytest
import yaml

from chakram.run_directory.reader import open_run
from tests.e2e.test_launched_agents import EXPERIMENT
from tests.host_lab import HostLab, ssh_lab

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chakram.run_directory.reader import RunResults

AHEAD_S, FAST_PPM, STEP_S = 5.0, 100.0, 0.02
_AGENT = f"""\
#!/bin/sh
case $(hostname) in
    n2) export CHAKRAM_TEST_CLOCK={AHEAD_S},0;;
    n3) export CHAKRAM_TEST_CLOCK=0,{FAST_PPM};;
    n4) export CHAKRAM_TEST_CLOCK=0,0,{STEP_S},6;;
esac
exec {sys.executable} -P -m chakram_agent "$@"
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostLab]:
    with ssh_lab(tmp_path_factory.mktemp("lab")) as made:
        yield made


@pytest.fixture(scope="module")
def results(lab: HostLab, tmp_path_factory: pytest.TempPathFactory) -> RunResults:
    """Run for ten seconds on hosts with wrong clocks."""
    folder = tmp_path_factory.mktemp("run")
    agent = folder / "agent"
    agent.write_text(_AGENT)
    agent.chmod(0o755)
    lab.write_inventory(folder)
    experiment = folder / "experiment.yaml"
    # Clocks are compared all the time, so traffic may have gaps.
    pauses = {"sync": "gap", "gap": "200ms"}
    wanted = {"iterations": {"warmup": 0, "measured": 100_000} | pauses}
    limit = {"stop_if": {"duration": "10s"}}
    experiment.write_text(yaml.safe_dump(EXPERIMENT | wanted | limit))
    options = [f"--launcher-option={each}" for each in lab.ssh_options]
    lab.chakram(
        *("run", str(experiment), "--runs", str(folder / "runs")),
        *("--launch", "ssh", "--agent", str(agent), *options),
        expected=None,
    )
    (run,) = (folder / "runs").iterdir()
    return open_run(run)


def test_offset_drift_and_step_are_found(results: RunResults) -> None:
    clocks = results.manifest.clocks
    assert (clocks["n1"].offset_ns, clocks["n1"].uncertainty_ns) == (0, 0)
    error_ns = clocks["n2"].offset_ns + round(AHEAD_S * 1e9)
    assert abs(error_ns) <= clocks["n2"].uncertainty_ns < 50_000_000
    assert clocks["n3"].drift_ppm == pytest.approx(FAST_PPM, abs=20)
    assert [clocks[name].steps for name in results.manifest.clocks] == [0, 0, 0, 1]
    assert clocks["n4"].uncertainty_ns > 0.8 * STEP_S * 1e9


def test_measurements_are_within_the_printed_bound(results: RunResults) -> None:
    rows = results.table("clocks").to_pylist()
    segments = {row["agent"]: row["segment"] for row in rows}
    assert segments == {"n2": 0, "n3": 0, "n4": 1}
    for row in rows:
        bound_ns = results.manifest.clocks[row["agent"]].uncertainty_ns
        assert abs(row["offset_ns"] - row["fitted_offset_ns"]) <= bound_ns


def test_messages_arrive_after_they_were_sent(results: RunResults) -> None:
    bounds_ns = [each.uncertainty_ns for each in results.manifest.clocks.values()]
    found = [
        (row["received_ns"] - row["first_sent_ns"], *(row["src"], row["dst"]))
        for row in results.table("flows").to_pylist()
        if row["received_ns"] is not None
    ]
    assert len(found) > 100
    for one_way_ns, source, destination in found:
        assert one_way_ns >= -bounds_ns[source] - bounds_ns[destination]
    # Without conversion, they would be off by five seconds.
    assert abs(median(each for each, *_ in found)) < 100_000_000


def test_the_table_prints_the_bound(results: RunResults, lab: HostLab) -> None:
    shown = lab.chakram("show", str(results.path)).stdout
    assert "clocks agree to" in shown
    document = json.loads((results.path / "run.json").read_text())
    assert document["clocks"]["n4"]["steps"] == 1
