"""Checks of tables from a run directory: types, ranges, allowed strings and ranks.

A table may be damaged, edited, or from another program. If a table passes these checks,
the rest of the code can safely sum, plot and look up its values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from chakram.collectives.ops import CollectiveOp
from chakram.records.row_layout import LINK_SAMPLE_FIELDS
from chakram.records.run_records import OBSERVED
from chakram.run_directory import schemas

if TYPE_CHECKING:
    from chakram.run_directory.plan_document import PlanDocument

_MOST_NS = 1 << 60
"""Limit on times in ns, about 36 years. The sum of seven such times is below 2**63."""

_MOST = 1 << 56
"""Limit on bytes, packets and rates. The sum of a hundred such values is below
2**63."""

_MOST_COUNTED = 1 << 62
"""Limit on counters since the start of a switch, which are never summed. A port at 400
Gbit/s exceeds 2**56 bytes within 17 days."""

_SINCE_START = ("bytes_before", "bytes_after")
"""Columns of counters since the start of a switch."""

_MOST_RANKS = 1 << 20

_RANK_COLUMNS = {
    *("rank", "peer", "src", "dst", "cause_rank", "end_rank", "nranks", "root"),
    *("number", "port", "peer_port", "critical_src", "critical_dst"),
}
"""Columns of type int32 that contain the numbers of ranks and ports, or counts."""

_MOST_OF = {"udp_source_port": 65_535, "traffic_class": 7}
"""Largest value of other columns of type int32."""

_MAY_BE_NULL = {
    "flows": {"cause", "cause_rank", "cause_number", "number", "departed_ns"}
    | {"received_ns", "queue_port", "pause_port", "slow_ns", "slow_port"}
    | {*schemas.OWN_PARTS, *schemas.PATH_PARTS},
    "collectives": {"root", "send_node_id", "receive_node_id", "receive_name"}
    | {"slip_ns", "wrong", "critical_src", "critical_dst", "critical_step"}
    | {"critical_posted_ns", "critical_last_acked_ns"},
    "links": {"drops", "marked", "pauses", "paused_ns", "down_ns", "port", "rate_bps"}
    | {"equal_cost", "observed"},
    "link_samples": {"traffic_class", *LINK_SAMPLE_FIELDS[3:]},
    "faults": {"link", "direction", "start_ns", "end_ns", "recovered_ns", "packets"},
    "operations": {"group", "k", "stream", "nominal_ns", "cause_number", "held_by"}
    | {"end_cause", "end_rank", "end_number"},
    "queue_pairs": {"alpha"},
}
"""Columns in which a run writes nulls, by table."""

_MAY_BE_NEGATIVE = {
    *(
        "offset_ns",
        "fitted_offset_ns",
        "time_ns",
        "ready_ns",
        "start_ns",
        "end_ns",
        "posted_ns",
        "first_sent_ns",
    ),
    *("departed_ns", "received_ns", "last_acked_ns", "recovered_ns"),
    *("critical_posted_ns", "critical_last_acked_ns", "duration_ns", "slip_ns"),
    *schemas.PATH_PARTS,
}
"""Columns of times with an arbitrary zero, or of differences between the clocks of two
hosts."""

_WORDS: dict[tuple[str, str], frozenset[str]] = {
    ("flows", "collective"): frozenset(CollectiveOp),
    ("flows", "cause"): frozenset(schemas.CAUSES),
    ("collectives", "collective"): frozenset(CollectiveOp),
    ("operations", "kind"): frozenset(schemas.KINDS),
    ("operations", "end_cause"): frozenset(schemas.END_CAUSES),
    ("links", "kind"): frozenset(("host", "uplink")),
    ("links", "direction"): frozenset(("up", "down")),
    ("links", "observed"): frozenset(OBSERVED),
}
"""Allowed strings, by table and column."""

_PORTS_OF = {"ports": ("port",), "queue_pair_ends": ("port", "peer_port")}
_RANKS_OF = {
    "flows": ("src", "dst"),
    "ranks": ("rank",),
    "operations": ("rank",),
    "queue_pairs": ("rank", "peer"),
    "queue_pair_ends": ("rank", "peer"),
}
"""Columns that contain ranks of the row's job, by table."""


def column_type(table: str, column: str) -> pa.DataType | None:
    """Return the type of a table's column, or None if the table has no such column."""
    at = schemas.SCHEMAS[table].get_field_index(column)
    if at >= 0:
        return schemas.SCHEMAS[table].field(at).type
    if table == "flows" and column == "path":
        return schemas.OF_EVERY_TABLE.field(0).type
    is_known = column in ("bound_ns", "alone_ns", "ceiling_ns", "fair_ns")
    return pa.int64() if is_known or column.startswith("predicted_") else None


def check_table(table: pa.Table, name: str, *, has_nics: bool = False) -> Iterator[str]:
    """Yield the problems of a table's columns, each as a clause.

    Args:
        table: A table with any columns and rows.
        name: One of ``SCHEMAS``.
        has_nics: Whether any port of the run is on an RDMA NIC.
    """
    counts = Counter(table.column_names)
    for field, column in zip(table.schema, table.columns, strict=True):
        kind = column_type(name, field.name)
        if kind is None:
            continue
        if counts[field.name] > 1:
            yield f"has column {field.name} more than once"
        elif field.type != kind:
            yield f"column {field.name} is of type {field.type}, not {kind}"
        else:
            yield from _values(column, name, field.name, has_nics)


def _values(
    column: pa.ChunkedArray, table: str, name: str, has_nics: bool
) -> Iterator[str]:
    try:
        column.validate(full=True)
    except pa.ArrowInvalid as error:
        yield f"column {name} is damaged: {error}"
        return
    is_own = schemas.SCHEMAS[table].get_field_index(name) >= 0
    nulls = column.null_count
    if pa.types.is_dictionary(column.type):
        texts = [each.dictionary for each in column.chunks]
        nulls = nulls or sum(each.null_count for each in texts)
        words = _WORDS.get((table, name))
        found = {text for each in texts for text in each.to_pylist()} if words else ()
        if unknown := sorted({*found} - {None} - (words or frozenset())):
            yield f"column {name} has {unknown[0]!r}, which is not an allowed value"
    elif (table, name) in _WORDS:
        found = pc.unique(column).to_pylist()
        if unknown := sorted({*found} - {None} - _WORDS[table, name]):
            yield f"column {name} has {unknown[0]!r}, which is not an allowed value"
    elif pa.types.is_integer(column.type):
        ends = pc.min_max(column).as_py()
        least, most = bounds(name, column.type)
        if ends["min"] is not None and not least <= ends["min"] <= ends["max"] <= most:
            odd = ends["min"] if ends["min"] < least else ends["max"]
            yield f"column {name} has {odd}, which is not from {least} to {most}"
    elif (
        pa.types.is_floating(column.type)
        and pc.all(pc.is_finite(column)).as_py() is False
    ):
        yield f"column {name} has a number that is not finite"
    if has_nics and name in schemas.BLANK.get(table, ()):
        return
    if nulls and is_own and not may_be_null(table, name):
        yield f"column {name} has {nulls} rows without a value"


def may_be_null(table: str, column: str) -> bool:
    """Return whether a run may write nulls in a column of a table."""
    return column in _MAY_BE_NULL.get(table, ())


def bounds(name: str, kind: pa.DataType) -> tuple[int, int]:
    """Return the smallest and the largest number allowed in an integer column."""
    if pa.types.is_unsigned_integer(kind):
        return 0, (1 << 64) - 1
    if kind == pa.int32():
        most = _MOST_RANKS if name in _RANK_COLUMNS else (1 << 31) - 1
        # A collective has at least one rank.
        return int(name == "nranks"), _MOST_OF.get(name, most)
    if name in _SINCE_START:
        return 0, _MOST_COUNTED
    if not name.endswith("_ns"):
        # The number of a message contains the channel in its upper half.
        return 0, ((1 << 63) - 1 if name.endswith("number") else _MOST)
    return (-_MOST_NS if name in _MAY_BE_NEGATIVE else 0), _MOST_NS


def check_references(table: pa.Table, name: str, plan: PlanDocument) -> Iterator[str]:
    """Yield a clause for each rank or port in a table that is missing from the plan.

    Args:
        table: A table with any columns. Ranks are checked only if the table has the
            column ``job``.
        name: One of ``SCHEMAS``.
        plan: Plan of the run.
    """
    ports = {port.number for port in plan.ports}
    for column in _PORTS_OF.get(name, ()):
        if column in table.column_names:
            named = pc.unique(table[column]).to_pylist()
            if unknown := sorted({*named} - ports):
                yield f"names port {unknown[0]}, which is not in plan.json"
    for column in _RANKS_OF.get(name, ()):
        if not {"job", column} <= set(table.column_names):
            continue
        pairs = table.select(["job", column]).unify_dictionaries()
        for row in pairs.group_by(["job", column]).aggregate([]).to_pylist():
            if (row["job"], row[column]) not in plan.places:
                yield (
                    f"names rank {row[column]} of job {row['job']!r}, which is not in "
                    "plan.json"
                )
