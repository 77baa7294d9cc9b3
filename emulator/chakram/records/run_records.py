"""Named records of the collectives, ranks and links of a run.

Definitions for a ``CollectiveRecord``:

* Its *time* lasts from the first start to the last end over the ranks of its group. All
  times are on the controller's clock (corrected by the offsets of the agents' clocks).
  The time of a point-to-point message begins at the sender's start, because the
  receiver may wait for a long time. The time of a barrier begins at the start of the
  last rank, because no rank can continue before that.
* Its *critical flow* is the flow that was acknowledged last.
* Its *generator wait* is how long the data plane delayed due packets, at the rank with
  the longest delay (``chakram.records.collective_assembly``).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

from chakram.collectives.ops import CollectiveOp, nccl_size_bytes

GENERATOR_BOUND_PERCENT = 5
"""Percentage of a collective's time above which a wait makes it generator-bound."""


def is_generator_bound(wait_share: float) -> bool:
    """Return whether this fraction of waiting makes a collective generator-bound."""
    return 100 * wait_share > GENERATOR_BOUND_PERCENT


class CollectiveKey(NamedTuple):
    """Key of a collective, unique within an iteration.

    ``k`` is its index among the collectives of its group.  The group of a
    point-to-point message from rank 3 to rank 5 is ``p2p:3>5``.
    """

    job: str
    group: str
    k: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveIdentity:
    """Properties of one collective in the plan, which are the same in every iteration.

    ``shares`` is the number of ranks of the plan that take part.  ``root`` is None if
    the collective has no root.  For a message between two ranks, ``name`` and
    ``send_node_id`` belong to the sender's node.  ``receive_name`` and
    ``receive_node_id`` belong to the receiver's node.  Other collectives have no node
    IDs and no ``receive_name``.
    """

    key: CollectiveKey
    name: str
    op: CollectiveOp
    algorithm: str
    nranks: int
    root: int | None
    input_bytes: int
    trace_bytes: int
    shares: int
    send_node_id: int | None = None
    receive_node_id: int | None = None
    receive_name: str | None = None

    @property
    def size_bytes(self) -> int:
        """Size in this run, as nccl-tests defines size S."""
        return nccl_size_bytes(
            self.op, input_bytes=self.input_bytes, nranks=self.nranks
        )

    @property
    def trace_size_bytes(self) -> int:
        """Size in the trace, before ``size_scale``, as nccl-tests defines size S."""
        return nccl_size_bytes(
            self.op, input_bytes=self.trace_bytes, nranks=self.nranks
        )


# The next two classes are tuples, because a run may have hundreds of thousands of
# messages. A frozen dataclass takes two to four times as long to create.


class CriticalFlow(NamedTuple):
    """The flow of a collective that was acknowledged last.

    ``src`` and ``dst`` are ranks of the job.
    """

    src: int
    dst: int
    step: int
    posted_ns: int
    last_acked_ns: int


class CollectiveRecord(NamedTuple):
    """One collective in one iteration, over all its ranks.

    ``shares`` is the number of ranks that reported. If fewer ranks reported than the
    identity expects, the run ended too early and ``complete`` is False.
    ``mean_duration_ns`` is the mean time from a rank's start to its end, over all
    ranks. nccl-tests reports this value by default. ``start_spread_ns`` is the last
    start minus the first start. ``packets`` counts each packet of the messages once,
    and ``retransmitted`` counts retransmissions of these packets. ``ce`` counts
    received packets with the mark "congestion experienced". ``slip_ns`` is the largest
    delay of a rank's start relative to its recorded time, if the job follows recorded
    times. ``wrong`` counts received packets with a wrong payload.
    """

    identity: CollectiveIdentity
    iteration: int
    measured: bool
    shares: int
    start_ns: int
    end_ns: int
    mean_duration_ns: int
    start_spread_ns: int
    sent_bytes: int
    packets: int
    retransmitted: int
    ce: int
    generator_wait_ns: int
    critical: CriticalFlow | None
    slip_ns: int = 0
    wrong: int = 0

    @property
    def complete(self) -> bool:
        """Whether all ranks have reported."""
        return self.shares == self.identity.shares

    @property
    def is_judged(self) -> bool:
        """Whether the record is measured, complete and not of a barrier.

        Barriers have no size.
        """
        is_barrier = self.identity.op is CollectiveOp.BARRIER
        return self.measured and self.complete and not is_barrier

    @property
    def duration_ns(self) -> int:
        """Time from the first start (for a barrier, the last start) to the last end."""
        if self.identity.op is CollectiveOp.BARRIER:
            return self.end_ns - self.start_ns - self.start_spread_ns
        return self.end_ns - self.start_ns

    @property
    def generator_bound(self) -> bool:
        """Whether the collective waited for the generator for over 5 % of its time."""
        return is_generator_bound(self.generator_wait_ns / max(1, self.duration_ns))


@dataclass(frozen=True, slots=True, kw_only=True)
class RankRecord:
    """One iteration of one rank.

    ``number`` is the rank's number in the plan, and ``rank`` its number in the job.
    """

    number: int
    job: str
    rank: int
    iteration: int
    measured: bool
    start_ns: int
    end_ns: int
    compute_ns: int
    communication_ns: int
    exposed_ns: int
    idle_ns: int


SIMULATED, LAB, SWITCH = "simulated", "lab", "switch"
OBSERVED = (SIMULATED, LAB, SWITCH)
"""Where the traffic of a link was observed: in a simulation, by the lab that contains
the link, or by the switch under test, which reported it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkRecord:
    """Traffic in one direction of a link during a run.

    ``kind`` is ``host`` (between a host and its switch) or ``uplink`` (between
    switches).  ``direction`` is ``up`` (away from the hosts) or ``down``.  Byte counts
    are layer-2 bytes.  The next five values are None if they are not counted.
    ``drops`` counts dropped packets, and ``marked`` counts packets that were marked
    when sent into the link.  ``pauses`` is the number of pause frames that its sender
    received, and ``paused_ns`` is the pause time summed over classes.  ``down_ns`` is
    how long faults kept the link down.  ``port`` is the port at which this direction
    begins. ``rate_bps`` is the rate in the experiment, None if unlimited or unknown.
    Ports of a switch with the same ``equal_cost`` are alternatives for the same
    packets. ``observed`` is where the values were observed, one of ``OBSERVED``.
    """

    link: str
    kind: str
    direction: str
    bytes_before: int
    bytes_after: int
    drops: int | None = None
    marked: int | None = None
    pauses: int | None = None
    paused_ns: int | None = None
    down_ns: int | None = None
    port: str | None = None
    rate_bps: int | None = None
    equal_cost: str | None = None
    observed: str | None = None

    @property
    def bytes(self) -> int:
        """Bytes sent during the run."""
        return self.bytes_after - self.bytes_before


def generator_wait_share(records: Collection[CollectiveRecord]) -> float:
    """Return the fraction of time that collectives waited for the generator.

    The measured mean time of these collectives is too long by at most this fraction.
    Messages of a collective wait at the same time, but no longer than the collective
    takes.
    """
    waits_ns = sum(
        min(record.generator_wait_ns, record.duration_ns) for record in records
    )
    return waits_ns / max(1, sum(record.duration_ns for record in records))
