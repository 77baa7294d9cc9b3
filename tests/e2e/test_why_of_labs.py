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
    folder: Path, capsys: pytest.CaptureFixture[str], **faults: Any
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
        "iterations": {"warmup": 1, "measured": 4},
        "fabric": {
            "kind": "namespaces",
            "topology": {"single_switch": {"hosts": 5}},
            "links": {"host": {"rate": "20Mbit"}},
        },
        "transport": {
            "congestion_control": "fixed_rate",
            "retransmit_timeout": "4s",
        },
        "predict": ["bound"],
        "faults": faults,
    }
    path = folder / "experiment.yaml"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    assert main(["run", str(path), "--runs", str(folder / "runs")]) == 0
    (run,) = (folder / "runs").iterdir()
    capsys.readouterr()
    assert main(["why", str(run), "--json", "--budget", "300"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["verified"], found["not_verified"]
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("direction", ["up", "down"])
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
    named = [(each["cause"], each["place"]) for each in (first, *first["rivals"])]
    assert named == [("slow link", f"h2-s0 {direction}")]
    assert 0.4 < first["saving"]["share"] < 0.75


def test_clean_lab_has_no_cause(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = explained(tmp_path / "clean", capsys)
    faults = [each for each in found["causes"] if each["class"] == "fault"]
    assert [each for each in faults if each["cause"] != "generator slow"] == []
