from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from chakram.diagnosis.run_evidence import measured_messages
from chakram.foundation.errors import InputError
from chakram.run_directory.reader import open_run
from tests.made_runs import made_run

if TYPE_CHECKING:
    from pathlib import Path


def test_only_messages_of_measured_iterations_are_used(tmp_path: Path) -> None:
    flows, times_ns = measured_messages(made_run(tmp_path), None)
    assert times_ns.keys() == flows.keys()
    assert all(min(each_ns) > 0 for each_ns in times_ns.values())


def test_iterations_that_end_before_they_start_are_left_out(tmp_path: Path) -> None:
    directory = made_run(tmp_path).path
    table = pq.read_table(directory / "ranks.parquet")
    column = table.schema.get_field_index("end_ns")
    early = pa.array([-(10**9)] * table.num_rows, pa.int64())
    pq.write_table(
        table.set_column(column, table.schema.field(column), early),
        directory / "ranks.parquet",
    )
    with pytest.raises(InputError, match="has no measured iteration"):
        measured_messages(open_run(directory), None)
