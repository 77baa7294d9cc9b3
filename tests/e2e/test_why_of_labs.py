"""``why`` names the cause of a slow lab without reading declared faults."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from chakram.cli import main
from tests.e2e.runs import LAB

pytestmark = [pytest.mark.usefixtures("netns"), pytest.mark.timeout(600)]

ATTEMPTS = 3
"""A machine that has other work makes hosts late, which no link is blamed for."""


def explained(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    *,
    measured: int = 4,
    timeout: str = "4s",
    exit_code: int = 0,
    **faults: Any,
) -> dict[str, Any]:
    """Run a ring of five hosts; return what ``why --json`` prints of it."""
    folder.mkdir()
    document = {
        "version": 1,
        "name": "why-of-labs",
        "lab": LAB,
        "jobs": [
            {
                "name": "ring",
                "trace": {
                    "synth": "collectives",
                    "streams": [{"op": "all_reduce", "size": "400KB", "count": 2}],
                    "ranks": 5,
                },
            }
        ],
        "collectives": {"all_reduce": "ring"},
        "iterations": {"warmup": 1, "measured": measured},
        "fabric": {
            "kind": "namespaces",
            "topology": {"single_switch": {"hosts": 5}},
            "links": {"host": {"rate": "20Mbit"}},
        },
        "transport": {
            "congestion_control": "fixed_rate",
            "retransmit_timeout": timeout,
        },
        "predict": ["bound"],
        "faults": faults,
    }
    path = folder / "experiment.yaml"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    assert main(["run", str(path), "--runs", str(folder / "runs")]) == exit_code
    (run,) = (folder / "runs").iterdir()
    capsys.readouterr()
    assert main(["why", str(run), "--json", "--budget", "300"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert isinstance(found, dict)
    assert found["verified"], found["not_verified"]
    return found


@pytest.mark.parametrize(
    "direction", ["down", pytest.param("up", marks=pytest.mark.soak)]
)
def test_a_slow_port_is_named_with_its_direction_and_rate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], direction: str
) -> None:
    fault = {
        "kind": "degrade",
        "link": "h2-s0",
        "direction": direction,
        "rate": "8Mbit",
    }
    for attempt in range(ATTEMPTS):
        found = explained(tmp_path / str(attempt), capsys, links=[fault])
        first = found["first"]
        if first is not None and first["cause"] != "generator slow":
            break
    assert first is not None, found
    assert (first["cause"], first["place"]) == ("slow link", f"h2-s0 {direction}")
    # A long queue at the slow port and a longer delay of its link look much alike.
    rivals = {(each["cause"], each["place"]) for each in first["rivals"]}
    assert rivals <= {("delay", "h2-s0")}
    assert 0.4 < first["saving"]["share"] < 0.75


def test_clean_lab_has_no_cause(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = explained(tmp_path / "clean", capsys)
    faults = [each for each in found["causes"] if each["class"] == "fault"]
    assert [each for each in faults if each["cause"] != "generator slow"] == []


@pytest.mark.soak
def test_a_link_that_is_slow_for_a_while_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fault = {
        "kind": "degrade",
        "link": "h2-s0",
        "direction": "up",
        "rate": "8Mbit",
        "when": {"iteration": 5},
    }
    for attempt in range(ATTEMPTS):
        folder = tmp_path / str(attempt)
        found = explained(folder, capsys, measured=7, links=[fault])
        first = found["first"]
        if first is not None and first["cause"] != "generator slow":
            break
    assert first is not None, found
    named = [(each["cause"], each["place"]) for each in (first, *first["rivals"])]
    assert ("slow link", "h2-s0 up") in named
    assert {place for _, place in named} <= {"h2-s0 up", "h2-s0 down", "h2-s0"}
    assert "iterations only (" in first["evidence"]
    assert 0.1 < first["saving"]["high"] < 0.7


def test_the_link_that_ended_a_run_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fault = {"kind": "down", "link": "h2-s0", "when": {"iteration": 3}}
    found = explained(
        tmp_path / "ended", capsys, timeout="60ms", exit_code=4, links=[fault]
    )
    places = {each["place"] for each in found["end"]["suspicions"]}
    assert places
    assert places <= {"h2-s0 up", "h2-s0 down"}
    assert {2} <= {rank for pair in found["end"]["pairs"] for rank in pair[1:]}
    (run,) = (tmp_path / "ended" / "runs").iterdir()
    page = tmp_path / "report.html"
    assert main(["report", str(run), "--out", str(page)]) == 0
    told = page.read_text(encoding="utf-8")
    assert "It ended because the queue pair of job ring, rank " in told
    assert "h2-s0 " in told.partition("It ended because")[2][:200]
    assert "before its end" in told
    # No fault explains the iterations before.
    faults = [each for each in found["causes"] if each["class"] == "fault"]
    assert [each for each in faults if each["cause"] != "generator slow"] == []
