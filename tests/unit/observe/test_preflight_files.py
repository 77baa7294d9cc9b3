"""The files of a preflight come back, and are shown as they were."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from chakram.cli import main
from chakram.errors import NoRunDirectory
from chakram.observe.manifest import FAILED as FAILED_RUN
from chakram.observe.preflight_files import read_preflight, save_preflight
from chakram.preflight.report import (
    FAILED,
    Finding,
    PairReport,
    PreflightReport,
)
from chakram.preflight.settings import PreflightSettings
from tests.unit.observe.small_runs import begin

REPORT = PreflightReport(
    ports=("h0", "h1"),
    pairs=(
        PairReport(
            source="h0",
            destination="h1",
            probes_sent=10,
            probes_arrived=8,
            paths_failed=(49_152,),
            path_mtu=4096,
            classes=((106, 104, 3), (2, 3, 5)),
            goodput_bps=12e6,
            expected_bps=100e6,
            round_trip_p50_ns=20_000,
            round_trip_p99_ns=50_000,
            jitter_ns=500.5,
            packets=100,
            retransmitted=7,
        ),
        PairReport(source="h1", destination="h0"),
    ),
    findings=(
        Finding(
            check="rate",
            verdict=FAILED,
            where="h0 -> h1",
            found="is slow",
            hint="look at the cable",
            pairs=(("h0", "h1"),),
        ),
    ),
    settings=PreflightSettings(path_mtu=4096, max_latency_ns=5000, rounds=3),
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_preflight(tmp_path, REPORT, run_id="r1", dilation=4)
    return tmp_path


def test_a_report_comes_back(folder: Path) -> None:
    assert read_preflight(folder) == (REPORT, 4)


def test_a_preflight_is_shown_again(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", str(folder)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("TIME DILATED by 4: ")
    assert "rate: h0 -> h1: is slow (look at the cable)" in printed
    assert "preflight failed" in printed
    assert main(["show", str(folder), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["dilation"], document["ports"]) == (4, ["h0", "h1"])
    assert main(["show", str(folder), "--ports"]) == 2
    assert "neither queue pairs nor ports" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"schema_version": 3}, "has schema version 3, this Chakram reads 2"),
        ({"pairs": [{}]}, "is not what a preflight writes"),
        ({"settings": {}}, "is not what a preflight writes"),
        ({"findings": 3}, "is not what a preflight writes"),
    ],
)
def test_what_is_no_preflight_is_refused(
    changes: dict[str, object], told: str, folder: Path
) -> None:
    path = folder / "preflight.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(NoRunDirectory, match=told):
        read_preflight(folder)


def test_a_run_that_its_preflight_ended_shows_the_preflight(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = begin(
        tmp_path,
        status=FAILED_RUN,
        reason="preflight: failed",
        preflight={"passed": False, "pairs": 2, "findings": []},
    )
    save_preflight(directory.path, REPORT, run_id="r1", dilation=1)
    assert main(["show", str(directory.path)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("!! FAILED: preflight: failed\n")
    assert "rate: h0 -> h1: is slow (look at the cable)" in printed
    assert "#wrong" not in printed
    assert main(["show", str(directory.path), "--preflight", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["schema"] == "chakram.preflight/1"


def test_a_run_without_a_preflight_has_none_to_show(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = begin(tmp_path)
    assert main(["show", str(directory.path), "--preflight"]) == 2
    assert "holds no results of a preflight" in capsys.readouterr().err
