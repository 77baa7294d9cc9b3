"""Run directories of a small plan."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from chakram.records.run_records import CollectiveKey
from chakram.run_directory.manifest import RunManifest
from chakram.run_directory.writer import RunDirectory
from tests.small_run import small_plan

STARTED = datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC)
WORLD = CollectiveKey("moe", "world", 0)
EP1 = CollectiveKey("moe", "ep1", 0)


def begin(parent: Path, **fields: object) -> RunDirectory:
    manifest = RunManifest(
        run_id="r1",
        name="quick start",
        world="namespaces",
        started_at=STARTED.isoformat(),
        warmup=1,
        measured=3,
    )
    directory = RunDirectory.create(
        parent, manifest=manifest, started=STARTED, experiment_text="version: 1\n"
    )
    directory.update(**fields)
    directory.begin(small_plan())
    return directory


def files(path: Path) -> list[str]:
    return sorted(
        str(item.relative_to(path)) for item in path.rglob("*") if item.is_file()
    )
