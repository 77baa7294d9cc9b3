"""What a run records, as rows of 64-bit integers.

Replay writes these rows while it runs; shards send them in batches of little-endian
int64; the controller resolves the numbers (rank, operation) through the plan into the
columns of the run directory.  Times are nanoseconds of the sender's clock.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, NamedTuple, TypeVar

from chakram.foundation.field_bounds import Rows, declared_fields
from chakram.plan.probes import PROBE_FIELDS
from chakram.records.counter_definitions import (
    PortStatistics,
    QueuePairStatistics,
    columns_of,
)

UNKNOWN = -1
"""Stands for what is not known, or is not there, in rows."""


class FlowRow(NamedTuple):
    """One message between two ranks, written when its last byte was acknowledged."""

    iteration: int
    rank: int  # number of the sending rank in the plan
    operation: int  # index in its program
    step: int
    channel: int
    peer: int  # number of the receiving rank in the plan
    qpn: int
    size_bytes: int
    ready_ns: int  # its dependencies were done
    posted_ns: int
    first_sent_ns: int
    last_acked_ns: int
    rate_at_start_bps: int  # 0: not limited by congestion control
    packets: int
    retransmitted: int
    cnp: int  # congestion notifications that its queue pair got meanwhile
    generator_wait_ns: int
    cause_kind: int  # a CAUSE_* number
    cause_rank: int  # CAUSE_MESSAGE: the rank that sent it; CAUSE_GRANT: that granted
    cause_number: int  # CAUSE_MESSAGE: its number; CAUSE_OPERATION: the operation
    number: int = UNKNOWN  # of the message: channel << 32 | immediate data
    departed_ns: int = UNKNOWN  # what follows: see ``chakram.roce.events.MessageParts``
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
    ce: int  # received packets that were marked "congestion experienced"
    slip_ns: (
        int  # how much later than recorded it started, if it goes by recorded times
    )
    wrong: int  # received packets whose payload was not what it should have been
    released_by: int = UNKNOWN  # operation that it waited for longest; or no other one
    end_kind: int = UNKNOWN  # an END_* number: what ended last
    end_rank: int = UNKNOWN  # number of the rank at the other end of that message
    end_number: int = UNKNOWN  # and the message's


SHARE_FIELDS = ShareRow._fields


class ArrivalRow(NamedTuple):
    """When a message was complete, on the clock of the rank that received it.

    There are none in virtual time, where the sender's flow says so.
    """

    iteration: int
    rank: int  # number of the receiving rank in the plan
    operation: int  # index in its program
    peer: int  # number of the sending rank in the plan
    number: int  # of the message, as that of a flow
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
    released_by: int  # as that of a share
    held_by: int  # operation that had its stream until it started; or none had


COMPUTATION_FIELDS = ComputationRow._fields


class IterationRow(NamedTuple):
    """One iteration of one rank."""

    iteration: int
    rank: int
    start_ns: int
    end_ns: int
    compute_ns: int  # at least one compute operation ran
    communication_ns: int  # at least one collective or message was under way
    exposed_ns: int  # communication without compute
    idle_ns: int  # neither


ITERATION_FIELDS = IterationRow._fields

QUEUE_PAIR_FIELDS = (
    "time_ns",
    "rank",  # number in the plan
    "peer",  # likewise
    "qpn",
    "rate_bps",  # 0: not limited by congestion control
    "target_bps",  # 0: there is none
    "alpha",  # in parts of SHARE_UNIT; -1: there is none
    *columns_of(QueuePairStatistics),
)
"""One sample of one queue pair.

Counts are from the start of the run on. Names are those of the RoCEv2 metrics of the
Open Traffic Generator models where they have one. A NAK for what was late and not lost
is counted by one of its two ends: ``nak_reordered_tx`` and ``nak_reordered_rx`` add.
"""

_PORT_FIRST = (
    "time_ns",
    "port",  # number in the plan
    "shard",  # that sent and received this: see below
    "tx_bytes",  # layer 2 without FCS
    "rx_bytes",
    "tx_packets",
    "rx_packets",
    "socket_drops",
    "send_retries",
    "invalid_packets",  # dropped for one of the reasons that follow
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
"""One sample of one port; counts are from the start of the run on.

Of a divided port every shard has samples of its own, of what went through its sockets:
the port's counts are the sums of the last ones of each.
"""

LINK_SAMPLE_FIELDS = (
    "time_ns",
    "port",  # of the fabric: where a direction of a link begins
    "traffic_class",
    "bytes",  # sent into the link
    "queue_bytes",  # what waits for it now
    "queue_max_bytes",  # the most that has waited since the row before
    "marked",
    "drops",
    "pauses",  # frames that paused it, or let it go on
    "paused_ns",
)
"""One sample of one traffic class of one port of the fabric.

But for the queue, numbers count from the start of the run on.
"""

SHARE_UNIT = 1 << 20
"""Shares are integers in parts of it."""

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
    Numbers = array  # before Python 3.12 it takes no parameter


def _none() -> Numbers:
    return array("q")


@dataclass(slots=True)
class RecordRows:
    """Rows of the tables, flat: every table is one array of int64."""

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
        """Return the rows collected so far and start anew."""
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


_Row = TypeVar("_Row", bound=NamedTuple)


def rows_of(kind: type[_Row], values: array[int]) -> Iterator[_Row]:
    """Yield the rows of one table of ``RecordRows``.

    Raises:
        ValueError: If *values* are no whole rows.
    """
    width = len(kind._fields)
    if len(values) % width:
        raise ValueError(f"{len(values)} numbers are not rows of {width}")
    for start in range(0, len(values), width):
        yield kind._make(values[start : start + width])
