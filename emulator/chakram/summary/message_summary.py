"""What a run says of its point-to-point messages: by port, and by pair of ranks.

Definitions:

busy period
    Of one direction of a port: a stretch of time in which at least one message through
    it is under way, posted and not acknowledged.  What is under way together is decided
    by these times and not by the program: the stages of a pipeline post when they are
    ready, and those of their messages that never met do not share a port.
goodput
    Payload over the time of the busy periods; as a share of the port's rate also with
    all headers (``wire``), each packet counted once.  A port that was more than 5 %
    faster than its rate has no shares of it: busy periods so short are what a shaper
    lets pass as a burst, or the rate is not the port's.
fair, % of fair
    A message is due after its fair time (``chakram.predict.fair_sharing``), or when it
    was done if that was sooner: what it gained, others lost, and it shows there.  The
    fair time of a busy period is from its first message posted to the last one due, and
    no less than its bytes take at the port's rate.  Messages that were posted together
    are due when the bytes of all have crossed the port, plus latency.  Where the period
    was shorter than that its fair time is the period: the port was faster than its
    rate.  Of a pair the fair time is the mean time until its messages were due.  Over
    the measured time it is the share.
fan
    The most messages that were under way at once.
fairness
    Jain's index, (sum x)^2 / (n sum x^2), over the ranks at the other end in a busy
    period, x being fair over measured time; the mean over the periods with two such
    ranks or more, and the least.  1: all were held up alike.  Where fair times are
    unknown x is the rate of the messages.
skew
    From the first of the ranks at the other end that posts in a busy period to the
    last; the mean over those periods, and the largest.
worst over median
    Over all pairs with a fair time: the largest measured over fair time, by the median
    one.  None if there is no such pair.

Messages between ranks of one port, or that stay within a host, cross no port and are
left out, and so is the warm-up.  Other traffic, collectives and other jobs, is in no
fair time: a fair time is that of the job's messages alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple


class SentMessage(NamedTuple):
    """One point-to-point message of a measured iteration; times of one clock, raw.

    ``fair_ns`` is None where nobody knows it.  ``ways`` are those that it took, or its
    parts if it was divided: the ports by which switches sent it on to other switches.
    They are None if unknown.
    """

    job: str
    src: int
    dst: int
    size_bytes: int
    posted_ns: int
    acked_ns: int
    fair_ns: int | None = None
    retransmitted: int = 0
    cnp: int = 0
    ways: tuple[tuple[str, ...], ...] | None = None

    @property
    def fct_ns(self) -> int:
        """Completion time: posted to last byte acknowledged."""
        return self.acked_ns - self.posted_ns

    @property
    def due_ns(self) -> int | None:
        """After how long it was due: its fair time, or its own if that was shorter."""
        return None if self.fair_ns is None else min(self.fair_ns, self.fct_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class PortFacts:
    """The port of a rank; ``host`` names it in the topology."""

    number: int
    host: str
    rate_bps: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageTransport:
    """How messages travel: what makes wire bytes of payload, and by which ports.

    ``path_mtu``, ``verb`` and ``overhead_bytes`` are as in ``chakram.plan.wire_cost``;
    ``ports`` is by job and rank; ``within_hosts`` are the (job, source, destination)
    whose messages stay within their host.  ``window_bytes`` and ``burst_packets`` are
    0 if unknown, ``least_rate_bps`` if congestion control sets no lowest rate.
    """

    path_mtu: int
    verb: str
    overhead_bytes: int
    ports: Mapping[tuple[str, int], PortFacts]
    within_hosts: frozenset[tuple[str, int, int]] = frozenset()
    window_bytes: int = 0
    burst_packets: int = 0
    least_rate_bps: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FctPercentiles:
    """Completion times of messages; percentiles by nearest rank."""

    min_ns: float
    p50_ns: float
    p95_ns: float
    p99_ns: float
    max_ns: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PortSummary:
    """One direction of a port, of one job.

    ``ranks`` are those at the port that took part, ``peers`` how many there were at the
    other end.  ``busy_ns`` is the sum of the busy periods, ``time_ns`` their mean.
    ``is_faster``: the port was so much faster than its rate that there are no shares.
    ``marked`` counts packets that came with a congestion mark, ``cnp`` what their
    senders were told of it, ``drops`` packets that the queue of the port's link dropped
    in the whole run, whatever they belonged to; None where nobody counts them.
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
    retransmitted: int
    marked: int
    cnp: int
    drops: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedPath:
    """Another pair whose messages left a switch by the same port at the same time.

    It has neither rank in common with the pair, and may be one of another job.  ``at``
    is where their paths come together, ``share`` the part of the pair's time under way
    in which it was there.
    """

    at: str
    job: str
    src: int
    dst: int
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PairSummary:
    """Messages from one rank to another.

    ``rate_bps`` is the lower rate of the two ports.  ``paths`` are all that the
    messages took, as ports of switches, most used first; ``met`` says of the slowest
    pairs whom they met there.  Both are empty where paths are unknown.
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
    retransmitted: int
    cnp: int
    paths: tuple[tuple[str, ...], ...] = ()
    met: tuple[SharedPath, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageSummary:
    """All point-to-point messages of the measured iterations that crossed a port.

    ``pairs`` begin with the slowest, by % of fair; those without one come after
    all others, by time per byte.  ``receivers`` and ``senders`` are in the order of the
    ports.
    """

    messages: int
    receivers: tuple[PortSummary, ...]
    senders: tuple[PortSummary, ...]
    pairs: tuple[PairSummary, ...]
    worst_over_median: float | None
