"""``run.json`` comes back as it was written, or is refused with a sentence."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from chakram.errors import RunDirectoryError
from chakram.observe.manifest import (
    ClockReading,
    RunManifest,
    read_manifest,
    write_manifest,
)

MANIFEST = RunManifest(
    run_id="r1",
    name="quickstart",
    world="namespaces",
    started_at="2026-01-31T12:00:00+00:00",
    clocks={"a": ClockReading(offset_ns=-5, uncertainty_ns=30)},
    banners=("look here",),
    experiment={"version": 1, "jobs": [{"name": "moe"}]},
)


def test_manifest_comes_back(tmp_path: Path) -> None:
    write_manifest(tmp_path, MANIFEST)
    assert read_manifest(tmp_path) == MANIFEST
    assert json.loads((tmp_path / "run.json").read_text())["schema_version"] == 1
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


def test_uncertainty_is_that_of_the_worst_clock() -> None:
    assert MANIFEST.clock_uncertainty_ns == 30
    assert replace(MANIFEST, clocks={}).clock_uncertainty_ns == 0


def test_unknown_status_is_refused() -> None:
    with pytest.raises(ValueError, match="status 'done' is none of running"):
        replace(MANIFEST, status="done")


def test_fields_of_later_versions_of_the_same_schema_are_ignored(
    tmp_path: Path,
) -> None:
    write_manifest(tmp_path, MANIFEST)
    document = json.loads((tmp_path / "run.json").read_text())
    (tmp_path / "run.json").write_text(json.dumps({**document, "mood": "good"}))
    assert read_manifest(tmp_path) == MANIFEST


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (None, "run.json cannot be read: No such file or directory"),
        ("{", "not JSON"),
        ("[]", "has no schema_version"),
        ('{"schema_version": 2}', "has schema version 2, this Chakram reads 1"),
        ('{"schema_version": 1, "run_id": "r"}', "is damaged: .*missing"),
        ('{"schema_version": 1, "clocks": []}', "is damaged"),
    ],
)
def test_what_is_no_manifest_is_refused(
    tmp_path: Path, text: str | None, sentence: str
) -> None:
    if text is not None:
        (tmp_path / "run.json").write_text(text)
    with pytest.raises(RunDirectoryError, match=sentence) as caught:
        read_manifest(tmp_path)
    assert caught.value.exit_code == 3
