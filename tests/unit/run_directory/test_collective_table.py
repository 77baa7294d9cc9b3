"""Conversion between records of collectives and tables."""

from __future__ import annotations

import pyarrow as pa
import pytest

from chakram.collectives.ops import CollectiveOp
from chakram.records.run_records import (
    CollectiveIdentity,
    CollectiveKey,
    CollectiveRecord,
    CriticalFlow,
)
from chakram.run_directory.collective_table import (
    collective_records,
    collectives_table,
    column_values,
)
from chakram.run_directory.schemas import COLLECTIVES


def identity(number: int, op: CollectiveOp, root: int | None) -> CollectiveIdentity:
    return CollectiveIdentity(
        key=CollectiveKey("moe", f"g{number % 2}", number),
        name=f"name {number}",
        op=op,
        algorithm="ring" if number % 2 else "tree",
        nranks=4 + number,
        root=root,
        input_bytes=1000 + number,
        trace_bytes=2000 + number,
        shares=3,
        send_node_id=2**64 - 1 if op is CollectiveOp.SEND_RECV else None,
        receive_node_id=8 if op is CollectiveOp.SEND_RECV else None,
        receive_name="recv" if op is CollectiveOp.SEND_RECV else None,
    )


def record(
    of: CollectiveIdentity, iteration: int, *, is_late: bool
) -> CollectiveRecord:
    return CollectiveRecord(
        identity=of,
        iteration=iteration,
        measured=iteration > 0,
        shares=2 if is_late else 3,
        start_ns=10**15 + iteration,
        end_ns=10**15 + 5_000 + iteration,
        mean_duration_ns=4_000,
        start_spread_ns=7,
        sent_bytes=1 << 40,
        packets=11,
        retransmitted=1,
        ce=2,
        generator_wait_ns=4_999 if is_late else 3,
        critical=None
        if is_late
        else CriticalFlow(src=1, dst=2, step=3, posted_ns=4, last_acked_ns=5),
        slip_ns=iteration,
    )


RECORDS = [
    record(of, iteration, is_late=iteration == 2 and of.root is None)
    for iteration in range(3)
    for of in (
        identity(0, CollectiveOp.ALL_GATHER, None),
        identity(1, CollectiveOp.BROADCAST, 0),
        identity(2, CollectiveOp.SEND_RECV, None),
    )
]


@pytest.mark.parametrize("records", [[], RECORDS[:1], RECORDS, RECORDS[-3:-2]])
def test_table_returns_its_records(
    records: list[CollectiveRecord],
) -> None:
    table = collectives_table(records)

    assert table.schema == COLLECTIVES
    assert collective_records(table) == records
    assert table["size_bytes"].to_pylist() == [
        each.identity.size_bytes for each in records
    ]
    assert table["duration_ns"].to_pylist() == [each.duration_ns for each in records]
    assert table["generator_bound"].to_pylist() == [
        each.generator_bound for each in records
    ]


def test_parts_with_own_names_form_one_table() -> None:
    table = pa.concat_tables([collectives_table([each]) for each in RECORDS])

    assert collective_records(table) == RECORDS


def test_iterations_of_a_collective_share_their_identity() -> None:
    found = collective_records(collectives_table(RECORDS))

    assert len({id(each.identity) for each in found}) == 3


def test_tables_without_the_slip_column_are_read() -> None:
    table = collectives_table(RECORDS).drop_columns(["slip_ns"])

    assert {each.slip_ns for each in collective_records(table)} == {0}


@pytest.mark.parametrize(
    "values",
    [
        pa.array([], pa.int64()),
        pa.array([None, None], pa.int32()),
        pa.array([1, None, 2**62], pa.int64()),
        pa.array([True, None, False]),
        pa.array([True, False]),
        pa.array(["a", None, "b", "a"]),
        pa.array(["a", None, "b", "a"]).dictionary_encode(),
        pa.array([], pa.string()).dictionary_encode(),
        pa.array([0.5, None]),
    ],
)
def test_values_equal_those_of_the_column(values: pa.Array) -> None:
    column = pa.chunked_array([values, values.slice(0, 1)])

    assert column_values(column) == column.to_pylist()
