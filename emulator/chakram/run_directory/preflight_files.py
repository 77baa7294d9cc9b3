"""The results of a preflight as files: ``preflight.json`` and ``preflight.parquet``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from chakram.foundation.errors import NoRunDirectory
from chakram.preflight.report import (
    Finding,
    PairReport,
    PreflightReport,
    PreflightSettings,
)
from chakram.run_directory.manifest import PREFLIGHT, SCHEMA_VERSION, explained_writes


def _fields(kind: pa.DataType, *names: str, nullable: bool = True) -> list[pa.Field]:
    return [pa.field(name, kind, nullable=nullable) for name in names]


PREFLIGHT_SCHEMA = pa.schema(
    [
        *_fields(pa.string(), "run_id", "source", "destination", nullable=False),
        *_fields(pa.int64(), "probes_sent", "probes_arrived", nullable=False),
        *_fields(pa.list_(pa.int64()), "paths_failed", nullable=False),
        *_fields(pa.int64(), "path_mtu", "packet_bytes"),
        *_fields(pa.float64(), "goodput_bps", "expected_bps", "train_bps"),
        *_fields(pa.float64(), "rate_share", "together_bps", "together_share"),
        *_fields(pa.int64(), "round_trip_min_ns", "round_trip_p50_ns"),
        *_fields(pa.int64(), "round_trip_p99_ns"),
        *_fields(pa.float64(), "jitter_ns"),
        *_fields(pa.int64(), "packets", "retransmitted", nullable=False),
        *_fields(pa.float64(), "generator_share"),
        *_fields(pa.list_(pa.string()), "failed", nullable=False),
    ]
)
"""One row per pair and direction. ``failed`` lists the checks that the pair failed."""


def preflight_document(report: PreflightReport) -> dict[str, Any]:
    """Return the whole report as plain dictionaries, lists, numbers and strings."""
    return {
        "schema_version": SCHEMA_VERSION,
        "passed": report.passed,
        "ports": list(report.ports),
        "settings": asdict(report.settings),
        "findings": [asdict(finding) for finding in report.findings],
        "pairs": [_row(pair) | {"classes": _classes(pair)} for pair in report.pairs],
    }


def read_preflight(folder: Path) -> tuple[PreflightReport, int]:
    """Return the report in *folder*, and the dilation of the report's times and rates.

    Raises:
        NoRunDirectory: If there is no report, or the report is invalid.
    """
    path = folder / f"{PREFLIGHT}.json"
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        version = document["schema_version"]
        if not 1 <= version <= SCHEMA_VERSION:
            raise NoRunDirectory(
                str(path),
                f"has schema version {version}, but this Chakram reads versions up to "
                f"{SCHEMA_VERSION}",
            )
        report = PreflightReport(
            ports=tuple(document["ports"]),
            pairs=_read(
                tuple[PairReport, ...],
                [row | {"classes": _classes_sent(row)} for row in document["pairs"]],
            ),
            findings=_read(tuple[Finding, ...], document["findings"]),
            settings=_read(PreflightSettings, document["settings"]),
        )
        # Older reports do not record the dilation.
        return report, int(document.get("dilation", 1))
    except FileNotFoundError as error:
        raise NoRunDirectory(
            str(folder),
            "contains no preflight results",
            "run `chakram preflight` and let it finish",
        ) from error
    except OSError as error:
        raise NoRunDirectory(str(path), f"cannot be read: {error.strerror}") from error
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise NoRunDirectory(
            str(path), "is damaged: its contents are invalid"
        ) from error


def _read(kind: Any, document: object) -> Any:
    """Convert a part of the document. Fields of later versions are ignored."""
    from pydantic import TypeAdapter  # slow to import, and most runs have no preflight

    return TypeAdapter(kind).validate_python(document)


def _classes_sent(row: Mapping[str, Any]) -> list[tuple[int, int, int]]:
    """Return (TOS as sent, TOS as arrived, packets) for the probes that arrived."""
    return [
        (
            each["dscp"] << 2 | each["ecn"],
            each["arrived_dscp"] << 2 | each["arrived_ecn"],
            each["packets"],
        )
        for each in row["classes"]
    ]


def preflight_summary(report: PreflightReport) -> dict[str, Any]:
    """Return the preflight results that ``run.json`` contains."""
    return {
        "passed": report.passed,
        "pairs": len(report.pairs),
        "findings": [
            {"verdict": finding.verdict, "finding": str(finding)}
            for finding in report.findings
        ],
    }


def _row(pair: PairReport) -> dict[str, Any]:
    row = asdict(pair)
    del row["classes"]
    row["rate_share"] = pair.rate_share
    row["together_share"] = pair.together_share
    return row


def _classes(pair: PairReport) -> list[dict[str, int]]:
    return [
        {
            "dscp": sent >> 2,
            "ecn": sent & 3,
            "arrived_dscp": arrived >> 2,
            "arrived_ecn": arrived & 3,
            "packets": count,
        }
        for sent, arrived, count in pair.classes
    ]


def save_preflight(
    folder: Path, report: PreflightReport, *, run_id: str, dilation: int
) -> None:
    """Write ``preflight.json`` and ``preflight.parquet`` into *folder*.

    *dilation* is the dilation of the report's times and rates.

    Raises:
        RunDirectoryError: If the files cannot be written.
    """
    failed: dict[tuple[str, str], list[str]] = {}
    for finding in report.failures:
        for pair in finding.pairs:
            failed.setdefault(pair, []).append(finding.check)
    rows = []
    for each in report.pairs:
        own = dict.fromkeys(failed.get((each.source, each.destination), ()))
        rows.append(_row(each) | {"run_id": run_id, "failed": list(own)})
    metadata = {
        "chakram.schema_version": str(SCHEMA_VERSION),
        "chakram.run_id": run_id,
        "chakram.table": PREFLIGHT,
    }
    table = pa.Table.from_pylist(rows, PREFLIGHT_SCHEMA.with_metadata(metadata))
    document = {**preflight_document(report), "dilation": dilation}
    text = json.dumps(document, indent=1, ensure_ascii=False)
    with explained_writes(folder):
        pq.write_table(table, folder / f"{PREFLIGHT}.parquet", compression="zstd")
        (folder / f"{PREFLIGHT}.json").write_text(text + "\n", encoding="utf-8")
