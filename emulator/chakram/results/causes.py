"""Causes of lost time on critical paths: what it was, and where.

The *lost time* of a piece is what it takes beyond its nominal time: of a computation
the duration that its rank's peers have, of bits on a wire what they take at the
configured rate, of propagation all of it; anything else has a nominal time of nothing.
Each lost nanosecond has one cause, by the first rule that holds.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from chakram.results.critical_path import Part

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from chakram.results.critical_path import Message, Path, Piece
    from chakram.results.run_records import LinkRecord

__all__ = ["LEAST_SHARE", "Cause", "Surroundings", "Why", "explain"]

LEAST_SHARE = 0.03
"""What the largest cause must take of the iterations to be called one."""

_IMBALANCE = 1.5
_NEAR_MINIMUM = 1.1
_BIT_NS = 8 * 10**9
_NEVER_LOST = frozenset({Part.PROPAGATE, Part.SCHEDULE, Part.UNKNOWN})
_Key = TypeVar("_Key", int, str)
_NAMED_SO = {
    Part.OWN_PORT: "own port",
    Part.WINDOW: "window",
    Part.ORDER: "order",
    Part.HOST: "host",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Something that time was lost by.

    Attributes:
        cause: What, e.g. ``slow link``.
        place: Where: a rank, a link, a port, a switch.
        lost_ns: How much, on all paths together.
        share: Of the time of the iterations.
    """

    cause: str
    place: str
    lost_ns: int
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a run had around its messages.

    Attributes:
        links: What went through the links, and what they are.
        slow_ports: Ports whose link had less than its rate.
        hosts: By rank the host that it is at.
        rates_bps: By rank the rate of its port; None: no limit.
        overhead_bytes: What a packet has beside its payload.
        path_mtu: Its largest payload.
        least_rate_bps: The lowest rate that congestion control sets; 0: none.
        least_network_ns: By sender, receiver and bytes, the shortest time that a packet
            took, where its parts are not known.
    """

    links: Sequence[LinkRecord] = ()
    slow_ports: frozenset[str] = frozenset()
    hosts: Mapping[int, str] = field(default_factory=dict)
    rates_bps: Mapping[int, int | None] = field(default_factory=dict)
    overhead_bytes: int = 0
    path_mtu: int = 1
    least_rate_bps: int = 0
    least_network_ns: Mapping[tuple[int, int, int], int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """Where the time of iterations went, and what it was lost by.

    Attributes:
        iterations: How many were looked at.
        time_ns: How long all of them took together.
        parts_ns: By part, the time on the paths; the sum is *time_ns*.
        causes: The largest first.
        by_rank: Lost time by rank, the most first.
        by_collective: By collective, or name of a computation, likewise.
        path: Of the longest iteration.
    """

    iterations: int
    time_ns: int
    parts_ns: Mapping[Part, int]
    causes: tuple[Cause, ...]
    by_rank: tuple[tuple[int, int], ...]
    by_collective: tuple[tuple[str, int], ...]
    path: Path | None

    @property
    def lost_ns(self) -> int:
        """What was lost in all."""
        return sum(each.lost_ns for each in self.causes)

    @property
    def unknown_share(self) -> float:
        """Which share of the time nobody can tell the part of."""
        unknown_ns = self.parts_ns.get(Part.UNKNOWN, 0)
        return unknown_ns / self.time_ns if self.time_ns else 0.0

    @property
    def first(self) -> Cause | None:
        """The largest cause; None: no single one is large enough."""
        if not self.causes or self.causes[0].share < LEAST_SHARE:
            return None
        return self.causes[0]


def explain(paths: Iterable[Path], around: Surroundings) -> Why:
    """Return what time was lost by on *paths*, each of one iteration."""
    lost_by: Counter[tuple[str, str]] = Counter()
    by_rank: Counter[int] = Counter()
    by_collective: Counter[str] = Counter()
    parts_ns: Counter[Part] = Counter()
    judge = _Judge(around)
    total_ns = iterations = 0
    longest: Path | None = None
    for path in paths:
        iterations += 1
        total_ns += path.time_ns
        if longest is None or path.time_ns > longest.time_ns:
            longest = path
        for piece in path.pieces:
            parts_ns[piece.part] += piece.time_ns
            lost_ns = judge.lost_ns(piece)
            if lost_ns > 0:
                lost_by[judge.cause(piece)] += lost_ns
                by_rank[piece.rank] += lost_ns
                by_collective[_work(piece)] += lost_ns
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
            )
            for (cause, place), lost_ns in sorted(
                lost_by.items(), key=lambda item: (-item[1], item[0])
            )
        ),
        by_rank=tuple(_most_first(by_rank)),
        by_collective=tuple(_most_first(by_collective)),
        path=longest,
    )


def _most_first(counted: Counter[_Key]) -> list[tuple[_Key, int]]:
    return sorted(counted.items(), key=lambda item: (-item[1], item[0]))


def _work(piece: Piece) -> str:
    """Return what a piece belongs to."""
    if piece.message is not None:
        message = piece.message
        return f"{message.collective} {message.group}#{message.k}"
    return piece.operation.name if piece.operation is not None else str(piece.part)


class _Judge:
    """Says what was lost in a piece, and what by."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._link_of = {link.port: link for link in around.links}
        self._group: dict[str, list[LinkRecord]] = {}
        for link in around.links:
            if link.equal_cost is not None:
                self._group.setdefault(link.equal_cost, []).append(link)

    def lost_ns(self, piece: Piece) -> int:
        """Return how much longer a piece is than nominal."""
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
        if part is Part.TRANSFER:
            return time_ns - self._transfer_ns(message)
        if part is Part.ACK:
            # It takes the way back; its bits take less than those of the message.
            way_ns = (message.serialise_ns or 0) + (message.propagate_ns or 0)
            return time_ns - way_ns if way_ns else 0
        if part is Part.NETWORK:
            key = (message.src, message.dst, message.bytes)
            return time_ns - self._around.least_network_ns.get(key, time_ns)
        return time_ns

    def _transfer_ns(self, message: Message) -> int:
        rate_bps = self._around.rates_bps.get(message.src)
        if not rate_bps:
            return 0
        before = max(0, message.packets - 1)
        wire_bytes = before * (self._around.path_mtu + self._around.overhead_bytes)
        return -(-wire_bytes * _BIT_NS // rate_bps)

    def cause(self, piece: Piece) -> tuple[str, str]:
        """Return what time was lost by, and where, by the first rule that holds."""
        part, rank = piece.part, piece.rank
        message = piece.message
        if part is Part.GENERATOR:
            return "generator slow", self._around.hosts.get(rank, f"rank {rank}")
        if part is Part.START_SKEW:
            return "late rank", f"rank {rank}"
        if part is Part.COMPUTE:
            name = piece.operation.name if piece.operation is not None else ""
            return "slow compute", f"rank {rank}, {name}"
        if message is None:
            return _NAMED_SO.get(part, str(part)), f"rank {rank}"
        if part is Part.REPAIR or (part is Part.ACK and message.retransmitted):
            return "loss", self._losing_link(message)
        if part is Part.PACE:
            return self._congestion_control(message)
        if part is Part.PAUSE:
            return "pause", self._pausing_port(message, None)
        if part is Part.SWITCH_PAUSE:
            return "pause", self._pausing_port(message, message.pause_port)
        if part is Part.SERIALISE:
            return "slow link", self._named(message.slow_port)
        if part is Part.TRANSFER:
            return "slow link", self._named(self._host_port(message.src))
        if part in (Part.QUEUE, Part.ACK, Part.NETWORK):
            return self._queue(message)
        return _NAMED_SO.get(part, str(part)), f"rank {rank}"

    # Where things are.

    def _named(self, port: str | None) -> str:
        """Return the link that begins at a port, with its direction."""
        link = self._link_of.get(port)
        return f"{link.link} {link.direction}" if link else port or "unknown"

    def _host_port(self, rank: int) -> str | None:
        """Return the port of the host of a rank."""
        host = self._around.hosts.get(rank)
        found = (port for port in self._link_of if port and port.startswith(f"{host}:"))
        return next(found, None)

    def _ports(self, message: Message) -> list[str]:
        """Return the ports that a message leaves by, as far as they are known."""
        first = self._host_port(message.src)
        ports = [] if first is None else [first]
        if message.path is not None and " | " not in message.path:
            ports += message.path.split()
        # The last is the one towards its receiver's host.
        own = self._host_port(message.dst)
        back = self._link_of.get(own)
        last = [
            link.port
            for link in self._around.links
            if back is not None and link.link == back.link and link.port != own
        ]
        return ports + [port for port in last if port is not None]

    def _losing_link(self, message: Message) -> str:
        """Return where packets of a message were lost."""
        links = [
            link
            for port in self._ports(message)
            if (link := self._link_of.get(port)) is not None
        ]
        lossy = [link for link in links if link.drops]
        if lossy:
            worst = max(lossy, key=lambda link: link.drops or 0)
            return self._named(worst.port)
        # No link says so: at least it was on the way to this host.
        return f"towards {self._around.hosts.get(message.dst, f'rank {message.dst}')}"

    def _congestion_control(self, message: Message) -> tuple[str, str]:
        least_bps = self._around.least_rate_bps
        if least_bps and 0 < message.rate_at_start_bps <= _NEAR_MINIMUM * least_bps:
            return "congestion control at minimum rate", message.collective
        marking = [
            link
            for port in self._ports(message)
            if (link := self._link_of.get(port)) is not None and link.marked
        ]
        if marking:
            worst = max(marking, key=lambda link: link.marked or 0)
            return "congestion control", self._named(worst.port)
        return "congestion control", f"rank {message.src}"

    def _pausing_port(self, message: Message, port: str | None) -> str:
        """Return the port, down the way of a message, that was behind a pause.

        A port that is paused waits for the next one on the way; if that is paused, too,
        it waits for the one behind it.
        """
        ports = self._ports(message)
        at = ports.index(port) if port in ports else 0
        while at + 1 < len(ports):
            at += 1
            link = self._link_of.get(ports[at])
            if link is None or not link.paused_ns:
                break
        return self._named(ports[at]) if ports else self._named(port)

    def _queue(self, message: Message) -> tuple[str, str]:
        port = message.queue_port
        if port is None:
            ports = self._ports(message)
            port = max(ports, key=self._load, default=None)
        if port in self._around.slow_ports:
            return "slow link", self._named(port)
        link = self._link_of.get(port)
        group = self._group.get(link.equal_cost, []) if link and link.equal_cost else []
        if link is not None and len(group) > 1:
            for sibling in group:
                # Whether it was down is known, or that it carried nothing.
                if sibling.down_ns or (sibling.down_ns is None and not sibling.bytes):
                    return "dead uplink", self._named(sibling.port)
            mean = sum(each.bytes for each in group) / len(group)
            if mean and max(each.bytes for each in group) >= _IMBALANCE * mean:
                return "hash imbalance", (port or "").split(":")[0]
        return "contention", self._named(port)

    def _load(self, port: str) -> float:
        """Return how busy a link was."""
        link = self._link_of.get(port)
        return link.bytes / link.rate_bps if link and link.rate_bps else 0.0
