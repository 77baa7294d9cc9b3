"""What is known of a run: its collectives, flows, ranks and links as named records.

What a ``CollectiveRecord`` states:

* Its *time* is first start to last end over the ranks of its group, on the clock of the
  controller (offsets of the agents' clocks are added).  For a point-to-point message it
  starts when the sender starts: the receiver may have been waiting for long.  For a
  barrier it starts when the last rank starts: before that there is nothing to do.
* Its *critical flow* is the one that was acknowledged last.
* Its *generator wait* is how long the data plane kept its slowest rank from sending
  what was due (``chakram.records.collective_assembly``).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

from chakram.collectives.ops import CollectiveOp, nccl_size_bytes

GENERATOR_BOUND_PERCENT = 5
"""What waits for the generator for a larger part of its time is generator-bound."""


def is_generator_bound(wait_share: float) -> bool:
    """Tell whether a time is more the generator's than it may be."""
    return 100 * wait_share > GENERATOR_BOUND_PERCENT


class CollectiveKey(NamedTuple):
    """Identity of a collective in every iteration: k counts those of its group.

    The group of a point-to-point message from rank 3 to rank 5 is ``p2p:3>5``.
    """

    job: str
    group: str
    k: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveIdentity:
    """What the plan says of one collective, the same in every iteration.

    ``shares`` is how many ranks of the plan take part; ``root`` is None where there
    is none.  Of a message between two ranks ``name`` is that of the sender's node,
    ``receive_name`` that of the receiver's, and the ids are those of both nodes; all
    other collectives have none of these.
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
        """S of nccl-tests, of this run."""
        return nccl_size_bytes(
            self.op, input_bytes=self.input_bytes, nranks=self.nranks
        )

    @property
    def trace_size_bytes(self) -> int:
        """S of nccl-tests, as the trace has it: before ``size_scale``."""
        return nccl_size_bytes(
            self.op, input_bytes=self.trace_bytes, nranks=self.nranks
        )


# These two are tuples: a run of messages has hundreds of thousands of them, made once
# when they are joined and again when they are read, and a frozen dataclass takes two to
# four times as long to make.


class CriticalFlow(NamedTuple):
    """The flow of a collective that was acknowledged last; ranks of its job."""

    src: int
    dst: int
    step: int
    posted_ns: int
    last_acked_ns: int


class CollectiveRecord(NamedTuple):
    """One collective in one iteration, of all its ranks.

    ``shares`` is how many ranks have reported; fewer than its identity has means that
    the run ended before (``complete`` is False).  ``mean_duration_ns`` is the mean over
    the ranks of own start to own end, as nccl-tests reports by default;
    ``start_spread_ns`` is last start minus first start.  ``packets`` are those of
    its messages, each counted once, ``retransmitted`` those sent again; ``ce`` counts
    received packets that a switch had marked "congestion experienced"; ``slip_ns`` is
    how much later than recorded the latest of its ranks started, where the job goes by
    recorded times; ``wrong`` counts received packets with another payload than sent.
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
    def duration_ns(self) -> int:
        """First start to last end over the ranks; of a barrier from the last start."""
        if self.identity.op is CollectiveOp.BARRIER:
            return self.end_ns - self.start_ns - self.start_spread_ns
        return self.end_ns - self.start_ns

    @property
    def generator_bound(self) -> bool:
        """Whether the generator held it up for more than 5 % of its time."""
        return is_generator_bound(self.generator_wait_ns / max(1, self.duration_ns))


@dataclass(frozen=True, slots=True, kw_only=True)
class RankRecord:
    """One iteration of one rank; ``number`` is that of the plan, ``rank`` the job's."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkRecord:
    """What went through one direction of a link between begin and end of a run.

    ``kind`` is ``host`` (between a host and its switch) or ``uplink`` (between
    switches); ``direction`` is ``up`` (away from the hosts) or ``down``.  Bytes are
    counter values of layer 2; what follows is None where nobody counts it: ``drops``,
    packets ``marked`` when they were sent into it, pause frames (``pauses``) that its
    sender got, how long that rested, summed over classes, and how long faults had it
    down.  ``port`` is where this direction begins, ``rate_bps`` what the experiment
    gives it (None: no limit, or unknown); ports of a switch with the same
    ``equal_cost`` are choices for the same packets.
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

    @property
    def bytes(self) -> int:
        """Bytes of the run."""
        return self.bytes_after - self.bytes_before


def generator_wait_share(records: Collection[CollectiveRecord]) -> float:
    """Return for what share of the time of collectives they waited for the generator.

    Their mean time is too long by that at most.
    """
    waits_ns = sum(record.generator_wait_ns for record in records)
    return waits_ns / max(1, sum(record.duration_ns for record in records))
