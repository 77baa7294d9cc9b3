"""Files of a preflight are read back and shown."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from chakram.cli import main
from chakram.foundation.errors import NoRunDirectory, RunDirectoryError
from chakram.preflight.report import (
    FAILED,
    Finding,
    PairReport,
    PreflightReport,
    PreflightSettings,
)
from chakram.run_directory.manifest import FAILED as FAILED_RUN
from chakram.run_directory.manifest import RunManifest, ended_by_preflight
from chakram.run_directory.preflight_files import (
    preflight_summary,
    read_preflight,
    save_preflight,
)
from tests.run_directories import begin

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


def test_report_is_read_back(folder: Path) -> None:
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
        (
            {"schema_version": 3},
            "has schema version 3, but this Chakram reads versions up to 2",
        ),
        ({"pairs": [{}]}, "its contents are invalid"),
        ({"settings": {}}, "its contents are invalid"),
        ({"findings": 3}, "its contents are invalid"),
    ],
)
def test_invalid_preflight_is_refused(
    changes: dict[str, object], told: str, folder: Path
) -> None:
    path = folder / "preflight.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(NoRunDirectory, match=told):
        read_preflight(folder)


def test_run_ended_by_its_preflight_shows_the_preflight(
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
    assert "contains no preflight results" in capsys.readouterr().err


def test_pair_is_a_row_with_its_shares_and_failures(folder: Path) -> None:
    there, back = pq.read_table(folder / "preflight.parquet").to_pylist()
    assert (there["run_id"], there["source"], there["destination"]) == (
        "r1",
        "h0",
        "h1",
    )
    assert (there["probes_sent"], there["probes_arrived"]) == (10, 8)
    assert there["paths_failed"] == [49_152]
    # 12 of 100 Mbit/s; the rate while others send was not measured.
    assert there["rate_share"] == pytest.approx(0.12)
    assert there["together_share"] is None
    assert (there["failed"], back["failed"]) == (["rate"], [])
    assert (back["probes_sent"], back["goodput_bps"], back["rate_share"]) == (
        0, None, None,
    )  # fmt: skip
    metadata = pq.read_schema(folder / "preflight.parquet").metadata
    assert metadata[b"chakram.run_id"] == b"r1"
    assert metadata[b"chakram.table"] == b"preflight"
    assert metadata[b"chakram.schema_version"] == b"2"


def test_classes_are_shown_as_dscp_and_ecn(folder: Path) -> None:
    document = json.loads((folder / "preflight.json").read_text())
    # The upper six bits, and the lower two: 106 = 26 << 2 | 2.
    assert document["pairs"][0]["classes"] == [
        {"dscp": 26, "ecn": 2, "arrived_dscp": 26, "arrived_ecn": 0, "packets": 3},
        {"dscp": 0, "ecn": 2, "arrived_dscp": 0, "arrived_ecn": 3, "packets": 5},
    ]
    assert document["passed"] is False


@pytest.mark.parametrize("version", [1, 2])
def test_older_reports_are_read(folder: Path, version: int) -> None:
    path = folder / "preflight.json"
    document = json.loads(path.read_text()) | {"schema_version": version}
    # They did not note it.
    del document["dilation"]
    path.write_text(json.dumps(document))
    assert read_preflight(folder) == (REPORT, 1)


@pytest.mark.parametrize("version", [0, -1])
def test_versions_begin_at_one(folder: Path, version: int) -> None:
    path = folder / "preflight.json"
    path.write_text(
        json.dumps(json.loads(path.read_text()) | {"schema_version": version})
    )
    with pytest.raises(NoRunDirectory, match=f"has schema version {version}"):
        read_preflight(folder)


def test_record_of_a_run_includes_preflight_findings() -> None:
    assert preflight_summary(REPORT) == {
        "passed": False,
        "pairs": 2,
        "findings": [
            {
                "verdict": FAILED,
                "finding": "rate: h0 -> h1: is slow (look at the cable)",
            }
        ],
    }


@pytest.mark.parametrize(
    ("status", "preflight", "ended"),
    [
        (FAILED_RUN, {"passed": False}, True),
        (FAILED_RUN, {"passed": True}, False),
        (FAILED_RUN, {}, False),
        ("complete", {"passed": False}, False),
    ],
)
def test_a_run_was_ended_by_a_preflight_that_failed(
    status: str, preflight: dict[str, bool], ended: bool
) -> None:
    manifest = RunManifest(
        run_id="r", name="n", world="w", started_at="", status=status,
        preflight=preflight,
    )  # fmt: skip
    assert ended_by_preflight(manifest) is ended


def test_folder_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError, match="cannot be written") as caught:
        save_preflight(tmp_path / "gone", REPORT, run_id="r1", dilation=1)
    assert "gone" in str(caught.value)
