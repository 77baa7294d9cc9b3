"""Summary of a run's point-to-point messages, by port and by pair of ranks.

Definitions:

busy period
    A time span during which at least one message through one direction of a port is in
    flight.  A message is in flight from its post to its last acknowledgment.  Which
    messages share a period depends on the measured times, not on the program.  For
    example, pipeline stages post when they are ready, so some of their messages never
    share the port.
goodput
    Payload divided by the time of the busy periods.  ``wire`` is the rate with all
    headers, as a share of the port's rate.  Each packet counts once.  A port that
    exceeds its rate by more than 5 % has no shares.  Its busy periods are so short that
    a shaper passes them as bursts, or its actual rate is higher.
fair, % of fair
    A message is due after its fair time (``chakram.predict.fair_sharing``), or when it
    completes, if that is sooner.  A message that completes sooner delays others, and
    their times show that delay.  The fair time of a busy period lasts from its first
    post until its last message is due.  It is at least the serialization delay of the
    period's bytes at the port's rate, and at most the length of the period.  Messages
    posted together are due one latency after all their bytes have crossed the port.
    The fair time of a pair is the mean time until its messages are due.  The share is
    the fair time divided by the measured time.
fan
    The maximum number of messages in flight at once.
fairness
    Jain's index, (sum x)^2 / (n sum x^2), over the ranks at the other end in a busy
    period.  x is the fair time divided by the measured time, or the rate of the
    messages if fair times are unknown.  The summary has the mean and the minimum over
    the periods with two or more such ranks.  1 means that all ranks were delayed
    equally.
skew
    Time from the first to the last rank at the other end that posts in a busy period.
    The summary has the mean and the maximum over the same periods.
worst over median
    The largest ratio of measured to fair time of a pair, divided by the median ratio.
    It is None if no pair has a fair time.

The summary excludes the warm-up, and messages within a host or between ranks of one
port.  Fair times consider only the messages of the same job, not collectives or other
jobs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple


class SentMessage(NamedTuple):
    """One point-to-point message of a measured iteration, with raw times of one clock.

    ``fair_ns`` is None if unknown.  ``ways`` are the paths of the message, or of its
    parts if it was split. A path lists the ports through which switches forwarded the
    message to other switches. ``ways`` is None if unknown.
    """

    job: str
    src: int
    dst: int
    size_bytes: int
    posted_ns: int
    acked_ns: int
    fair_ns: int | None = None
    retransmitted: int | None = 0
    cnp: int | None = 0
    ways: tuple[tuple[str, ...], ...] | None = None

    @property
    def fct_ns(self) -> int:
        """Completion time, from posting to the acknowledgment of the last byte."""
        return self.acked_ns - self.posted_ns

    @property
    def due_ns(self) -> int | None:
        """Time until the message was due: the shorter of fair and completion time."""
        return None if self.fair_ns is None else min(self.fair_ns, self.fct_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class PortFacts:
    """The port of a rank.  ``host`` is the name of the rank's host in the topology."""

    number: int
    host: str
    rate_bps: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageTransport:
    """Transport settings of messages, and their ports.

    ``path_mtu``, ``verb`` and ``overhead_bytes`` are as in ``chakram.plan.wire_cost``.
    Keys of ``ports`` are job and rank.  ``within_hosts`` contains each job, source and
    destination whose messages stay within a host.  ``window_bytes`` and
    ``burst_packets`` are 0 if unknown.  ``least_rate_bps`` is 0 if congestion control
    has no minimum rate. ``has_fixed_rate`` means that congestion control always paces
    at ``least_rate_bps``.
    """

    path_mtu: int
    verb: str
    overhead_bytes: int
    ports: Mapping[tuple[str, int], PortFacts]
    within_hosts: frozenset[tuple[str, int, int]] = frozenset()
    window_bytes: int = 0
    burst_packets: int = 0
    least_rate_bps: int = 0
    has_fixed_rate: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FctPercentiles:
    """Completion times of messages, with nearest-rank percentiles."""

    min_ns: float
    p50_ns: float
    p95_ns: float
    p99_ns: float
    max_ns: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PortSummary:
    """Summary of one direction of a port for one job.

    ``ranks`` are the ranks at the port that sent or received, and ``peers`` is the
    number of ranks at the other end. ``busy_ns`` is the sum of the busy periods, and
    ``time_ns`` is their mean. ``is_faster`` means that the port exceeded its rate, so
    that there are no shares. ``marked`` counts packets that arrived with a congestion
    mark, and ``cnp`` counts the congestion notifications to their senders. ``drops``
    counts all packets that the queue of the port's link dropped in the whole run. It is
    None if unknown.
    """

    job: str
    port: int
    host: str
    rate_bps: int | None
    ranks: tuple[int, ...]
    peers: int
    messages: int
    periods: int
    fan: int
    payload_bytes: int
    wire_bytes: int
    busy_ns: float
    goodput_bps: float | None
    goodput_share: float | None
    wire_share: float | None
    is_faster: bool
    time_ns: float
    fair_ns: float | None
    fair_share: float | None
    fct: FctPercentiles
    fairness: float | None
    fairness_min: float | None
    skew_ns: float | None
    skew_max_ns: float | None
    retransmitted: int | None
    marked: int
    cnp: int | None
    drops: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedPath:
    """Another pair whose messages used the same switch port at the same time.

    The other pair has another sender and another receiver, or belongs to another job.
    ``at`` is the first port that their paths share.  ``share`` is the share of this
    pair's time in flight in which the other pair had messages at that port.
    """

    at: str
    job: str
    src: int
    dst: int
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PairSummary:
    """Summary of the messages from one rank to another.

    ``rate_bps`` is the lower rate of the two ports.  ``paths`` are all paths of the
    messages as ports of switches, most used first.  ``met`` lists the other pairs at
    these ports, for the slowest pairs only.  ``paths`` and ``met`` are empty if paths
    are unknown.
    """

    job: str
    src: int
    dst: int
    messages: int
    payload_bytes: int
    rate_bps: int | None
    goodput_bps: float | None
    goodput_share: float | None
    fct: FctPercentiles
    mean_ns: float
    fair_ns: float | None
    fair_share: float | None
    retransmitted: int | None
    cnp: int | None
    paths: tuple[tuple[str, ...], ...] = ()
    met: tuple[SharedPath, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageSummary:
    """Summary of all point-to-point messages that crossed a port.

    The summary covers the measured iterations.  ``pairs`` starts with the pair that has
    the lowest % of fair.  Pairs without a fair time come last, ordered by time per
    byte.  ``receivers`` and ``senders`` are in the order of the ports.
    """

    messages: int
    receivers: tuple[PortSummary, ...]
    senders: tuple[PortSummary, ...]
    pairs: tuple[PairSummary, ...]
    worst_over_median: float | None
