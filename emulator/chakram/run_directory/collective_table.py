"""Conversion of records of collectives to tables, and of tables to records.

A job may have hundreds of thousands of point-to-point messages. Both conversions
therefore work column by column. With a mapping per row, they would take several times
as long.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from operator import attrgetter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from chakram.collectives.ops import CollectiveOp
from chakram.records.run_records import (
    CollectiveIdentity,
    CollectiveKey,
    CollectiveRecord,
    CriticalFlow,
)
from chakram.run_directory.schemas import COLLECTIVES

# Three sets of columns: those with attributes of the identity, of the record itself,
# and of the critical flow.
_OF_IDENTITY = {
    "job": "key.job",
    "group": "key.group",
    "k": "key.k",
    "name": "name",
    "collective": "op.value",
    "algorithm": "algorithm",
    "nranks": "nranks",
    "root": "root",
    "input_bytes": "input_bytes",
    "trace_input_bytes": "trace_bytes",
    "size_bytes": "size_bytes",
    "trace_size_bytes": "trace_size_bytes",
    "expected_shares": "shares",
    "send_node_id": "send_node_id",
    "receive_node_id": "receive_node_id",
    "receive_name": "receive_name",
}
_ATTRIBUTES = {each.name for each in fields(CollectiveIdentity)}
_STORED = {name: own for name, own in _OF_IDENTITY.items() if own in _ATTRIBUTES}
_OF_RECORD = tuple(
    name for name in CollectiveRecord._fields if name not in ("identity", "critical")
)
_LATER = ("slip_ns", "wrong", "send_node_id", "receive_node_id", "receive_name")
"""Columns that earlier versions did not write."""

_ZERO = ("slip_ns", "wrong", "packets", "retransmitted", "ce")
"""Columns whose missing values count as 0.

Old versions and ports on NICs do not record these values.
"""

_DERIVED = ("duration_ns", "generator_bound")
_OF_CRITICAL = CriticalFlow._fields


def collectives_table(records: Iterable[CollectiveRecord]) -> pa.Table:
    """Return a table of records, with the schema ``COLLECTIVES``."""
    rows = list(records)
    made: dict[str, pa.Array] = {}

    def add(name: str, values: Iterable[Any]) -> None:
        kind = COLLECTIVES.field(name).type
        plain = kind.value_type if pa.types.is_dictionary(kind) else kind
        made[name] = pa.array(list(values), plain)

    # A collective has the same properties in all iterations, so convert them once.
    place_of: dict[int, int] = {}
    identities: list[CollectiveIdentity] = []
    places = []
    for row in rows:
        place = place_of.setdefault(id(row.identity), len(identities))
        if place == len(identities):
            identities.append(row.identity)
        places.append(place)
    taken = pa.array(places, pa.int32())
    for name, attribute in _OF_IDENTITY.items():
        add(name, map(attrgetter(attribute), identities))
        made[name] = made[name].take(taken)
    for name in (*_OF_RECORD, *_DERIVED):
        add(name, map(attrgetter(name), rows))
    criticals = [row.critical for row in rows]
    for name in _OF_CRITICAL:
        value = attrgetter(name)
        add(
            f"critical_{name}",
            (None if critical is None else value(critical) for critical in criticals),
        )
    return pa.table({name: made[name] for name in COLLECTIVES.names}).cast(COLLECTIVES)


def collective_records(table: pa.Table) -> list[CollectiveRecord]:
    """Return the records in the rows of a table of collectives.

    Columns that earlier versions did not write may be missing.
    """
    for name in _LATER:
        if name not in table.column_names:
            kind = COLLECTIVES.field(name).type
            table = table.append_column(name, pa.nulls(table.num_rows, kind))
    for name in _ZERO:
        filled = table[name].fill_null(0)
        table = table.set_column(table.column_names.index(name), name, filled)
    columns: dict[str, Iterable[Any]] = {
        name: column_values(table[name]) for name in _OF_RECORD
    }
    columns["identity"] = _identities(table)
    columns["critical"] = _criticals(table)
    rows = zip(*(columns[name] for name in CollectiveRecord._fields), strict=True)
    return list(map(CollectiveRecord._make, rows))


def _identities(table: pa.Table) -> list[CollectiveIdentity]:
    """Return the identity of each row. Rows of one collective share one object."""
    made: dict[CollectiveKey, CollectiveIdentity] = {}
    names = ("job", "group", "k", "collective", *_STORED)
    columns = {name: column_values(table[name]) for name in names}
    rows = zip(*(columns[name] for name in names[:3]), strict=True)
    keys = list(map(CollectiveKey._make, rows))
    for place, key in enumerate(keys):
        if key not in made:
            made[key] = CollectiveIdentity(
                key=key,
                op=CollectiveOp(columns["collective"][place]),
                **{own: columns[name][place] for name, own in _STORED.items()},
            )
    return [made[key] for key in keys]


def _criticals(table: pa.Table) -> list[CriticalFlow | None]:
    columns = [column_values(table[f"critical_{name}"]) for name in _OF_CRITICAL]
    return [
        None if row[0] is None else CriticalFlow._make(row)
        for row in zip(*columns, strict=True)
    ]


def column_values(column: pa.ChunkedArray) -> list[Any]:
    """Return the values of a column as Python objects, with None for null.

    Rows with equal names share one string. pyarrow's ``to_pylist`` creates two objects
    for each row of a dictionary column, which takes fifty times as long.
    """
    if not pa.types.is_dictionary(column.type):
        return list(column.to_pylist())
    whole = column.unify_dictionaries().combine_chunks()
    names = [*whole.dictionary.to_pylist(), None]
    places = pc.fill_null(whole.indices, len(names) - 1)
    return [names[place] for place in places.to_pylist()]
