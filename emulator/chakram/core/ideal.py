"""How fast a collective could be: the ideal of its schedule, and the ceiling.

**Ideal**: the time of *this* schedule alone on the fabric, in the alpha-beta model with
headers counted.  A transfer starts when what its source received of the chunk in
earlier steps is there and the transfers that its port sends before it are out; a port
sends in the order of (step, turn).  It takes

    wire bytes / slowest rate of its path                        (bytes, "beta")
    + propagation + one packet stored and forwarded at each hop  (latency, "alpha")

and no port receives, and no switch passes on through its uplinks together, more than
its rate: perfect balance.  The collective ends when the acknowledgement of its last
transfer is back, as it does for a sender that measures.  Acknowledgements compete with
nothing, and windows, bursts and hosts cost nothing.

For a ring all_reduce of n ranks with chunks of c wire bytes on ports of rate r that is

    2(n - 1)(8c/r + alpha) + the way back of one acknowledgement.

**Ceiling**: the time in which the bytes that must cross the group's ports do, whatever
the algorithm, headers at the path MTU counted, latency not.  A port that carries m of
the group's n ranks must, in its busier direction, carry of the input S of a rank

    all_reduce             S, and all q ports together 2(q - 1)S
    all_gather             max(m, n - m) S
    reduce_scatter         max(m, n - m) S/n
    all_to_all             m(n - m) S/n
    broadcast, reduce      S
    gather, scatter        the shards of the other ranks at the root's port, m elsewhere
    send_recv              S per rank whose next one is on another port

so with one rank per port all_reduce needs 2(n - 1)/n S.  (Sum over ports: each of q - 1
ports must give away its contribution and get the result.  Reductions inside switches
are not considered.)
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from chakram.core.collectives import CollectiveOp
from chakram.core.schedule_check import build_schedule
from chakram.core.wire_cost import (
    ACK_WIRE_BYTES,
    first_packet_wire_bytes,
    serialisation_ns,
    wire_bytes,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from chakram.core.schedule import Algorithm

__all__ = [
    "FabricModel",
    "PathModel",
    "PortModel",
    "ceiling_ns",
    "ideal_ns",
    "message_ideal_ns",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class PortModel:
    """A port: its rate in each direction (None: unlimited), and its switch."""

    rate_bps: int | None
    switch: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PathModel:
    """A path between two ports: propagation in all, and the rate of each link."""

    delay_ns: int
    rates_bps: tuple[int | None, ...]

    def latency_ns(self, packet_bytes: int) -> int:
        """Return how long one packet takes over all links, stored at each hop."""
        return self.delay_ns + sum(
            serialisation_ns(packet_bytes, rate_bps=rate) for rate in self.rates_bps
        )

    def slowest_bps(self) -> int | None:
        """Return the lowest rate, None where no link has one."""
        return min((rate for rate in self.rates_bps if rate), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricModel:
    """What the ideal knows of the fabric under the ranks of one job.

    Attributes:
        port_of: The port of every rank, an index into ``ports``.
        ports: The ports.
        uplinks_bps: By switch, the rate of all its links to other switches together;
            None where one of them is unlimited.
        path: The path between two different ports.
    """

    port_of: Mapping[int, int]
    ports: tuple[PortModel, ...]
    uplinks_bps: Mapping[str, int | None]
    path: Callable[[int, int], PathModel]


class _Lines:
    """Resources that serve one after the other: when each is free again."""

    __slots__ = ("_free_ns",)

    def __init__(self) -> None:
        self._free_ns: dict[object, int] = {}

    def free_ns(self, line: object) -> int:
        return self._free_ns.get(line, 0)

    def occupy(
        self, line: object, start_ns: int, nbytes: int, rate_bps: int | None
    ) -> int:
        """Serve *nbytes* not before *start_ns*; return when they are through."""
        begin_ns = max(start_ns, self._free_ns.get(line, 0))
        end_ns = begin_ns + serialisation_ns(nbytes, rate_bps=rate_bps)
        self._free_ns[line] = end_ns
        return end_ns


def ideal_ns(
    algorithm: Algorithm,
    *,
    ranks: Sequence[int],
    root: int,
    input_bytes: int,
    fabric: FabricModel,
    path_mtu: int,
    verb: str = "write",
) -> int:
    """Return the time of this schedule alone on the fabric; see the module.

    Args:
        algorithm: Makes the schedule.
        ranks: The group, in its order.
        root: A position in it.
        input_bytes: What one rank contributes.
        fabric: Where the ranks are.
        path_mtu: Payload of a full packet.
        verb: ``write`` or ``send``.

    Returns:
        Nanoseconds; 0 where no transfer crosses the fabric.
    """
    nranks = len(ranks)
    ports = [fabric.port_of[rank] for rank in ranks]
    schedule = build_schedule(algorithm, nranks=nranks, root=root)
    lines = _Lines()
    there_ns: dict[tuple[int, int], int] = {}
    end_ns = 0
    for _, transfers in groupby(schedule.transfers, key=lambda t: t.step):
        arrivals: list[tuple[tuple[int, int], int]] = []
        for transfer in transfers:
            size_bytes = algorithm.chunk_bytes(
                transfer.chunk, nranks=nranks, input_bytes=input_bytes
            )
            ready_ns = there_ns.get((transfer.src, transfer.chunk), 0)
            arrived_ns, acked_ns = _deliver(
                fabric,
                lines,
                (ports[transfer.src], ports[transfer.dst]),
                ready_ns,
                wire_bytes(size_bytes, path_mtu=path_mtu, verb=verb),
                first_packet_wire_bytes(size_bytes, path_mtu=path_mtu, verb=verb),
            )
            arrivals.append(((transfer.dst, transfer.chunk), arrived_ns))
            end_ns = max(end_ns, acked_ns)
        # Only what came in earlier steps is waited for.
        for key, arrived_ns in arrivals:
            there_ns[key] = max(there_ns.get(key, 0), arrived_ns)
    return end_ns


def message_ideal_ns(
    *,
    src: int,
    dst: int,
    size_bytes: int,
    fabric: FabricModel,
    path_mtu: int,
    verb: str = "write",
) -> int:
    """Return the completion time of one message alone on the fabric.

    It is what a flow's completion time is compared with: posted to acknowledged.
    """
    _, acked_ns = _deliver(
        fabric,
        _Lines(),
        (fabric.port_of[src], fabric.port_of[dst]),
        0,
        wire_bytes(size_bytes, path_mtu=path_mtu, verb=verb),
        first_packet_wire_bytes(size_bytes, path_mtu=path_mtu, verb=verb),
    )
    return acked_ns


def _deliver(
    fabric: FabricModel,
    lines: _Lines,
    ends: tuple[int, int],
    ready_ns: int,
    nbytes: int,
    packet_bytes: int,
) -> tuple[int, int]:
    """Carry one message; return when it has arrived and when that is known."""
    src, dst = ends
    if src == dst:
        return ready_ns, ready_ns
    out, into = fabric.ports[src], fabric.ports[dst]
    path = fabric.path(src, dst)
    slowest_bps = path.slowest_bps()
    start_ns = max(ready_ns, lines.free_ns(("out", src)))
    through_ns = max(
        start_ns + serialisation_ns(nbytes, rate_bps=slowest_bps),
        lines.occupy(("out", src), start_ns, nbytes, out.rate_bps),
        lines.occupy(("in", dst), start_ns, nbytes, into.rate_bps),
    )
    if out.switch != into.switch:
        for way, switch in (("up", out.switch), ("down", into.switch)):
            rate_bps = fabric.uplinks_bps.get(switch)
            passed_ns = lines.occupy((way, switch), start_ns, nbytes, rate_bps)
            through_ns = max(through_ns, passed_ns)
    # The packet that is stored at every hop is serialised once already: the slowest
    # link is in through_ns.
    arrived_ns = (
        through_ns
        + path.latency_ns(packet_bytes)
        - serialisation_ns(packet_bytes, rate_bps=slowest_bps)
    )
    return arrived_ns, arrived_ns + fabric.path(dst, src).latency_ns(ACK_WIRE_BYTES)


def ceiling_ns(
    op: CollectiveOp,
    *,
    ranks: Sequence[int],
    root: int,
    input_bytes: int,
    fabric: FabricModel,
    path_mtu: int,
    verb: str = "write",
) -> int | None:
    """Return the bound that no algorithm beats; see the module.

    Returns:
        Nanoseconds; None where nothing bounds it: no bytes, ports without a rate, or
        all ranks on one port.
    """
    ports = [fabric.port_of[rank] for rank in ranks]
    members = Counter(ports)
    if len(members) == 1:
        return None

    def time_ns(payload_bytes: int, rate_bps: int | None) -> int:
        if not payload_bytes:
            return 0
        nbytes = wire_bytes(payload_bytes, path_mtu=path_mtu, verb=verb)
        return serialisation_ns(nbytes, rate_bps=rate_bps)

    crossing = {
        port: _crossing_bytes(op, port, ports, ports[root], input_bytes)
        for port in members
    }
    bounds_ns = [
        time_ns(payload_bytes, fabric.ports[port].rate_bps)
        for port, payload_bytes in crossing.items()
    ]
    rates_bps = [fabric.ports[port].rate_bps for port in members]
    if op == CollectiveOp.ALL_REDUCE and None not in rates_bps:
        total_bytes = 2 * (len(members) - 1) * input_bytes
        bounds_ns.append(time_ns(total_bytes, sum(rate for rate in rates_bps if rate)))
    return max(bounds_ns) or None


def _crossing_bytes(
    op: CollectiveOp, port: int, ports: Sequence[int], root_port: int, input_bytes: int
) -> int:
    """Return the payload that must cross *port* in its busier direction."""
    nranks = len(ports)
    here = ports.count(port)
    away = nranks - here
    match op:
        case CollectiveOp.ALL_REDUCE | CollectiveOp.BROADCAST | CollectiveOp.REDUCE:
            return input_bytes
        case CollectiveOp.ALL_GATHER:
            return max(here, away) * input_bytes
        case CollectiveOp.REDUCE_SCATTER:
            return max(here, away) * input_bytes // nranks
        case CollectiveOp.ALL_TO_ALL:
            return here * away * input_bytes // nranks
        case CollectiveOp.GATHER:
            return (away if port == root_port else here) * input_bytes
        case CollectiveOp.SCATTER:
            return (away if port == root_port else here) * input_bytes // nranks
        case CollectiveOp.SEND_RECV:
            following = [*ports[1:], ports[0]]
            leaving = sum(a == port != b for a, b in zip(ports, following, strict=True))
            return leaving * input_bytes
        case CollectiveOp.BARRIER:
            return 0
