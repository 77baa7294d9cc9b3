"""Tables of a run directory: Arrow schemas, and conversion of records to rows."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from chakram.records import row_layout

if TYPE_CHECKING:
    from chakram.control.clock_track import ClockTrack
    from chakram.plan.plan import Plan, RankPlan
    from chakram.records.named_rows import OperationTable
    from chakram.records.run_records import LinkRecord, RankRecord

_NAME = pa.dictionary(pa.int32(), pa.string())


def _of_type(kind: pa.DataType, *names: str) -> list[tuple[str, pa.DataType]]:
    """Return the names of columns, each with the same type."""
    return [(name, kind) for name in names]


OF_EVERY_TABLE = pa.schema([("run_id", _NAME), ("world", _NAME)])
"""Columns with the same value in all rows of a run, to distinguish runs."""

OWN_PARTS = (
    "own_port_ns",
    "window_ns",
    "pace_ns",
    "pause_ns",
    "transfer_ns",
    "repair_ns",
)
"""Columns of flows with the parts of a message's time at its sender."""

PATH_PARTS = ("queue_ns", "switch_pause_ns", "serialise_ns", "propagate_ns")
"""Columns of flows with the parts of a message's time on its path.

They are known in virtual time only.
"""

FLOWS = pa.schema(
    [
        ("iteration", pa.int32()),
        ("measured", pa.bool_()),
        *_of_type(_NAME, "job", "group"),
        ("k", pa.int32()),
        *_of_type(_NAME, "collective", "algorithm"),
        *_of_type(pa.int32(), "step", "channel", "src", "dst"),
        ("family", _NAME),
        *_of_type(
            pa.int64(),
            "qpn",
            "bytes",
            "ready_ns",
            "posted_ns",
            "first_sent_ns",
            "last_acked_ns",
            "fct_ns",
            "rate_at_start_bps",
            "packets",
            "retransmitted",
            "cnp",
            "generator_wait_ns",
        ),
        ("cause", _NAME),
        ("cause_rank", pa.int32()),
        *_of_type(
            pa.int64(),
            "cause_number",
            "number",
            "departed_ns",
            "received_ns",
            *OWN_PARTS,
            *PATH_PARTS,
        ),
        *_of_type(_NAME, "queue_port", "pause_port"),
        ("slow_ns", pa.int64()),
        ("slow_port", _NAME),
    ]
)
"""One row per message."""

CAUSES = ("start", "operation", "message", "grant")
"""Names of the CAUSE_* numbers of ``chakram.records.row_layout``."""

KINDS = ("compute", "collective", "send", "receive")
"""Names of the kinds of operations of ``chakram.program.columns``."""

END_CAUSES = ("start", "received", "acknowledged")
"""Names of the END_* numbers of ``chakram.records.row_layout``."""

COLLECTIVES = pa.schema(
    [
        ("iteration", pa.int32()),
        ("measured", pa.bool_()),
        *_of_type(_NAME, "job", "group"),
        ("k", pa.int32()),
        *_of_type(_NAME, "name", "collective", "algorithm"),
        *_of_type(pa.int32(), "nranks", "root"),
        *_of_type(
            pa.int64(),
            "input_bytes",
            "trace_input_bytes",
            "size_bytes",
            "trace_size_bytes",
        ),
        *_of_type(pa.int32(), "shares", "expected_shares"),
        *_of_type(
            pa.int64(),
            "start_ns",
            "end_ns",
            "duration_ns",
            "mean_duration_ns",
            "start_spread_ns",
            "sent_bytes",
            "packets",
            "retransmitted",
            "ce",
            "generator_wait_ns",
        ),
        ("generator_bound", pa.bool_()),
        *_of_type(pa.int64(), "slip_ns", "wrong"),
        *_of_type(pa.int32(), "critical_src", "critical_dst", "critical_step"),
        *_of_type(pa.int64(), "critical_posted_ns", "critical_last_acked_ns"),
        *_of_type(pa.uint64(), "send_node_id", "receive_node_id"),
        ("receive_name", _NAME),
    ]
)
"""One row per collective or point-to-point message and iteration."""

RANKS = pa.schema(
    [
        ("iteration", pa.int32()),
        ("measured", pa.bool_()),
        ("number", pa.int32()),
        ("job", _NAME),
        ("rank", pa.int32()),
        *_of_type(
            pa.int64(),
            "start_ns",
            "end_ns",
            "compute_ns",
            "communication_ns",
            "exposed_ns",
            "idle_ns",
        ),
    ]
)
"""One row per rank and iteration."""

LINKS = pa.schema(
    [
        *_of_type(pa.string(), "link", "kind", "direction"),
        *_of_type(
            pa.int64(),
            "bytes_before",
            "bytes_after",
            "bytes",
            "drops",
            "marked",
            "pauses",
            "paused_ns",
            "down_ns",
        ),
        ("port", pa.string()),
        ("rate_bps", pa.int64()),
        *_of_type(pa.string(), "equal_cost", "observed"),
    ]
)
"""One row per direction of a link."""

FAULTS = pa.schema(
    [
        ("entry", pa.string()),
        ("kind", _NAME),
        *_of_type(pa.string(), "fault", "link", "direction"),
        *_of_type(pa.int64(), "start_ns", "end_ns", "recovered_ns", "packets"),
    ]
)
"""One row per entry of ``faults``."""

OPERATIONS = pa.schema(
    [
        ("iteration", pa.int32()),
        ("measured", pa.bool_()),
        ("job", _NAME),
        *_of_type(pa.int32(), "rank", "operation"),
        *_of_type(_NAME, "kind", "name", "group"),
        ("k", pa.int32()),
        *_of_type(pa.int64(), "stream", "ready_ns", "start_ns", "end_ns", "nominal_ns"),
        *_of_type(pa.int32(), "cause_number", "held_by"),
        ("end_cause", _NAME),
        ("end_rank", pa.int32()),
        ("end_number", pa.int64()),
    ]
)
"""One row per operation of a rank and iteration."""

QUEUE_PAIRS = pa.schema(
    [
        ("time_ns", pa.int64()),
        ("job", _NAME),
        *_of_type(pa.int32(), "rank", "peer"),
        *_of_type(pa.int64(), "qpn", "rate_bps", "target_bps"),
        ("alpha", pa.float64()),
        *_of_type(pa.int64(), *row_layout.QUEUE_PAIR_FIELDS[7:]),
    ]
)
"""One row per sample of a queue pair. Counters are 0 at the start of the run."""

PORTS = pa.schema(
    [
        ("time_ns", pa.int64()),
        ("port", pa.int32()),
        ("host", _NAME),
        ("shard", pa.int32()),
        *_of_type(pa.int64(), *row_layout.PORT_FIELDS[3:]),
    ]
)
"""One row per sample of a port. Counters are 0 at the start of the run."""

LINK_SAMPLES = pa.schema(
    [
        ("time_ns", pa.int64()),
        ("port", _NAME),
        ("traffic_class", pa.int32()),
        *_of_type(pa.int64(), *row_layout.LINK_SAMPLE_FIELDS[3:]),
    ]
)
"""One row per sample of a traffic class at a fabric port. Counters are 0 at the start
of the run."""

QUEUE_PAIR_ENDS = pa.schema(
    [
        ("job", _NAME),
        *_of_type(pa.int32(), "rank", "peer"),
        ("group", _NAME),
        *_of_type(pa.int32(), "channel", "index", "port", "peer_port"),
        *_of_type(pa.int64(), "qpn", "peer_qpn"),
        ("udp_source_port", pa.int32()),
    ]
)
"""One row per queue pair that uses a port, with its constant properties."""

CLOCKS = pa.schema(
    [
        ("agent", _NAME),
        *_of_type(
            pa.int64(), "time_ns", "offset_ns", "round_trip_ns", "fitted_offset_ns"
        ),
        ("segment", pa.int32()),
    ]
)
"""One row per burst of pings to an agent on another clock."""

SCHEMAS = {
    name: pa.schema([*OF_EVERY_TABLE, *own])
    for name, own in {
        "flows": FLOWS,
        "collectives": COLLECTIVES,
        "ranks": RANKS,
        "operations": OPERATIONS,
        "links": LINKS,
        "faults": FAULTS,
        "queue_pairs": QUEUE_PAIRS,
        "ports": PORTS,
        "link_samples": LINK_SAMPLES,
        "queue_pair_ends": QUEUE_PAIR_ENDS,
        "clocks": CLOCKS,
    }.items()
}
"""The schema of every table, by name."""

BLANK = {
    "flows": ("rate_at_start_bps", "packets", "retransmitted", "cnp", "path"),
    "collectives": ("packets", "retransmitted", "ce", "wrong"),
    "queue_pair_ends": ("udp_source_port",),
}
"""Columns without a value in runs on RDMA NICs, by table. The parts of a message's time
are also blank.

``wrong`` has values if all ports are on NICs that verify payload.
"""


_PARTS = row_layout.FLOW_FIELDS[row_layout.FLOW_FIELDS.index("number") :]


def known_numbers(
    columns: Mapping[str, pa.Array], names: Iterable[str]
) -> dict[str, pa.Array]:
    """Return the columns *names*, with null for unknown values."""
    return {
        name: pc.if_else(pc.greater_equal(columns[name], 0), columns[name], None)
        for name in names
    }


class FlowTables:
    """Converter from rows of flows to the table ``flows``.

    Args:
        operations: Operations of the run's plan.
        warmup: Number of iterations that are not measured.
        family: Address family of all ports.
        ports: Port names, indexed by the port numbers in rows.
        on_nic: By rank number, whether its port is on an RDMA NIC.
    """

    def __init__(
        self,
        operations: OperationTable,
        *,
        warmup: int,
        family: str,
        ports: Sequence[str] = (),
        on_nic: Sequence[bool] = (),
    ) -> None:
        self._on_nic = pa.array(on_nic) if any(on_nic) else None
        self._warmup = warmup
        self._family = pa.scalar(family)
        self._ranks = pa.array([rank for _, rank in operations.ranks], pa.int32())
        self._first = int64(operations.first)
        self._identity_of = int64(operations.identity_of)
        found = operations.identities
        self._named = {
            "job": names_of([identity.key.job for identity in found]),
            "group": names_of([identity.key.group for identity in found]),
            "k": pa.array([identity.key.k for identity in found], pa.int32()),
            "collective": names_of([str(identity.op) for identity in found]),
            "algorithm": names_of([identity.algorithm for identity in found]),
        }
        self._causes = names_of(CAUSES)
        self._ports = names_of(ports)

    def table(self, rows: array[int]) -> pa.Table:
        """Return the table of *rows* (of ``FLOW_FIELDS``).

        ``CollectiveJoiner`` must have checked the rows.
        """
        raw = arrays(rows, row_layout.FLOW_FIELDS)
        rank = raw["rank"]
        identity = pc.take(
            self._identity_of, pc.add(pc.take(self._first, rank), raw["operation"])
        )
        made = dict(raw)
        for name, names in self._named.items():
            made[name] = pc.take(names, identity)
        made["measured"] = pc.greater_equal(raw["iteration"], self._warmup)
        made["src"] = pc.take(self._ranks, rank)
        made["dst"] = pc.take(self._ranks, raw["peer"])
        made["family"] = pa.repeat(self._family, len(rank)).dictionary_encode()
        made["bytes"] = raw["size_bytes"]
        made["fct_ns"] = pc.subtract(raw["last_acked_ns"], raw["posted_ns"])
        made["cause"] = pc.take(self._causes, raw["cause_kind"])
        # Causes other than messages and grants do not have a rank.
        from_message = pc.greater_equal(raw["cause_kind"], CAUSES.index("message"))
        made["cause_rank"] = pc.take(
            self._ranks, pc.if_else(from_message, raw["cause_rank"], None)
        )
        made |= known_numbers(raw, _PARTS)
        made["propagate_ns"] = pc.subtract(made["received_ns"], made["departed_ns"])
        for name in ("queue_ns", "switch_pause_ns", "serialise_ns"):
            made["propagate_ns"] = pc.subtract(made["propagate_ns"], made[name])
        for name in ("queue_port", "pause_port", "slow_port"):
            made[name] = pc.take(self._ports, made[name])
        if self._on_nic is not None:
            on_nic = pc.take(self._on_nic, rank)
            for name in set(BLANK["flows"]) & made.keys():
                made[name] = pc.if_else(on_nic, None, made[name])
        return in_order(made, FLOWS)


def kinds_of(
    rows: pa.Table, names: Iterable[str]
) -> tuple[list[tuple[Any, ...]], pa.Array]:
    """Return the distinct combinations of values in some columns.

    Args:
        rows: Table, possibly with millions of rows, but with few combinations.
        names: Names of the columns.

    Returns:
        The combinations as tuples, and for each row the index of its combination.
    """
    # Encode each combination as a number in mixed radix, so that Arrow can find the
    # distinct ones.
    kinds: list[tuple[Any, ...]] = [()]
    number = pa.array([0] * rows.num_rows, pa.int64())
    for name in names:
        column = rows[name].combine_chunks()
        if not pa.types.is_dictionary(column.type):
            column = column.dictionary_encode()
        values = column.dictionary.to_pylist()
        number = pc.add(
            pc.multiply(number, max(1, len(values))), column.indices.cast(pa.int64())
        ).dictionary_encode()
        radix = max(1, len(values))
        kinds = [
            (*kinds[each // radix], values[each % radix])
            for each in number.dictionary.to_pylist()
        ]
        number = number.indices.cast(pa.int64())
    return kinds, number


def with_bounds(
    flows: pa.Table, bound: Callable[[str, int, int, int], int] | None
) -> pa.Table:
    """Append the lower bound on each message's time to rows of ``FLOWS``.

    Args:
        flows: Rows of the table.
        bound: Function that returns the lower bound, given job, sender, receiver and
            size. None if lower bounds are unknown.
    """
    kinds, number = kinds_of(flows, ("job", "src", "dst", "bytes"))
    times = [None if bound is None else bound(*kind) for kind in kinds]
    column = pc.take(pa.array(times, pa.int64()), number)
    return flows.append_column("bound_ns", column)


class SampleTables:
    """Converter from samples of queue pairs, ports and links to the tables of a run.

    Args:
        plan: Plan of the run.
        names: Names of the fabric's ports.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        names: Sequence[str] = (),
    ) -> None:
        self._names = names_of(names)
        ranks, ports = plan.ranks(), plan.ports()
        self._jobs = names_of([rank.program.job for rank in ranks])
        self._ranks = pa.array([rank.program.rank for rank in ranks], pa.int32())
        # Port numbers may have gaps, because the plan of an isolated job omits ports.
        host_of = {port.number: port.host for port in ports}
        numbers = range(max(host_of, default=-1) + 1)
        self._hosts = names_of([host_of.get(number, "") for number in numbers])

    def queue_pairs(self, rows: array[int]) -> pa.Table:
        """Return the table of *rows* (of ``QUEUE_PAIR_FIELDS``)."""
        made = arrays(rows, row_layout.QUEUE_PAIR_FIELDS)
        rank = made["rank"]
        made["job"] = pc.take(self._jobs, rank)
        made["peer"] = pc.take(self._ranks, made["peer"])
        made["rank"] = pc.take(self._ranks, rank)
        has_alpha = pc.greater_equal(made["alpha"], 0)
        made["alpha"] = pc.if_else(
            has_alpha,
            pc.divide(pc.cast(made["alpha"], pa.float64()), row_layout.SHARE_UNIT),
            None,
        )
        return in_order(made, QUEUE_PAIRS)

    def ports(self, rows: array[int]) -> pa.Table:
        """Return the table of *rows* (of ``PORT_FIELDS``)."""
        made = arrays(rows, row_layout.PORT_FIELDS)
        port = made["port"]
        made["host"] = pc.take(self._hosts, port)
        return in_order(made, PORTS)

    def links(self, rows: array[int]) -> pa.Table:
        """Return the table of *rows* (of ``LINK_SAMPLE_FIELDS``)."""
        made = arrays(rows, row_layout.LINK_SAMPLE_FIELDS)
        made["port"] = pc.take(self._names, made["port"])
        for name in row_layout.LINK_SAMPLE_FIELDS[2:]:
            if (pc.min(made[name]).as_py() or 0) < 0:
                known = pc.greater_equal(made[name], 0)
                made[name] = pc.if_else(known, made[name], None)
        return in_order(made, LINK_SAMPLES)


def arrays(rows: array[int], fields: Sequence[str]) -> dict[str, pa.Array]:
    """Return the columns of rows as Arrow arrays."""
    return {
        name: int64(each) for name, each in row_layout.columns(rows, fields).items()
    }


def in_order(made: Mapping[str, pa.Array], schema: pa.Schema) -> pa.Table:
    """Return a table with the columns of *schema*, in their types and order."""
    return pa.table([made[item.name].cast(item.type) for item in schema], schema=schema)


def queue_pair_ends_table(ranks: Iterable[RankPlan]) -> pa.Table:
    """Return a table of the ranks' queue pairs, with the schema ``QUEUE_PAIR_ENDS``."""
    rows = [
        (
            rank.program.job,
            rank.program.rank,
            pair.peer_rank,
            pair.group,
            pair.channel,
            pair.index,
            rank.port,
            pair.remote_port,
            pair.qpn,
            pair.remote_qpn,
            pair.source_port,
        )
        for rank in ranks
        for pair in rank.queue_pairs
        if pair.local_rate_bps is None
    ]
    return from_rows(
        [dict(zip(QUEUE_PAIR_ENDS.names, row, strict=True)) for row in rows],
        QUEUE_PAIR_ENDS,
    )


def records_table(
    records: Iterable[RankRecord | LinkRecord], schema: pa.Schema
) -> pa.Table:
    """Return a table of records, with the schema ``RANKS`` or ``LINKS``."""
    return from_rows(
        [{name: getattr(record, name) for name in schema.names} for record in records],
        schema,
    )


def from_rows(rows: list[dict[str, Any]], schema: pa.Schema) -> pa.Table:
    """Return a table with the given rows and schema. Missing values are null."""
    return pa.Table.from_pylist(rows, schema=_plain(schema)).cast(schema)


def plain_names(table: pa.Table) -> pa.Table:
    """Return a table with plain strings. Parts of a table differ in dictionaries."""
    return table.cast(_plain(table.schema))


def _plain(schema: pa.Schema) -> pa.Schema:
    """Return a schema with plain strings instead of dictionaries."""
    return pa.schema(
        (each.name, pa.string() if pa.types.is_dictionary(each.type) else each.type)
        for each in schema
    )


def int64(values: array[int]) -> pa.Array:
    """Return *values* as an Arrow array, without a copy."""
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(values)])


def names_of(values: Sequence[str]) -> pa.DictionaryArray:
    """Return strings as a dictionary array, which stores each distinct string once."""
    return pa.array(values, pa.string()).dictionary_encode()


def clocks_table(tracks: Mapping[str, ClockTrack]) -> pa.Table:
    """Return the best ping of each burst, with the line that fits all of them.

    Args:
        tracks: Models of the agents' clocks, by name.
    """
    rows = [
        {
            "agent": agent,
            "time_ns": each.local_ns,
            "offset_ns": each.offset_ns,
            "round_trip_ns": each.round_trip_ns,
            "fitted_offset_ns": round(
                track.segments[each.segment].offset_ns(each.local_ns)
            ),
            "segment": each.segment,
        }
        for agent, track in sorted(tracks.items())
        for each in track.samples
    ]
    return from_rows(rows, CLOCKS)
