"""Paths through the fabric, as far as the ideal knows them: lines, rates, latencies."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from chakram.plan.wire_cost import (
    AETH_BYTES,
    first_packet_wire_bytes,
    serialisation_ns,
    wire_bytes,
)
from chakram.predict.timeline import NO_LINE

if TYPE_CHECKING:
    from chakram.predict.network_model import FabricModel, PathModel

__all__ = ["Path", "Paths", "Route"]

_LONGEST_NS = 1 << 52
"""What a transfer takes at most, some 52 days, so that sums stay within 64 bits."""


class Route(NamedTuple):
    """What messages of one path take on it; those of equal routes take the same.

    Rates are None where there is none to wait for.
    """

    out_bps: int | None
    path: PathModel | None
    up_bps: int | None
    down_bps: int | None
    in_bps: int | None


_AT_ONCE = Route(None, None, None, None, None)


class Path(NamedTuple):
    """A route with its lines, which messages of other paths may share."""

    route: Route
    out_line: int
    up_line: int
    down_line: int
    in_line: int
    back_ns: int
    grant_ns: int


class Paths:
    """The paths between the ranks of one job, and what messages take on them.

    Args:
        fabric: Where the ranks are.
        path_mtu: Payload of a full packet.
        verb: ``write`` or ``send``.

    Attributes:
        lines: How many lines there are.
    """

    def __init__(self, fabric: FabricModel, *, path_mtu: int, verb: str) -> None:
        self._fabric = fabric
        self._path_mtu = path_mtu
        self._verb = verb
        # Lines: out of every port, into every port, up and down of every switch, and
        # within hosts out of every rank.
        switches = dict.fromkeys(port.switch for port in fabric.ports)
        nports = len(fabric.ports)
        self._up_line = {
            switch: 2 * nports + 2 * number for number, switch in enumerate(switches)
        }
        first = 2 * nports + 2 * len(switches)
        senders = dict.fromkeys(src for src, _ in fabric.local_bps)
        self._within_line = {rank: first + at for at, rank in enumerate(senders)}
        self.lines = first + len(senders)
        self._paths: dict[tuple[int, int], Path] = {}

    def path(self, src: int, dst: int) -> Path:
        """Return the path of messages between two ranks."""
        fabric = self._fabric
        ports = (fabric.port_of[src], fabric.port_of[dst])
        local_bps = fabric.local_bps.get((src, dst)) if fabric.local_bps else None
        if local_bps is not None:
            # Within a host nothing is in the path but the rank's other messages.
            route = Route(local_bps or None, None, None, None, None)
            return Path(route, self._within_line[src], NO_LINE, NO_LINE, NO_LINE, 0, 0)
        path = self._paths.get(ports)
        if path is None:
            path = self._paths[ports] = self._make_path(*ports)
        return path

    def _make_path(self, src: int, dst: int) -> Path:
        if src == dst:
            return Path(_AT_ONCE, NO_LINE, NO_LINE, NO_LINE, NO_LINE, 0, 0)
        fabric = self._fabric
        out, into = fabric.ports[src], fabric.ports[dst]
        crosses = out.switch != into.switch
        up_bps, down_bps = (
            fabric.uplinks_bps.get(switch) if crosses else None
            for switch in (out.switch, into.switch)
        )
        back = fabric.path(dst, src)
        return Path(
            Route(out.rate_bps, fabric.path(src, dst), up_bps, down_bps, into.rate_bps),
            src,
            self._up_line[out.switch] if crosses else NO_LINE,
            self._up_line[into.switch] + 1 if crosses else NO_LINE,
            len(fabric.ports) + dst,
            back.latency_ns(fabric.overhead_bytes + AETH_BYTES),
            back.latency_ns(self._wire_bytes(0)),
        )

    def _wire_bytes(self, size_bytes: int) -> int:
        return wire_bytes(
            size_bytes,
            path_mtu=self._path_mtu,
            verb=self._verb,
            overhead_bytes=self._fabric.overhead_bytes,
        )

    def times_ns(self, route: Route, sizes: set[int]) -> tuple[dict[int, int], ...]:
        """Return by size: out, path, latency, up, down and in, in ns."""
        if route.path is None:  # within a host, or a port
            none = dict.fromkeys(sizes, 0)
            out = {
                size: min(serialisation_ns(size, rate_bps=route.out_bps), _LONGEST_NS)
                for size in sizes
            }
            return out, none, none, none, none, none
        slowest_bps = route.path.slowest_bps()
        wires = {size: self._wire_bytes(size) for size in sizes}
        by_rate = {
            rate_bps: {
                size: serialisation_ns(nbytes, rate_bps=rate_bps)
                for size, nbytes in wires.items()
            }
            for rate_bps in {
                route.out_bps,
                slowest_bps,
                route.up_bps,
                route.down_bps,
                route.in_bps,
            }
        }
        for table in by_rate.values():
            if max(table.values(), default=0) > _LONGEST_NS:
                for size in table:
                    table[size] = min(table[size], _LONGEST_NS)
        return (
            by_rate[route.out_bps],
            by_rate[slowest_bps],
            self._latencies(route.path, sizes),
            by_rate[route.up_bps],
            by_rate[route.down_bps],
            by_rate[route.in_bps],
        )

    def _latencies(self, path: PathModel, sizes: set[int]) -> dict[int, int]:
        """Return by size how long the first bits take.

        Of the packet that is stored at every hop, the slowest link's time is in that of
        all bytes already.
        """
        slowest_bps = path.slowest_bps()
        known: dict[int, int] = {}
        found: dict[int, int] = {}
        for size in sizes:
            # All messages of more than one packet have the same first one.
            first = min(size, self._path_mtu + 1)
            if first not in known:
                nbytes = first_packet_wire_bytes(
                    first,
                    path_mtu=self._path_mtu,
                    verb=self._verb,
                    overhead_bytes=self._fabric.overhead_bytes,
                )
                known[first] = path.latency_ns(nbytes) - serialisation_ns(
                    nbytes, rate_bps=slowest_bps
                )
            found[size] = known[first]
        return found
