from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from chakram.diagnosis.run_evidence import measured_messages, without_core
from chakram.foundation.errors import InputError
from chakram.run_directory.manifest import ClockReading
from chakram.run_directory.reader import RunResults, open_run
from chakram.summary.generator_health import GeneratorHealth, ShardHealth
from tests.made_runs import made_run

if TYPE_CHECKING:
    from pathlib import Path


def test_only_messages_of_measured_iterations_are_used(tmp_path: Path) -> None:
    flows, times_ns = measured_messages(made_run(tmp_path), None)
    assert times_ns.keys() == flows.keys()
    assert all(min(each_ns) > 0 for each_ns in times_ns.values())


def test_delivery_is_known_as_far_as_clocks_agree(tmp_path: Path) -> None:
    results = made_run(tmp_path)
    flows = pq.read_table(results.path / "flows.parquet")
    assert set(_delivered_ns(results, 0)) == {None}, "receivers told nothing"
    _replace(results.path / "flows.parquet", "received_ns", flows["posted_ns"], 1000)
    assert set(_delivered_ns(results, 20)) == {1000}
    assert set(_delivered_ns(results, 21)) == {None}
    _replace(results.path / "flows.parquet", "received_ns", flows["posted_ns"], -1)
    assert set(_delivered_ns(results, 0)) == {None}, "before it was posted"


def _delivered_ns(results: RunResults, uncertainty_ns: int) -> list[int | None]:
    clock = ClockReading(offset_ns=0, uncertainty_ns=uncertainty_ns)
    manifest = replace(results.manifest, clocks={"agent": clock})
    messages, _ = measured_messages(RunResults(results.path, manifest), None)
    return [each.delivered_ns for own in messages.values() for each in own]


def _replace(path: Path, name: str, values: pa.ChunkedArray, more: int) -> None:
    table = pq.read_table(path)
    column = table.schema.get_field_index(name)
    field = table.schema.field(column)
    pq.write_table(table.set_column(column, field, pc.add(values, more)), path)


def test_a_host_lacks_the_cores_that_its_process_lacked(tmp_path: Path) -> None:
    results = made_run(tmp_path)
    plan = results.plan()
    assert plan is not None
    shards = {row["shard"] for row in results.table("ports").to_pylist()}
    health = GeneratorHealth(
        shards=tuple(
            ShardHealth(shard=each, wall_ns=1000, queued_ns=100 * each + 50)
            for each in shards
        )
    )
    manifest = replace(
        results.manifest, generator={each.agent: health for each in plan.agents}
    )
    shares = without_core(RunResults(results.path, manifest))
    assert set(shares.values()) == {(100 * each + 50) / 1000 for each in shards}
    assert without_core(results) == {}


def test_iterations_that_end_before_they_start_are_left_out(tmp_path: Path) -> None:
    directory = made_run(tmp_path).path
    ends_ns = pq.read_table(directory / "ranks.parquet")["end_ns"]
    early = pc.multiply(ends_ns, 0)
    _replace(directory / "ranks.parquet", "end_ns", early, -(10**9))
    with pytest.raises(InputError, match="has no measured iteration"):
        measured_messages(open_run(directory), None)
