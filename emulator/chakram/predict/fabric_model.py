"""Paths through the fabric model of the bound, and message times on them.

A path is a sequence of hops. Each hop uses a line, which messages of other paths may
share. Hops store and forward packets. The last bit of a message alone therefore arrives
after

    max of the summed packet times, over all walks through the grid of hops and packets

A walk starts at the first packet on the first hop and ends at the last packet on the
last hop. Each move goes to the next packet or to the next hop. All packets except the
first and the last have the same size. It is therefore enough to check walks that change
hops at the first two or the last two packets.

``FabricModel`` describes the fabric for the bound and the ceiling: the ports and the
hops between them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from chakram.plan.wire_cost import (
    AETH_BYTES,
    PACKET_OVERHEAD_BYTES,
    first_packet_wire_bytes,
    packets_of,
    wire_bytes,
)


class Hop(NamedTuple):
    """One link on a path, or the set of equal-cost links that a path chooses from.

    Attributes:
        line: Number of the link, or of the set of equal-cost links.
        rate_bps: Rate of the fastest link; None means unlimited.
        together_bps: Total rate of the links; None means unlimited.
        delay_ns: Propagation delay of the shortest link.
        ahead_ns: Time by which a port may run ahead of its rate. 0 means a wire with
            store and forward, which a packet leaves with its last bit.
        slowest_bps: Rate of the slowest link; None means unlimited or equal to
            ``rate_bps``.
    """

    line: int
    rate_bps: int | None
    together_bps: int | None
    delay_ns: int
    ahead_ns: float = 0.0
    slowest_bps: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricModel:
    """The fabric model of the bound, for the ranks of one job.

    Attributes:
        port_of: Port of every rank, as an index into ``ports_bps``.
        ports_bps: Rates of the ports, in each direction; None means unlimited.
        hops: Function that returns the hops between two different ports, in order.
        ahead_ns: For each port, the time by which its link may run ahead of its rate in
            either direction. An empty tuple means that no link runs ahead.
        local_bps: Rates of messages that stay within a host, by source and destination.
            0 means that these messages take no time.
        overhead_bytes: Size of each packet in addition to its payload.
        cuts_through: Whether switches use cut-through forwarding to links that are no
            faster than the ingress link.
    """

    port_of: Mapping[int, int]
    ports_bps: tuple[int | None, ...]
    hops: Callable[[int, int], tuple[Hop, ...]]
    ahead_ns: tuple[float, ...] = ()
    local_bps: Mapping[tuple[int, int], int] = field(default_factory=dict)
    overhead_bytes: int = PACKET_OVERHEAD_BYTES
    cuts_through: bool = False


_BIT_NS = 8e9  # bits in a byte x nanoseconds in a second


class Route(NamedTuple):
    """Timing parameters of a path. Equal routes result in equal message times.

    ``local_bps`` is the rate of a path within a host, where messages are not divided
    into packets. ``rates`` has one entry per hop, with these values:

    - the rate of the fastest link
    - the total rate of the links
    - the propagation delay
    - the time by which a port may run ahead of its rate
    - whether the switch after the hop cuts through
    """

    rates: tuple[tuple[int | None, int | None, int, float, bool], ...] = ()
    local_bps: int | None = None


class Path(NamedTuple):
    """A route and the lines that it crosses.

    Messages on other paths may share these lines.

    ``back_ns`` is the time of an acknowledgment on the return path.
    """

    route: Route
    lines: tuple[int, ...]
    back_ns: float


class Message(NamedTuple):
    """Times of a message alone on a route, in ns.

    The last bit arrives after ``alone_ns``. Each tuple has one entry per hop.
    ``heads_ns`` is the earliest time of the first bit at the hop. ``works_ns`` is the
    time for which the message occupies the line. ``tails_ns`` is the time from the end
    of this occupation to the arrival of the last bit.
    """

    alone_ns: float
    heads_ns: tuple[float, ...]
    works_ns: tuple[float, ...]
    tails_ns: tuple[float, ...]


class Paths:
    """Finds the paths between the ranks of one job, and message times on them.

    Args:
        fabric: The fabric and the placement of the ranks.
        path_mtu: Payload bytes of a full packet.
        verb: ``write`` or ``send``.
        parts: Number of parts of a message, each on its own path.
        message_bytes: Maximum size of a work request, above which messages are split. 0
            means no limit.
        has_acks: Whether acknowledgments take time to return.
    """

    def __init__(
        self,
        fabric: FabricModel,
        *,
        path_mtu: int,
        verb: str,
        parts: int = 1,
        message_bytes: int = 0,
        has_acks: bool = True,
    ) -> None:
        self._fabric = fabric
        self._path_mtu = path_mtu
        self._verb = verb
        self._has_acks = has_acks
        self._parts = parts
        self._is_whole = parts == 1 and not message_bytes
        self._paths: dict[tuple[int, int], Path] = {}
        self._lines: dict[object, int] = {}
        self._messages: dict[tuple[Route, int], Message] = {}

    def path(self, src: int, dst: int) -> Path:
        """Return the path of messages between two ranks."""
        fabric = self._fabric
        local_bps = fabric.local_bps.get((src, dst))
        if local_bps is not None:
            # Within a host, a message competes only with the other messages of its
            # rank.
            return Path(Route(local_bps=local_bps), (self._line(("local", src)),), 0.0)
        ports = (fabric.port_of[src], fabric.port_of[dst])
        path = self._paths.get(ports)
        if path is None:
            path = self._paths[ports] = self._make_path(*ports)
        return path

    def _make_path(self, src: int, dst: int) -> Path:
        if src == dst:
            return Path(Route(), (), 0.0)
        fabric = self._fabric
        hops = fabric.hops(src, dst)
        ack_bytes = fabric.overhead_bytes + AETH_BYTES
        return Path(
            self._route(hops),
            tuple(self._line(hop.line) for hop in hops),
            0.0
            if not self._has_acks
            else sum(
                delay_ns
                + (0.0 if ahead_ns or is_cut else ack_bytes * _byte_ns(rate_bps))
                for rate_bps, _, delay_ns, ahead_ns, is_cut in self._route(
                    fabric.hops(dst, src)
                ).rates
            ),
        )

    def _route(self, hops: tuple[Hop, ...]) -> Route:
        cuts = self._fabric.cuts_through
        return Route(
            tuple(
                (
                    hop.rate_bps,
                    hop.together_bps,
                    hop.delay_ns,
                    hop.ahead_ns,
                    cuts and after is not None and _passes(hop, after),
                )
                for hop, after in zip(hops, (*hops[1:], None), strict=True)
            )
        )

    def _line(self, key: object) -> int:
        return self._lines.setdefault(key, len(self._lines))

    def message(self, route: Route, size_bytes: int) -> Message:
        """Return the times of a message of this size on a route."""
        found = self._messages.get((route, size_bytes))
        if found is None:
            found = self._messages[route, size_bytes] = self._make(route, size_bytes)
        return found

    def _make(self, route: Route, size_bytes: int) -> Message:
        if route.local_bps is not None:
            local_ns = size_bytes * _byte_ns(route.local_bps or None)
            return Message(local_ns, (0.0,), (local_ns,), (0.0,))
        if not route.rates:
            return Message(0.0, (), (), ())
        overhead_bytes = self._fabric.overhead_bytes
        whole = self._wire_bytes(size_bytes)
        packets = packets_of(size_bytes, path_mtu=self._path_mtu)
        middle = overhead_bytes + self._path_mtu
        first = last = whole
        if packets > 1:
            first = first_packet_wire_bytes(
                size_bytes,
                path_mtu=self._path_mtu,
                verb=self._verb,
                overhead_bytes=overhead_bytes,
            )
            last = whole - first - (packets - 2) * middle
        if not self._is_whole:
            # The split points are not modeled, so assume the shortest packets.
            first = last = overhead_bytes
        heads_ns, before_ns = [], 0.0
        for rate_bps, _, delay_ns, ahead_ns, is_cut in route.rates:
            heads_ns.append(before_ns)
            before_ns += delay_ns
            if not ahead_ns and not is_cut:
                before_ns += first * _byte_ns(rate_bps)
        tails_ns, behind_ns, next_ns = [], 0.0, 0.0
        for rate_bps, _, delay_ns, ahead_ns, is_cut in reversed(route.rates):
            if is_cut:
                # The next hop starts to send the last packet as soon as the packet's
                # head arrives.
                behind_ns -= min(next_ns, last * _byte_ns(rate_bps))
            behind_ns += delay_ns
            next_ns = last * _byte_ns(rate_bps)
            # At the end of its work, a line may be ahead of its rate by ahead_ns.
            tails_ns.append(behind_ns - ahead_ns)
            if not ahead_ns:
                behind_ns += last * _byte_ns(rate_bps)
        tails_ns.reverse()
        works_ns = [whole * _byte_ns(together) for _, together, *_ in route.rates]
        if self._is_whole and not any(
            ahead_ns or is_cut for *_, ahead_ns, is_cut in route.rates
        ):
            alone_ns = _through_ns(route, first, middle, last, packets)
        else:
            part = self._wire_bytes(size_bytes // self._parts)
            alone_ns = max(
                before_ns,  # the first packet must arrive
                *(
                    head_ns + max(work_ns, part * _byte_ns(rate_bps)) + tail_ns
                    for head_ns, work_ns, tail_ns, (rate_bps, *_) in zip(
                        heads_ns, works_ns, tails_ns, route.rates, strict=True
                    )
                ),
            )
        return Message(alone_ns, tuple(heads_ns), tuple(works_ns), tuple(tails_ns))

    def _wire_bytes(self, size_bytes: int) -> int:
        return wire_bytes(
            size_bytes,
            path_mtu=self._path_mtu,
            verb=self._verb,
            overhead_bytes=self._fabric.overhead_bytes,
        )


def _passes(hop: Hop, after: Hop) -> bool:
    """Return whether a switch may cut through from a link of *hop* to one of *after*.

    Links of a hop may differ. One suitable pair of links is enough.
    """
    slowest_bps = after.slowest_bps or after.rate_bps
    if slowest_bps is None:
        return False
    return hop.rate_bps is None or slowest_bps <= hop.rate_bps


def _byte_ns(rate_bps: int | None) -> float:
    return 0.0 if rate_bps is None else _BIT_NS / rate_bps


def _through_ns(
    route: Route, first: int, middle: int, last: int, packets: int
) -> float:
    """Return the time at which the last bit of a message alone has passed all hops."""

    def up_to(packet: int) -> int:
        """Return the total bytes of the first *packet* packets."""
        if packet == 0:
            return 0
        rest = last - middle if packet == packets > 1 else 0
        return first + (packet - 1) * middle + rest

    turns = sorted({1, min(2, packets), max(1, packets - 1), packets})
    at = {1: 0.0}
    for rate_bps, *_ in route.rates:
        byte_ns = _byte_ns(rate_bps)
        at = {
            packet: max(
                ns + (up_to(packet) - up_to(earlier - 1)) * byte_ns
                for earlier, ns in at.items()
                if earlier <= packet
            )
            for packet in turns
        }
    return at[packets] + sum(delay_ns for _, _, delay_ns, *_ in route.rates)
