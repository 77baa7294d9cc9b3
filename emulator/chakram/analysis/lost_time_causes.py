"""Causes of lost time on critical paths, with their places.

The *lost time* of a piece of a path is its time beyond the nominal time.  Nominal times
are:

* For a computation, the duration on peer ranks.
* For serialization, the bytes at the configured rate.
* For propagation, the whole time.
* For any other piece, 0.

Each lost nanosecond has one cause, which the first matching rule determines.

Queueing delays of single packets are unknown in a run on a network.  The nominal time
of a message, from first packet to arrival, is then its time on an unloaded network.
The excess is charged to the link with the longest busy time on the message's path.
Time spent waiting for a full window is also charged to the network if the window is
large enough for the unloaded path.  The time on the network is unknown in a collective
that the traffic generator delayed.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from chakram.analysis.critical_path import Message, Part, Path, Piece
from chakram.records.run_records import LinkRecord
from chakram.topology.comparable_links import usual_port_rates_bps

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

__all__ = [
    "GENERATOR_SLOW",
    "LEAST_SHARE",
    "Cause",
    "SentPackets",
    "Surroundings",
    "Why",
    "explain",
]

LEAST_SHARE = 0.03
"""Minimum share of the iterations' time at which the largest cause is reported."""

GENERATOR_SLOW = "generator slow"
"""Cause to which time spent in the traffic generator is charged."""

_IMBALANCE = 1.5
_NEAR_MINIMUM = 1.1
_PEER_RATE = 0.9
"""A link below this share of the median rate of comparable links is slow."""

_FULL = 0.95
"""A link with at least this share of the highest load counts as equally loaded."""

_CARRIED = 0.5
"""A link that carried less than this share of the expected header bytes was down."""

_BIT_NS = 8 * 10**9
_NEVER_LOST = frozenset({Part.PROPAGATE, Part.SCHEDULE, Part.UNKNOWN})
_OF_THE_NETWORK = frozenset({Part.NETWORK, Part.WINDOW})
_Key = TypeVar("_Key", tuple[str, int], tuple[str, str])
_PHRASES = {
    Part.OWN_PORT: "own port",
    Part.WINDOW: "window",
    Part.ORDER: "order",
    Part.HOST: "host",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """A cause of lost time.

    Attributes:
        cause: Type of cause, e.g. ``slow link``.
        place: A rank, a link, a port or a switch.
        lost_ns: Lost time on all paths together.
        share: Lost time as a share of the iterations' time.
        fault: Description of the fault that the experiment injected at *place*, or
            None.
    """

    cause: str
    place: str
    lost_ns: int
    share: float
    fault: str | None = None

    def __str__(self) -> str:
        done = "" if self.fault is None else f" (injected: {self.fault})"
        return f"{self.cause} at {self.place}{done}"


class SentPackets(NamedTuple):
    """Numbers of packets and retransmissions from one rank to another on one path."""

    job: str
    src: int
    dst: int
    path: str | None
    packets: int
    retransmitted: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """The links, hosts, rates and faults that explain a run's messages.

    Attributes:
        links: Properties and counters of the links.
        slow_ports: Ports whose link was below its configured rate.
        storm_ports: Ports that the experiment paused on purpose.
        faults: Descriptions of the faults that the experiment injected, by direction of
            a link, e.g. ``leaf0-spine1 up``.
        hosts: Host of each rank.  Keys are job and rank.
        rates_bps: Port rate of each rank. Keys are job and rank. None means no limit.
        overhead_bytes: Bytes of a packet in addition to its payload.
        path_mtu: Maximum payload of a packet.
        window_bytes: Maximum unacknowledged bytes of a queue pair. 0 means unknown.
        burst_packets: Maximum number of packets sent as one burst.
        least_rate_bps: Minimum rate that congestion control sets. 0 means none.
        has_fixed_rate: Whether congestion control always paces at *least_rate_bps*.
        ways_ns: Time of a message on an unloaded network, from first packet to arrival.
            Keys are job, sender, receiver and bytes.  Empty for runs in virtual time.
        sent: Numbers of packets and retransmissions, by pair of ranks and path.
        repeated: Job, sender and receiver of sessions whose timeouts mostly resent
            packets that had arrived.
        unsure: Job, iteration, group and k of collectives that the traffic generator
            delayed.
    """

    links: Sequence[LinkRecord] = ()
    slow_ports: frozenset[str] = frozenset()
    storm_ports: frozenset[str] = frozenset()
    faults: Mapping[str, str] = field(default_factory=dict)
    hosts: Mapping[tuple[str, int], str] = field(default_factory=dict)
    rates_bps: Mapping[tuple[str, int], int | None] = field(default_factory=dict)
    overhead_bytes: int = 0
    path_mtu: int = 1
    window_bytes: int = 0
    burst_packets: int = 1
    least_rate_bps: int = 0
    has_fixed_rate: bool = False
    ways_ns: Mapping[tuple[str, int, int, int], int] = field(default_factory=dict)
    sent: Sequence[SentPackets] = ()
    repeated: Collection[tuple[str, int, int]] = ()
    unsure: Collection[tuple[str, int, str, int]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """Breakdown of the iterations' time, and the causes of lost time.

    Attributes:
        iterations: Number of iterations.
        time_ns: Total time of all iterations.
        parts_ns: Time on the paths, by part.  The sum over all parts is *time_ns*.
        causes: Causes of lost time, largest first.
        by_rank: Lost time by rank, largest first.  If there are several jobs, the name
            of the job comes first, e.g. ``moe rank 3``.
        by_collective: Lost time by collective or name of a computation, largest first.
            If there are several jobs, the name of the job comes first.
        path: Path of the longest iteration.
        jobs: Names of the jobs that the iterations belong to.
        distorted_ns: Time on the network in collectives that the traffic generator
            delayed.  The generator's share of this time is unknown.
    """

    iterations: int
    time_ns: int
    parts_ns: Mapping[Part, int]
    causes: tuple[Cause, ...]
    by_rank: tuple[tuple[int | str, int], ...]
    by_collective: tuple[tuple[str, int], ...]
    path: Path | None
    jobs: tuple[str, ...] = ()
    distorted_ns: int = 0

    @property
    def generator_share(self) -> float:
        """Share of the time that is charged to the traffic generator."""
        return sum(each.share for each in self.causes if each.cause == GENERATOR_SLOW)

    @property
    def distorted_share(self) -> float:
        """Share of the time for which the generator's part is unknown."""
        return self.distorted_ns / self.time_ns if self.time_ns else 0.0

    @property
    def lost_ns(self) -> int:
        """Total lost time."""
        return sum(each.lost_ns for each in self.causes)

    @property
    def unknown_share(self) -> float:
        """Share of the time that belongs to no known part."""
        unknown_ns = self.parts_ns.get(Part.UNKNOWN, 0)
        return unknown_ns / self.time_ns if self.time_ns else 0.0

    @property
    def first(self) -> Cause | None:
        """The largest cause, or None if its share is below ``LEAST_SHARE``."""
        if not self.causes or self.causes[0].share < LEAST_SHARE:
            return None
        return self.causes[0]


def explain(paths: Iterable[Path], around: Surroundings) -> Why:
    """Explain the lost time on the critical paths of iterations, one path for each."""
    lost_by: Counter[tuple[str, str]] = Counter()
    # Jobs number their ranks and groups separately.
    by_rank: Counter[tuple[str, int]] = Counter()
    by_collective: Counter[tuple[str, str]] = Counter()
    parts_ns: Counter[Part] = Counter()
    judge = _Judge(around)
    total_ns = iterations = distorted_ns = 0
    longest: Path | None = None
    jobs: dict[str, None] = {}
    for path in paths:
        iterations += 1
        jobs[path.job] = None
        total_ns += path.time_ns
        if longest is None or path.time_ns > longest.time_ns:
            longest = path
        judge.job = path.job
        for each in path.pieces:
            piece = each._replace(part=_certain(each, path, around))
            if piece.part is not each.part:
                distorted_ns += piece.time_ns
            parts_ns[piece.part] += piece.time_ns
            lost_ns = judge.lost_ns(piece)
            if lost_ns > 0:
                lost_by[judge.cause(piece)] += lost_ns
                by_rank[path.job, piece.rank] += lost_ns
                by_collective[path.job, _work(piece)] += lost_ns
    return Why(
        iterations=iterations,
        time_ns=total_ns,
        parts_ns=dict(parts_ns),
        causes=tuple(
            Cause(
                cause=cause,
                place=place,
                lost_ns=lost_ns,
                share=lost_ns / total_ns if total_ns else 0.0,
                fault=around.faults.get(place),
            )
            for (cause, place), lost_ns in sorted(
                lost_by.items(), key=lambda item: (-item[1], item[0])
            )
        ),
        by_rank=tuple(
            (rank if len(jobs) < 2 else f"{job} rank {rank}", lost_ns)
            for (job, rank), lost_ns in _most_first(by_rank)
        ),
        by_collective=tuple(
            (work if len(jobs) < 2 else f"{job} {work}", lost_ns)
            for (job, work), lost_ns in _most_first(by_collective)
        ),
        path=longest,
        jobs=tuple(jobs),
        distorted_ns=distorted_ns,
    )


def _most_first(counted: Counter[_Key]) -> list[tuple[_Key, int]]:
    return sorted(counted.items(), key=lambda item: (-item[1], item[0]))


def _certain(piece: Piece, path: Path, around: Surroundings) -> Part:
    """Return the part of a piece, or ``UNKNOWN`` if the generator distorted it."""
    message = piece.message
    if message is None or piece.part not in _OF_THE_NETWORK:
        return piece.part
    key = (path.job, path.iteration, message.group, message.k)
    return Part.UNKNOWN if key in around.unsure else piece.part


def _work(piece: Piece) -> str:
    """Return the name of the collective or computation that a piece belongs to."""
    if piece.message is not None:
        message = piece.message
        return f"{message.collective} {message.group}#{message.k}"
    return piece.operation.name if piece.operation is not None else str(piece.part)


class _Judge:
    """Calculates the lost time and the cause of each piece of the job ``job``."""

    def __init__(self, around: Surroundings) -> None:
        self.job = ""
        self._around = around
        # Rank numbers are unique only within a job.
        self._is_one_job = len({job for job, _ in around.hosts}) < 2
        self._link_of = {link.port: link for link in around.links}
        self._group: dict[str, list[LinkRecord]] = {}
        for link in around.links:
            if link.equal_cost is not None:
                self._group.setdefault(link.equal_cost, []).append(link)
        # The first port of each node, and the opposite port of each port.
        self._port_of: dict[str, str] = {}
        self._back: dict[str, str] = {}
        ends: dict[str, str] = {}
        for link in around.links:
            if link.port is not None:
                self._port_of.setdefault(link.port.rpartition(":")[0], link.port)
                other = ends.setdefault(link.link, link.port)
                self._back |= {link.port: other, other: link.port}
        self._usual_bps = usual_port_rates_bps(around.links)
        # Packets and retransmissions by egress port.
        self._packets: Counter[str] = Counter()
        self._again: Counter[str] = Counter()
        self._paths: dict[tuple[str, int, int], set[str | None]] = {}
        for sent in around.sent:
            key = sent.job, sent.src, sent.dst
            self._paths.setdefault(key, set()).add(sent.path)
            for port in self._ways(sent.job, sent.src, sent.dst, sent.path):
                self._packets[port] += sent.packets
                self._again[port] += sent.retransmitted

    def lost_ns(self, piece: Piece) -> int:
        """Return the time of a piece beyond its nominal time."""
        time_ns, part = piece.time_ns, piece.part
        if part in _NEVER_LOST:
            return 0
        if part is Part.COMPUTE:
            operation = piece.operation
            if operation is None or operation.nominal_ns is None:
                return 0
            return time_ns - operation.nominal_ns
        message = piece.message
        if message is None:
            return time_ns
        if part is Part.SERIALISE:
            return message.slow_ns or 0
        if part is Part.PACE:
            # A port that sends packets ahead of its wire shortens the transfer.  Pacing
            # that only offsets this is not lost time.
            return max(0, time_ns - self._made_up_ns(message))
        if part is Part.OWN_PORT and self._way_ns(message) is not None:
            # After a delay, a port sends faster than nominal until it catches up.  This
            # offsets the delay.
            return time_ns - max(0, self._made_up_ns(message) - (message.pace_ns or 0))
        if part is Part.TRANSFER:
            if self._way_ns(message) is None:
                return time_ns - self._transfer_ns(message)
            return self._over_ns(message) - self._after_ns(message)
        if part is Part.ACK:
            # An ACK is smaller than the message, so its delays are at most the
            # message's.
            way_ns = (message.serialise_ns or 0) + (message.propagate_ns or 0)
            return time_ns - way_ns if way_ns else 0
        if part is Part.NETWORK:
            return min(self._over_ns(message), time_ns)
        return time_ns

    def _made_up_ns(self, message: Message) -> int:
        """Return by how much the transfer of a message is shorter than nominal."""
        return max(0, self._transfer_ns(message) - (message.transfer_ns or 0))

    def _over_ns(self, message: Message) -> int:
        """Return the time of a message on its path beyond its nominal time."""
        way_ns = self._way_ns(message)
        if way_ns is None:
            return 0
        return (message.transfer_ns or 0) + self._after_ns(message) - way_ns

    def _after_ns(self, message: Message) -> int:
        """Return the time of a message from departure to arrival or the last ACK."""
        end_ns = message.received_ns or message.last_acked_ns
        if message.departed_ns is not None:
            return end_ns - message.departed_ns
        # An RDMA NIC sent the message.  Count from when the NIC received the message.
        waited_ns = max(message.posted_ns - message.ready_ns, message.generator_wait_ns)
        return end_ns - message.ready_ns - waited_ns

    def _way_ns(self, message: Message) -> int | None:
        """Return the time of a message on an unloaded network, or None if unknown."""
        key = (self.job, message.src, message.dst, message.bytes)
        return self._around.ways_ns.get(key)

    def _is_wide_enough(self, message: Message) -> bool:
        """Return whether the window covers the bytes in flight on an unloaded path."""
        around = self._around
        rate_bps = around.rates_bps.get((self.job, message.src))
        if not rate_bps or not around.window_bytes:
            return False
        packet_bytes = around.path_mtu + around.overhead_bytes
        burst_bytes = around.burst_packets * packet_bytes
        way_ns = self._way_ns(message)
        if way_ns is None:
            there_ns = (message.serialise_ns or 0) + (message.propagate_ns or 0)
            if not there_ns:
                return False
            back_ns = there_ns
        else:
            there_ns = way_ns - self._transfer_ns(message)
            back_ns = 0
        under_way_bytes = rate_bps * max(0, there_ns + back_ns) // _BIT_NS
        return around.window_bytes >= under_way_bytes + 2 * burst_bytes

    def _transfer_ns(self, message: Message) -> int:
        rate_bps = self._around.rates_bps.get((self.job, message.src))
        if not rate_bps:
            return 0
        link = self._link_of.get(self._host_port(self.job, message.src))
        usual_bps = self._usual_bps.get(link.port or "", 0) if link else 0
        if rate_bps < _PEER_RATE * usual_bps:
            rate_bps = usual_bps
        before = max(0, message.packets - 1)
        wire_bytes = before * (self._around.path_mtu + self._around.overhead_bytes)
        return -(-wire_bytes * _BIT_NS // rate_bps)

    def cause(self, piece: Piece) -> tuple[str, str]:
        """Return the cause of a piece's lost time, and the place of the cause."""
        part, rank = piece.part, piece.rank
        message = piece.message
        if part is Part.GENERATOR:
            return GENERATOR_SLOW, self._host(rank)
        if part is Part.START_SKEW:
            return "late rank", self._rank(rank)
        if part is Part.COMPUTE:
            name = piece.operation.name if piece.operation is not None else ""
            return "slow compute", f"{self._rank(rank)}, {name}"
        if message is None:
            return _PHRASES.get(part, str(part)), self._rank(rank)
        if part is Part.REPAIR or (part is Part.ACK and message.retransmitted):
            return self._sent_again(message)
        if part is Part.PACE:
            return self._congestion_control(message)
        if part is Part.PAUSE:
            return "pause", self._pausing_port(message, None)
        if part is Part.SWITCH_PAUSE:
            return "pause", self._pausing_port(message, message.pause_port)
        if part is Part.SERIALISE:
            return "slow link", self._named(message.slow_port)
        if part is Part.TRANSFER:
            port = self._host_port(self.job, message.src)
            nominal_ns = self._transfer_ns(message)
            if port is None or nominal_ns > _PEER_RATE * piece.time_ns:
                # The rate of the port is unknown, or not below that of comparable
                # links.
                return "own port", self._rank(rank)
            return "slow link", self._named(port)
        if part is Part.OWN_PORT:
            # Earlier messages occupied the port longer than on comparable links.
            port = self._host_port(self.job, message.src)
            if self._is_slow(port):
                return "slow link", self._named(port)
        if part is Part.WINDOW and self._is_wide_enough(message):
            if message.retransmitted:
                return self._sent_again(message)
            return self._round_trip(message)
        if part is Part.ACK:
            return self._round_trip(message)
        if part in (Part.QUEUE, Part.NETWORK):
            return self._queue(message)
        return _PHRASES.get(part, str(part)), self._rank(rank)

    # Places.

    def _rank(self, rank: int) -> str:
        return f"rank {rank}" if self._is_one_job else f"{self.job} rank {rank}"

    def _named(self, port: str | None) -> str:
        """Return the name and direction of the link that begins at a port."""
        link = self._link_of.get(port)
        return f"{link.link} {link.direction}" if link else port or "unknown"

    def _host(self, rank: int) -> str:
        return self._around.hosts.get((self.job, rank), self._rank(rank))

    def _host_port(self, job: str, rank: int) -> str | None:
        """Return the first port of a rank's host."""
        return self._port_of.get(self._around.hosts.get((job, rank), ""))

    def _ports(self, message: Message) -> list[str]:
        """Return the known egress ports on the path of a message."""
        return self._ways(self.job, message.src, message.dst, message.path)

    def _ways(self, job: str, src: int, dst: int, path: str | None) -> list[str]:
        first = self._host_port(job, src)
        ports = [] if first is None else [first]
        if path is not None and " | " not in path:
            ports += path.split()
        # The last port leads to the receiver's host.
        last = self._back.get(self._host_port(job, dst) or "")
        return ports if last is None else [*ports, last]

    def _ports_back(self, message: Message) -> list[str]:
        """Return the known egress ports on the path of a message's acknowledgments.

        Between switches, these are the ports of messages in the other direction.
        """
        src, dst = message.dst, message.src
        paths = self._paths.get((self.job, src, dst), {None})
        ports = [
            port for path in paths for port in self._ways(self.job, src, dst, path)
        ]
        return list(dict.fromkeys(ports))

    def _round_trip(self, message: Message) -> tuple[str, str]:
        """Return the cause and place of a delay on a message's path or return path."""
        both = (*self._ports(message), *self._ports_back(message))
        slow = next(filter(self._is_slow, both), None)
        return (
            self._queue(message) if slow is None else ("slow link", self._named(slow))
        )

    def _sent_again(self, message: Message) -> tuple[str, str]:
        """Return the cause of a message's retransmissions, and the cause's place."""
        if (self.job, message.src, message.dst) not in self._around.repeated:
            return "loss", self._losing_link(message)
        own = (*self._ports(message), *self._ports_back(message))
        between = (each.port for each in self._around.links if each.kind == "uplink")
        slow = next(filter(self._is_slow, (*own, *between)), message.queue_port)
        place = self._named(slow) if slow else self._queue(message)[1]
        return "spurious timeout", place

    def _losing_link(self, message: Message) -> str:
        """Return the link that lost packets of a message, or its acknowledgments."""
        links = [
            link
            for port in (*self._ports(message), *self._ports_back(message))
            if (link := self._link_of.get(port)) is not None
        ]
        lossy = [link for link in links if link.drops]
        if lossy:
            worst = max(lossy, key=lambda link: link.drops or 0)
            return self._named(worst.port)
        # Without counted drops, name the ports with the highest retransmission rate.
        shares = {
            port: self._again[port] / self._packets[port]
            for port in self._ports(message)
            if self._again[port]
        }
        most = max(shares.values(), default=0.0)
        names = [self._named(port) for port in shares if shares[port] == most]
        return " or ".join(names) or f"toward {self._host(message.dst)}"

    def _congestion_control(self, message: Message) -> tuple[str, str]:
        least_bps = self._around.least_rate_bps
        port_bps = self._around.rates_bps.get((self.job, message.src))
        if port_bps and least_bps >= port_bps:
            # If pacing uses the port's full rate, the message waits for the port
            # itself.
            return _PHRASES[Part.OWN_PORT], self._rank(message.src)
        if least_bps and 0 < message.rate_at_start_bps <= _NEAR_MINIMUM * least_bps:
            at_minimum = "" if self._around.has_fixed_rate else " at minimum rate"
            of_job = "" if self._is_one_job else f"{self.job} "
            return f"congestion control{at_minimum}", f"{of_job}{message.collective}"
        marking = [
            link
            for port in self._ports(message)
            if (link := self._link_of.get(port)) is not None and link.marked
        ]
        if marking:
            worst = max(marking, key=lambda link: link.marked or 0)
            return "congestion control", self._named(worst.port)
        return "congestion control", self._rank(message.src)

    def _pausing_port(self, message: Message, port: str | None) -> str:
        """Return the link that caused a pause on the path of a message.

        A paused port waits for the next port on the path.  If that port is paused, too,
        the cause is further downstream.  The search stops at a port that the experiment
        paused on purpose.
        """
        ports = self._ports(message)
        at = ports.index(port) if port in ports else 0
        while at + 1 < len(ports) and ports[at] not in self._around.storm_ports:
            at += 1
            link = self._link_of.get(ports[at])
            if link is None or not link.paused_ns:
                break
        return self._named(ports[at]) if ports else self._named(port)

    def _queue(self, message: Message) -> tuple[str, str]:
        port = message.queue_port
        if port is None:
            ports = self._ports(message)
            # Computed paths include links that were down.
            for each in filter(self._siblings, ports):
                if self._is_dead(self._link_of[each]):
                    return "dead uplink", self._named(each)
            # The queue forms at the first of the most loaded ports, which spaces the
            # packets for all later ports.
            most = max(map(self._load, ports), default=0.0)
            full = (each for each in ports if self._load(each) >= _FULL * most)
            port = next(full, None)
        if self._is_slow(port):
            return "slow link", self._named(port)
        group = self._siblings(port)
        for sibling in group:
            if self._is_dead(sibling):
                return "dead uplink", self._named(sibling.port)
        if len(group) > 1:
            mean = sum(each.bytes for each in group) / len(group)
            if mean and max(each.bytes for each in group) >= _IMBALANCE * mean:
                return "hash imbalance", (port or "").split(":")[0]
        return "contention", self._named(port)

    def _siblings(self, port: str | None) -> list[LinkRecord]:
        """Return a port's equal-cost links, including its own, or an empty list."""
        link = self._link_of.get(port)
        group = self._group.get(link.equal_cost, []) if link and link.equal_cost else []
        return group if len(group) > 1 else []

    def _is_dead(self, link: LinkRecord) -> bool:
        """Return whether an equal-cost link was down, or lost the packets sent to it.

        A link without packets is idle, not dead, because the hash may not select it.
        """
        if link.down_ns is not None:
            return link.down_ns > 0
        sent = self._packets[link.port or ""] * self._around.overhead_bytes
        return link.bytes < _CARRIED * sent

    def _is_slow(self, port: str | None) -> bool:
        """Return whether a link is slower than configured, or than comparable links."""
        if port in self._around.slow_ports:
            return True
        link = self._link_of.get(port)
        if link is None:
            return False
        return bool(
            link.rate_bps
            and link.rate_bps < _PEER_RATE * self._usual_bps.get(link.port or "", 0)
        )

    def _load(self, port: str) -> float:
        """Return a link's bytes divided by its rate, or 0 if the rate is unknown."""
        link = self._link_of.get(port)
        return link.bytes / link.rate_bps if link and link.rate_bps else 0.0
