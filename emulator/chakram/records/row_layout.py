"""Layout of the records of a run, as rows of 64-bit integers.

The replay writes these rows.  Shards send them in batches of little-endian int64.  The
controller uses the plan to convert rank and operation numbers to the names in the run
directory.  Times are in nanoseconds, on the clock of the shard that sends the row.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, NamedTuple, TypeVar

from chakram.foundation.field_bounds import Rows, declared_fields
from chakram.records.counter_definitions import (
    PortStatistics,
    QueuePairStatistics,
    columns_of,
)

UNKNOWN = -1
"""Value in rows for an unknown or missing number."""


class FlowRow(NamedTuple):
    """One message between two ranks, written when its last byte is acknowledged."""

    iteration: int
    rank: int  # number of the sending rank in the plan
    operation: int  # index in the rank's program
    step: int
    channel: int
    peer: int  # number of the receiving rank in the plan
    qpn: int
    size_bytes: int
    ready_ns: int  # end of the last dependency of the message
    posted_ns: int
    first_sent_ns: int
    last_acked_ns: int
    rate_at_start_bps: int  # 0: not limited by congestion control
    packets: int
    retransmitted: int
    cnp: int  # congestion notifications to its queue pair while it was in flight
    generator_wait_ns: int
    cause_kind: int  # a CAUSE_* number
    cause_rank: int  # sender of the message or grant that released it
    cause_number: int  # number of that message, or index of that operation
    number: int = UNKNOWN  # number of the message: channel << 32 | immediate data
    # ``chakram.roce.events.MessageParts`` explains the following times.
    departed_ns: int = UNKNOWN
    received_ns: int = UNKNOWN
    own_port_ns: int = UNKNOWN
    window_ns: int = UNKNOWN
    pace_ns: int = UNKNOWN
    pause_ns: int = UNKNOWN
    transfer_ns: int = UNKNOWN
    repair_ns: int = UNKNOWN
    queue_ns: int = UNKNOWN
    switch_pause_ns: int = UNKNOWN
    serialise_ns: int = UNKNOWN
    queue_port: int = UNKNOWN
    pause_port: int = UNKNOWN
    slow_ns: int = UNKNOWN
    slow_port: int = UNKNOWN


FLOW_FIELDS = FlowRow._fields


class ShareRow(NamedTuple):
    """One rank's share of one collective or point-to-point operation."""

    iteration: int
    rank: int
    operation: int
    ready_ns: int
    start_ns: int
    end_ns: int
    sent_bytes: int
    received_bytes: int
    generator_wait_ns: int
    retransmitted: int
    ce: int  # received packets with the mark "congestion experienced"
    slip_ns: int  # start delay relative to the recorded time
    wrong: int  # received packets with a wrong payload
    released_by: int = UNKNOWN  # operation that it waited for longest
    end_kind: int = UNKNOWN  # an END_* number: event that ended it
    end_rank: int = UNKNOWN  # rank at the other end of the message that ended it
    end_number: int = UNKNOWN  # number of the message that ended it


SHARE_FIELDS = ShareRow._fields


class ArrivalRow(NamedTuple):
    """Time at which a message was complete, on the clock of the receiving rank.

    Runs in virtual time have no such rows, because the sender's flow contains this
    time.
    """

    iteration: int
    rank: int  # number of the receiving rank in the plan
    operation: int  # index in the rank's program
    peer: int  # number of the sending rank in the plan
    number: int  # number of the message, as in the message's flow
    received_ns: int


ARRIVAL_FIELDS = ArrivalRow._fields


class ComputationRow(NamedTuple):
    """One computation of a measured iteration that took time."""

    iteration: int
    rank: int
    operation: int
    ready_ns: int
    start_ns: int
    end_ns: int
    released_by: int  # operation that it waited for longest, if any
    held_by: int  # operation that occupied its stream until it started, if any


COMPUTATION_FIELDS = ComputationRow._fields


class IterationRow(NamedTuple):
    """One iteration of one rank."""

    iteration: int
    rank: int
    start_ns: int
    end_ns: int
    compute_ns: int  # time with at least one compute operation
    communication_ns: int  # time with at least one collective or message in flight
    exposed_ns: int  # time with communication and without compute
    idle_ns: int  # time with neither communication nor compute


ITERATION_FIELDS = IterationRow._fields


class ProbeRow(NamedTuple):
    """One event that happened to ``count`` identical packets."""

    event: int  # a ``chakram.plan.probes.ProbeEvent``
    source: int  # number of the port that sent it
    destination: int  # number of the port that it was sent to
    packet: int  # index in ProbePlan.packets
    path: int  # index in ProbePlan.source_ports
    count: int  # type: ignore[assignment] # number of packets, not a method
    value: int  # depends on the event
    address: int  # IPv4 address of the reporter, as a number; 0: unknown


PROBE_FIELDS = ProbeRow._fields


QUEUE_PAIR_FIELDS = (
    "time_ns",
    "rank",  # number in the plan
    "peer",  # number in the plan
    "qpn",
    "rate_bps",  # 0: not limited by congestion control
    "target_bps",  # 0: no target rate
    "alpha",  # in units of 1 / SHARE_UNIT, or -1 without alpha
    *columns_of(QueuePairStatistics),
)
"""Columns of a sample of one queue pair.

Counts begin at the start of the run.  If the RoCEv2 models of the Open Traffic
Generator define a metric, the column has the name from these models.  Only one of the
two ends counts a NAK for a packet that was late but not lost.  The total number of
these NAKs is therefore ``nak_reordered_tx`` plus ``nak_reordered_rx``.
"""

_PORT_FIRST = (
    "time_ns",
    "port",  # number in the plan
    "shard",  # shard that sent and received these packets, see below
    "tx_bytes",  # layer 2 without FCS
    "rx_bytes",
    "tx_packets",
    "rx_packets",
    "socket_drops",
    "send_retries",
    "invalid_packets",  # packets dropped for one of the following reasons
)
_PORT_LAST = (
    "injected_drops",
    "injected_disturbances",
    "generator_wait_ns",
    "paused_ns",
)
PORT_FIELDS = (
    *_PORT_FIRST,
    *(
        column
        for column in columns_of(PortStatistics)
        if column not in _PORT_FIRST + _PORT_LAST
    ),
    *_PORT_LAST,
)
"""Columns of a sample of one port.  Counts begin at the start of the run.

If several shards share a port, each shard samples the traffic through its own sockets.
The counts of the port are the sums of the last samples of all shards.
"""

LINK_SAMPLE_FIELDS = (
    "time_ns",
    "port",  # port of the fabric at which a link direction begins
    "traffic_class",
    "bytes",  # sent into the link
    "queue_bytes",  # current queue length
    "queue_max_bytes",  # maximum queue length since the previous row
    "marked",
    "drops",
    "pauses",  # received frames that paused or resumed this traffic class
    "paused_ns",
)
"""Columns of a sample of one traffic class at one port of the fabric.

All counts begin at the start of the run.  Queue lengths are not counts.  -1 means that
a switch does not report the value, or reports it for all classes together.
"""

SHARE_UNIT = 1 << 20
"""Denominator of fractions such as alpha, which rows contain as integers."""

END_START = 0
END_RECEIVED = 1
END_ACKNOWLEDGED = 2

CAUSE_START = 0
CAUSE_OPERATION = 1
CAUSE_MESSAGE = 2
CAUSE_GRANT = 3


if TYPE_CHECKING:
    Numbers = array[int]
else:
    Numbers = array  # not generic before Python 3.12


def _none() -> Numbers:
    return array("q")


@dataclass(slots=True)
class RecordRows:
    """Rows of all tables.  Each table is one flat array of int64."""

    flows: Annotated[Numbers, Rows(len(FLOW_FIELDS))] = field(default_factory=_none)
    shares: Annotated[Numbers, Rows(len(SHARE_FIELDS))] = field(default_factory=_none)
    iterations: Annotated[Numbers, Rows(len(ITERATION_FIELDS))] = field(
        default_factory=_none
    )
    queue_pairs: Annotated[Numbers, Rows(len(QUEUE_PAIR_FIELDS))] = field(
        default_factory=_none
    )
    ports: Annotated[Numbers, Rows(len(PORT_FIELDS))] = field(default_factory=_none)
    probes: Annotated[Numbers, Rows(len(PROBE_FIELDS))] = field(default_factory=_none)
    computations: Annotated[Numbers, Rows(len(COMPUTATION_FIELDS))] = field(
        default_factory=_none
    )
    arrivals: Annotated[Numbers, Rows(len(ARRIVAL_FIELDS))] = field(
        default_factory=_none
    )

    def extend(self, other: RecordRows) -> None:
        """Append all rows of *other*."""
        for name in _TABLES:
            getattr(self, name).extend(getattr(other, name))

    def take(self) -> RecordRows:
        """Return the rows collected so far and clear all tables."""
        taken = RecordRows(*(getattr(self, name) for name in _TABLES))
        for name in _TABLES:
            setattr(self, name, array("q"))
        return taken

    def __len__(self) -> int:
        return sum(len(getattr(self, name)) // width for name, width in _TABLES.items())


_TABLES = {
    name: rows.per_row
    for name, each in declared_fields(RecordRows).items()
    if (rows := each.bound(Rows)) is not None
}


def columns(rows: array[int], fields: Sequence[str]) -> dict[str, array[int]]:
    """Return the columns of a table that is stored row by row, by name.

    Raises:
        ValueError: If *rows* does not contain whole rows.
    """
    width = len(fields)
    if len(rows) % width:
        raise ValueError(f"{len(rows)} numbers are not rows of {width}")
    return {name: rows[index::width] for index, name in enumerate(fields)}


_Row = TypeVar("_Row", bound=NamedTuple)


def rows_of(kind: type[_Row], values: array[int]) -> Iterator[_Row]:
    """Yield the rows of one table of ``RecordRows``.

    Raises:
        ValueError: If *values* does not contain whole rows.
    """
    width = len(kind._fields)
    if len(values) % width:
        raise ValueError(f"{len(values)} numbers are not rows of {width}")
    for start in range(0, len(values), width):
        yield kind._make(values[start : start + width])
