"""Paths through the fabric, as far as the bound knows them, and messages on them.

A path is a row of hops, each a line that messages of other paths may share.  Packets
are stored and forwarded, so that of a message alone the last bit is there after

    max over ways through the grid of hops and packets of the sum of what each takes

where a way begins with the first packet at the first hop, ends with the last one at the
last hop, and goes on by a packet or by a hop.  Packets between the first and the last
have one size, so that it changes hops at the first two packets or the last two.

``NetworkModel`` is what bound and ceiling know of the fabric: ports, and what lies
between them.
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
    """One of the links between two ports, or the equal ones that a path may choose.

    Attributes:
        line: Number of the link, or of all those of which every path takes one.
        rate_bps: Rate of the fastest of them; None: unlimited.
        together_bps: Rate of all of them together; likewise.
        delay_ns: Propagation of the shortest.
        ahead_ns: What a port may be ahead of its rate by, as time; 0: it is a wire,
            which packets have left when their last bit has.
        slowest_bps: Rate of the slowest of them; None: unlimited, or as the fastest.
    """

    line: int
    rate_bps: int | None
    together_bps: int | None
    delay_ns: int
    ahead_ns: float = 0.0
    slowest_bps: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricModel:
    """What the bound knows of the fabric under the ranks of one job.

    Attributes:
        port_of: The port of every rank, an index into ``ports_bps``.
        ports_bps: Rates of the ports, in each direction; None: unlimited.
        hops: What lies between two different ports, in order.
        ahead_ns: By port what its link may be ahead of its rate by, as time, in either
            direction; empty: none is.
        local_bps: Rates of messages that stay within a host, 0: no time; by source and
            destination.
        overhead_bytes: What each packet has beside its payload.
        cuts_through: Whether switches pass packets on before they are there whole, to a
            link that is no faster than the one they come by.
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
    """What messages of one path take on it; those of equal routes take the same.

    ``rates`` are by hop that of the fastest link, that of all together, the delay, what
    a port may be ahead of its rate by, and whether a packet may leave by the next hop
    while it comes by this one;
    ``local_bps`` is that of a path within a host, where no packets are.
    """

    rates: tuple[tuple[int | None, int | None, int, float, bool], ...] = ()
    local_bps: int | None = None


class Path(NamedTuple):
    """A route with its lines, which messages of other paths may share."""

    route: Route
    lines: tuple[int, ...]
    back_ns: float


class Message(NamedTuple):
    """What a message takes alone, in ns: its last bit is there after ``alone_ns``.

    By hop: after how long its first bit can be there, how long it keeps the line, and
    how long its last bit takes from there on.
    """

    alone_ns: float
    heads_ns: tuple[float, ...]
    works_ns: tuple[float, ...]
    tails_ns: tuple[float, ...]


class Paths:
    """The paths between the ranks of one job, and what messages take on them.

    Args:
        fabric: Where the ranks are.
        path_mtu: Payload of a full packet.
        verb: ``write`` or ``send``.
        parts: In how many parts messages travel, on paths of their own.
        message_bytes: Longer ones are posted as several; 0: they are not.
    """

    def __init__(
        self,
        fabric: FabricModel,
        *,
        path_mtu: int,
        verb: str,
        parts: int = 1,
        message_bytes: int = 0,
    ) -> None:
        self._fabric = fabric
        self._path_mtu = path_mtu
        self._verb = verb
        self._parts = parts
        self._is_whole = parts == 1 and not message_bytes
        self._paths: dict[tuple[int, int], Path] = {}
        self._lines: dict[object, int] = {}
        self._messages: dict[tuple[Route, int], Message] = {}

    @property
    def lines(self) -> int:
        """How many lines the paths have that were asked for so far."""
        return len(self._lines)

    def path(self, src: int, dst: int) -> Path:
        """Return the path of messages between two ranks."""
        fabric = self._fabric
        local_bps = fabric.local_bps.get((src, dst)) if fabric.local_bps else None
        if local_bps is not None:
            # Within a host nothing is in the path but the rank's other messages.
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
            sum(
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
        """Return what messages of one size take on a route."""
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
            # Where it is cut nobody asks: no packet is shorter.
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
                # What the next hop does with the last packet begins with its head.
                behind_ns -= min(next_ns, last * _byte_ns(rate_bps))
            behind_ns += delay_ns
            next_ns = last * _byte_ns(rate_bps)
            # What is ahead at the end of a line's work need not be waited for.
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
                before_ns,  # nothing is there before it has come
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
    """Tell whether a switch may cut through from a link of one hop to one of the next.

    Links of a hop may differ: it may if any two let it.
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
    """Return when the last bit of a message alone has passed all hops."""

    def up_to(packet: int) -> int:
        """Return the bytes of so many packets."""
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
