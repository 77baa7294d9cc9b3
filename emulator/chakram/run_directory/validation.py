"""Validation of a run directory against its schema version.

The checks cover everything that other tools may rely on: files and their digests,
columns and types, identity and number of rows, sums of parts, and references between
tables. ``check_run`` returns all problems at once and does not raise them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from chakram.foundation.errors import RunDirectoryError
from chakram.run_directory.growing_table import is_there, table_files
from chakram.run_directory.manifest import (
    COMPLETE,
    MANIFEST,
    SCHEMA_VERSION,
    SIMULATE,
    file_digest,
)
from chakram.run_directory.plan_document import PLAN
from chakram.run_directory.reader import RunResults
from chakram.run_directory.schemas import (
    OF_EVERY_TABLE,
    OWN_PARTS,
    PATH_PARTS,
    SCHEMAS,
    plain_names,
)
from chakram.run_directory.table_checks import check_references, check_table

_COLLECTIVE = ("job", "iteration", "group", "k")
_MESSAGE = (*_COLLECTIVE, "src", "dst", "number")
_ORDERS = {
    "flows": (
        ("posted_ns", "first_sent_ns"),
        ("first_sent_ns", "departed_ns"),
        ("departed_ns", "last_acked_ns"),
    ),
    "operations": (("ready_ns", "start_ns"), ("start_ns", "end_ns")),
    "collectives": (("start_ns", "end_ns"),),
    "ranks": (("start_ns", "end_ns"),),
    "faults": (("start_ns", "end_ns"), ("end_ns", "recovered_ns")),
}
"""Pairs of columns by table. The first time must not be later than the second. Both are
on the clock of the same rank."""


class Finding(NamedTuple):
    """A deviation from the expected contents of a run directory: file and problem."""

    where: str
    found: str

    def __str__(self) -> str:
        return f"{self.where}: {self.found}"


def check_run(results: RunResults) -> list[Finding]:
    """Return all deviations from the expected contents of a run directory.

    If the result is empty, the directory is valid. For a run that is in progress or was
    killed, the checks cover only existing data.
    """
    manifest = results.manifest
    found = [
        Finding(MANIFEST, f"lists {name}, which is missing")
        for name in results.missing()
    ]
    found += _digests(results.path, manifest.digests)
    tables: dict[str, pa.Table] = {}
    for name in SCHEMAS:
        problems = list(_form(results, name))
        if not problems:
            try:
                table = results.unchecked_table(name)
                has_nics = bool(manifest.nics)
                problems = list(check_table(table, name, has_nics=has_nics))
            except RunDirectoryError as error:
                problems = [error.found]
        found += [Finding(f"{name}.parquet", text) for text in problems]
        if not problems:
            tables[name] = plain_names(table)
    for name, table in tables.items():
        for text in (
            *_identity(table, manifest.run_id, manifest.world),
            *_row_count(results, table, name),
            *_orders(table, name),
        ):
            found.append(Finding(f"{name}.parquet", text))
    flows = tables.get("flows")
    if flows is not None:
        is_virtual = manifest.world == SIMULATE
        found += [Finding("flows.parquet", each) for each in _parts(flows, is_virtual)]
    for text in _counted(tables.get("links"), "bytes", ("bytes_after", "bytes_before")):
        found.append(Finding("links.parquet", text))
    found += _references(tables, is_complete=manifest.status == COMPLETE)
    return found + _plan(results, tables)


def _digests(folder: Path, digests: Any) -> Iterator[Finding]:
    for name, expected in digests.items():
        # The file name in run.json is untrusted. Reject names in other folders.
        path = folder / name
        if path.parent == folder and path.is_file() and file_digest(path) != expected:
            yield Finding(name, "was changed since the run wrote it (SHA-256)")


def _form(results: RunResults, name: str) -> Iterator[str]:
    """Yield format problems of a table: unreadable files, metadata, wrong columns."""
    expected = {"chakram.run_id": results.manifest.run_id, "chakram.table": name}
    try:
        schemas = [pq.read_schema(path) for path in table_files(results.path, name)]
    except (OSError, pa.ArrowException) as error:
        yield f"cannot be read: {error}"
        return
    for schema in schemas:
        metadata = schema.metadata or {}
        told = {key.decode(): text.decode() for key, text in metadata.items()}
        for key, text in expected.items():
            if told.get(key) != text:
                yield f"has {key} {told.get(key)!r}, but must have {text!r}"
        version = told.get("chakram.schema_version", "")
        if not version.isdigit() or int(version) > SCHEMA_VERSION:
            yield (
                f"has chakram.schema_version {version!r}, but must have "
                f"{SCHEMA_VERSION}"
            )
            continue
        for column in SCHEMAS[name]:
            at = schema.get_field_index(column.name)
            if at < 0:
                if int(version) == SCHEMA_VERSION:
                    yield f"has no column {column.name}"
            elif schema.field(at).type != column.type:
                kind = schema.field(at).type
                yield f"column {column.name} is of type {kind}, not {column.type}"


def _identity(table: pa.Table, run_id: str, world: str) -> Iterator[str]:
    for column, expected in zip(OF_EVERY_TABLE.names, (run_id, world), strict=True):
        if column in table.column_names:
            yield from _rows(
                table,
                pc.not_equal(table[column], expected),
                f"belong to another run: {column} is not {expected!r}",
            )


def _row_count(results: RunResults, table: pa.Table, name: str) -> Iterator[str]:
    expected = results.manifest.rows.get(name)
    if expected not in (None, table.num_rows) and is_there(results.path, name):
        yield f"has {table.num_rows} rows, but {MANIFEST} records {expected}"


def _orders(table: pa.Table, name: str) -> Iterator[str]:
    for first, then in _ORDERS.get(name, ()):
        if {first, then} <= set(table.column_names):
            wrong = pc.greater(table[first], table[then])
            yield from _rows(table, wrong, f"have {first} after {then}")


def _parts(flows: pa.Table, is_virtual: bool) -> Iterator[str]:
    """Yield a clause for each error in the parts of messages' times."""
    parts = [name for name in (*OWN_PARTS, *PATH_PARTS) if name in flows.column_names]
    for name in parts:
        if is_virtual or name not in PATH_PARTS:
            yield from _rows(flows, pc.less(flows[name], 0), f"have negative {name}")
    yield from _counted(flows, "fct_ns", ("last_acked_ns", "posted_ns"))
    if len(parts) < len(OWN_PARTS) + len(PATH_PARTS):
        return
    if is_virtual:
        left_ns = pc.subtract(flows["received_ns"], flows["posted_ns"])
    else:
        parts = list(OWN_PARTS)
        left_ns = pc.subtract(flows["departed_ns"], flows["posted_ns"])
    for name in parts:
        left_ns = pc.subtract(left_ns, flows[name])
    # On a network, the parts may be shorter in total than the message's time.
    wrong = pc.not_equal(left_ns, 0) if is_virtual else pc.less(left_ns, 0)
    yield from _rows(flows, wrong, "have parts that do not sum to their time")


def _counted(
    table: pa.Table | None, total: str, ends: tuple[str, str]
) -> Iterator[str]:
    if table is not None:
        difference = pc.subtract(table[ends[0]], table[ends[1]])
        wrong = pc.not_equal(table[total], difference)
        yield from _rows(
            table, wrong, f"have {total} different from {' - '.join(ends)}"
        )


def _references(tables: dict[str, pa.Table], *, is_complete: bool) -> Iterator[Finding]:
    """Yield references to missing rows, and totals that differ from their parts."""
    flows, collectives = tables.get("flows"), tables.get("collectives")
    operations = tables.get("operations")
    if flows is None:
        return

    def lacking(
        table: pa.Table, keys: Sequence[str], other: pa.Table, others: Sequence[str]
    ) -> pa.Table:
        return table.join(
            other.select(others).group_by(list(others)).aggregate([]),
            list(keys),
            list(others),
            join_type="left anti",
        )

    def told(where: str, rows: pa.Table, what: str) -> Iterator[Finding]:
        for text in _rows(rows, None, what):
            yield Finding(f"{where}.parquet", text)

    if "number" in flows.column_names:
        twice = flows.group_by(list(_MESSAGE)).aggregate([([], "count_all")])
        twice = twice.filter(pc.field("count_all") > 1)
        yield from told("flows", twice, "describe the same message")
        caused = flows.filter(pc.field("cause") == "message")
        if is_complete:
            keys = (*_COLLECTIVE, "cause_rank", "src", "cause_number")
            yield from told(
                "flows",
                lacking(caused, keys, flows, _MESSAGE),
                "were released by a message that is not in flows.parquet",
            )
    if collectives is not None and is_complete:
        yield from told(
            "flows",
            lacking(flows, _COLLECTIVE, collectives, _COLLECTIVE),
            "belong to a collective that is not in collectives.parquet",
        )
        counts = ("packets", "retransmitted")
        sums = {"bytes": "sent_bytes", **dict(zip(counts, counts, strict=True))}
        summed = flows.group_by(list(_COLLECTIVE)).aggregate([(n, "sum") for n in sums])
        both = collectives.filter(
            pc.field("shares") == pc.field("expected_shares")
        ).join(summed, list(_COLLECTIVE), join_type="inner")
        for name, total in sums.items():
            wrong = pc.not_equal(both[f"{name}_sum"], both[total])
            what = f"have {total} different from the sum of their flows"
            yield from told("collectives", both.filter(wrong), what)
    faults, links = tables.get("faults"), tables.get("links")
    if faults is not None and links is not None and is_complete:
        yield from told(
            "faults",
            lacking(
                faults.filter(pc.field("link").is_valid()), ["link"], links, ["link"]
            ),
            "name a link that is not in links.parquet",
        )
    if operations is not None and is_complete:
        for cause, source, target in (
            ("received", "end_rank", "rank"),
            ("acknowledged", "rank", "end_rank"),
        ):
            ended = operations.filter(pc.field("end_cause") == cause)
            keys = (*_COLLECTIVE, source, target, "end_number")
            yield from told(
                "operations",
                lacking(ended, keys, flows, _MESSAGE),
                f"ended with a message {cause} that is not in flows.parquet",
            )


def _plan(results: RunResults, tables: dict[str, pa.Table]) -> list[Finding]:
    """Return findings about ranks and ports in tables that are not in the plan."""
    try:
        plan = results.plan()
    except RunDirectoryError as error:
        return [Finding(PLAN, error.found)]
    if plan is None:
        return []
    return [
        Finding(f"{name}.parquet", text)
        for name, table in tables.items()
        for text in check_references(table, name, plan)
    ]


def _rows(table: pa.Table, wrong: Any, what: str) -> Iterator[str]:
    """Yield a clause about wrong rows, if there are any.

    *wrong* is a mask of these rows. If it is None, all rows are wrong.
    """
    if wrong is not None:
        table = table.filter(wrong)
    if table.num_rows:
        first = table.slice(0, 1).to_pylist()[0]
        told = [
            f"{name} {first[name]}"
            for name in ("job", "iteration", "group", "k", "src", "dst", "rank", "link")
            if first.get(name) is not None
        ]
        where = f", e.g. {', '.join(told)}" if told else ""
        yield f"{table.num_rows} row(s) {what}{where}"
