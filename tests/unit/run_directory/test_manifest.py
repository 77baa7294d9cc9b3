"""``run.json`` is read back unchanged or refused in one sentence."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from chakram.foundation.errors import NoRunDirectory
from chakram.run_directory.manifest import (
    ClockReading,
    RunManifest,
    read_manifest,
    write_manifest,
)
from chakram.summary.generator_health import GeneratorHealth, ShardHealth, TimeBounds

MANIFEST = RunManifest(
    run_id="r1",
    name="quickstart",
    world="namespaces",
    started_at="2026-01-31T12:00:00+00:00",
    clocks={"a": ClockReading(offset_ns=-5, uncertainty_ns=30)},
    generator={
        "a": GeneratorHealth(
            round_trip=TimeBounds(count=3, p50_ns=1000, p99_ns=2000, max_ns=4000),
            socket_drops=5,
            shards=(ShardHealth(shard=0, wall_ns=9, busy_ns=7),),
        )
    },
    banners=("look here",),
    experiment={"version": 1, "jobs": [{"name": "moe"}]},
)


def _with(**changes: object) -> str:
    names = ("run_id", "name", "world", "started_at")
    return json.dumps({"schema_version": 1, **dict.fromkeys(names, "x"), **changes})


def test_manifest_is_read_back(tmp_path: Path) -> None:
    write_manifest(tmp_path, MANIFEST)
    assert read_manifest(tmp_path) == MANIFEST
    assert json.loads((tmp_path / "run.json").read_text())["schema_version"] == 2
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


def test_uncertainty_is_that_of_the_worst_clock() -> None:
    assert MANIFEST.clock_uncertainty_ns == 30
    assert replace(MANIFEST, clocks={}).clock_uncertainty_ns == 0


def test_unknown_status_is_refused() -> None:
    with pytest.raises(ValueError, match="status 'done' is not one of running"):
        replace(MANIFEST, status="done")


def test_fields_of_later_versions_of_the_same_schema_are_ignored(
    tmp_path: Path,
) -> None:
    write_manifest(tmp_path, MANIFEST)
    document = json.loads((tmp_path / "run.json").read_text())
    (health,) = document["generator"].values()
    for each in (health, health["round_trip"], health["shards"][0]):
        each["mood"] = "good"
    (tmp_path / "run.json").write_text(json.dumps({**document, "mood": "good"}))
    assert read_manifest(tmp_path) == MANIFEST


def test_run_without_generator_data_is_read(tmp_path: Path) -> None:
    write_manifest(tmp_path, MANIFEST)
    document = json.loads((tmp_path / "run.json").read_text())
    del document["generator"]
    (tmp_path / "run.json").write_text(json.dumps(document))
    assert read_manifest(tmp_path) == replace(MANIFEST, generator={})


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (None, "contains no run.json"),
        ("{", "is not valid JSON"),
        ("[]", "has no schema_version"),
        (
            '{"schema_version": 3}',
            "has schema version 3, but this Chakram reads versions up to 2",
        ),
        ('{"schema_version": 1, "run_id": "r"}', "lacks name, world, started_at"),
        (_with(clocks=[3]), "'clocks' has an invalid value"),
        (_with(clocks={"a": {"offset": 3}}), "'clocks' has an invalid value"),
        (_with(generator={"a": 3}), "'generator' has an invalid value"),
        (_with(generator={"a": {"shards": [{}]}}), "'generator' has an invalid value"),
        (_with(banners=3), "'banners' has an invalid value"),
        (_with(rows=3), "'rows' has an invalid value"),
        (_with(dilation=0), "'dilation' has an invalid value"),
        (_with(unix_offset_ns=-1), "'unix_offset_ns' has an invalid value"),
        (_with(jobs={"a": {"ranks": "4"}}), "'jobs' has an invalid value"),
        (_with(jobs=[3]), "'jobs' has an invalid value"),
        (_with(traces={"a": 3}), "'traces' has an invalid value"),
        (_with(link_faults=[{"at_ns": "3"}]), "'link_faults' has an invalid value"),
        (_with(link_faults=[{}]), "'link_faults' has an invalid value"),
        (
            _with(packet_faults=[{"packets": -1}]),
            "'packet_faults' has an invalid value",
        ),
        (_with(verification={"every": None}), "'verification' has an invalid value"),
        (_with(preflight={"findings": 3}), "'preflight' has an invalid value"),
        (_with(experiment={"fabric": 3}), "'experiment' has an invalid value"),
        (_with(injected={"drop": "x"}), "'injected' has an invalid value"),
        (_with(name="\ud800"), "is not valid JSON"),
        (_with(host={"cores": 10**30}), "has more than 20 digits"),
        (_with(status="done"), "status 'done' is not one of running"),
    ],
)
def test_invalid_manifest_is_refused(
    tmp_path: Path, text: str | None, sentence: str
) -> None:
    if text is not None:
        (tmp_path / "run.json").write_text(text)
    with pytest.raises(NoRunDirectory, match=sentence) as caught:
        read_manifest(tmp_path)
    assert caught.value.exit_code == 2
