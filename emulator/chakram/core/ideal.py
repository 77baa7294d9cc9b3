"""How fast a collective could be: the ideal of its schedule, and the ceiling.

**Ideal**: the time of *this* schedule alone on the fabric, in the alpha-beta model with
headers counted.  A transfer is ready when what its source received of the chunk in
earlier steps is there; a port sends one after the other what is ready, in the order in
which it became so, then of (step, turn).  A transfer takes

    wire bytes / slowest rate of its path                        (bytes, "beta")
    + propagation + one packet stored and forwarded at each hop  (latency, "alpha")

and no port receives, and no switch passes on through its uplinks together, more than
its rate: perfect balance.  The collective ends when the acknowledgement of its last
transfer is back, as it does for a sender that measures.  Acknowledgements compete with
nothing; windows, bursts and hosts cost nothing; ranks of one port need no network, and
messages that stay within a host by choice take their bytes at the rate that was chosen.

For a ring all_reduce of n ranks with chunks of c wire bytes on ports of rate r that is

    2(n - 1)(8c/r + alpha) + the way back of one acknowledgement.

**Ceiling**: the time in which the bytes that must cross the group's ports do, whatever
the algorithm, headers at the path MTU counted, latency not.  A port that carries m of
the group's n ranks must, in its busier direction, carry of the input S of a rank

    all_reduce             S, and all q ports together 2(q - 1)S
    all_gather             max(m, n - m) S
    reduce_scatter         max(m, n - m) S/n
    all_to_all             m(n - m) S/n
    all_to_all_v           the parts of its ranks for ranks on other ports, or of those
                           for its own
    broadcast, reduce      S
    gather, scatter        the shards of the other ranks at the root's port, m elsewhere
    send_recv              S per rank whose next one is on another port

so with one rank per port all_reduce needs 2(n - 1)/n S.  (Sum over ports: each of q - 1
ports must give away its contribution and get the result.  Reductions inside switches
are not considered.)
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import groupby
from typing import TYPE_CHECKING

from chakram.core.algorithms.listed import ListedAlgorithm
from chakram.core.collectives import CollectiveOp
from chakram.core.schedule import transfer_bytes
from chakram.core.schedule_check import build_schedule
from chakram.core.uneven import matrix_bytes, uneven_message_bytes
from chakram.core.wire_cost import (
    AETH_BYTES,
    PACKET_OVERHEAD_BYTES,
    first_packet_wire_bytes,
    serialisation_ns,
    wire_bytes,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from chakram.core.schedule import Algorithm, Transfer
    from chakram.core.splits import Matrix

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
        local_bps: Rates of messages that stay within a host, 0: no time; by source and
            destination.
        overhead_bytes: What each packet has beside its payload.
    """

    port_of: Mapping[int, int]
    ports: tuple[PortModel, ...]
    uplinks_bps: Mapping[str, int | None]
    path: Callable[[int, int], PathModel]
    local_bps: Mapping[tuple[int, int], int] = field(default_factory=dict)
    overhead_bytes: int = PACKET_OVERHEAD_BYTES


class _Lines:
    """Resources that serve one after the other: when each is free again."""

    __slots__ = ("_free_ns",)

    def __init__(self) -> None:
        self._free_ns: dict[object, int] = {}

    def free_ns(self, line: object) -> int:
        """Return when the line is free again."""
        return self._free_ns.get(line, 0)

    def occupy(
        self, line: object, start_ns: int, nbytes: int, rate_bps: int | None
    ) -> int:
        """Serve *nbytes* not before *start_ns*; return when they are through."""
        begin_ns = max(start_ns, self._free_ns.get(line, 0))
        end_ns = begin_ns + serialisation_ns(nbytes, rate_bps=rate_bps)
        self._free_ns[line] = end_ns
        return end_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class _Flight:
    """A message on its way to a port.

    ``head_ns`` is when its first bits reach the receiver's port, ``tail_ns`` when its
    last ones would if nothing else came there.
    """

    ports: tuple[int, int]
    nbytes: int
    head_ns: int
    tail_ns: int


def ideal_ns(
    algorithm: Algorithm,
    *,
    ranks: Sequence[int],
    root: int,
    input_bytes: int,
    fabric: FabricModel,
    path_mtu: int,
    verb: str = "write",
    matrix: Matrix | None = None,
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
        matrix: Of an all_to_all_v, the bytes from each position to each.

    Returns:
        Nanoseconds; 0 where no transfer crosses the fabric.
    """
    nranks = len(ranks)
    ports = [fabric.port_of[rank] for rank in ranks]
    transfers = build_schedule(algorithm, nranks=nranks, root=root).transfers
    pair_bytes = None if matrix is None else matrix_bytes(matrix)
    if matrix is not None and not isinstance(algorithm, ListedAlgorithm):
        transfers = tuple(each for each in transfers if matrix[each.src][each.dst])
    missing, dependents = _needs(transfers, stepwise=algorithm.stepwise)
    lines = _Lines()
    flights: dict[int, _Flight] = {}
    ready_ns = [0] * len(transfers)
    end_ns = 0
    # In the order of time, then of the schedule: a transfer may leave, or (with its
    # flight) reaches the receiver's port.
    events = [(0, index) for index, count in enumerate(missing) if not count]
    while events:
        now_ns, index = heappop(events)
        flight = flights.pop(index, None)
        if flight is None:
            transfer = transfers[index]
            size_bytes = (
                transfer_bytes(
                    algorithm, transfer, nranks=nranks, input_bytes=input_bytes
                )
                if pair_bytes is None
                else uneven_message_bytes(
                    algorithm,
                    transfer,
                    src=transfer.src,
                    dst=transfer.dst,
                    pair_bytes=pair_bytes,
                )
            )
            within = (ranks[transfer.src], ranks[transfer.dst])
            if within in fabric.local_bps:
                flight = flights[index] = _within(
                    fabric, lines, within, ready_ns=now_ns, nbytes=size_bytes
                )
                heappush(events, (flight.head_ns, index))
                continue
            flight = flights[index] = _depart(
                fabric,
                lines,
                ports=(ports[transfer.src], ports[transfer.dst]),
                ready_ns=now_ns,
                size_bytes=size_bytes,
                path_mtu=path_mtu,
                verb=verb,
            )
            heappush(events, (flight.head_ns, index))
            continue
        arrived_ns = _arrive(fabric, lines, flight)
        end_ns = max(end_ns, arrived_ns + _way_back_ns(fabric, flight))
        for dependent in dependents[index]:
            missing[dependent] -= 1
            ready_ns[dependent] = max(ready_ns[dependent], arrived_ns)
            if not missing[dependent]:
                heappush(events, (ready_ns[dependent], dependent))
    return end_ns


def _needs(
    transfers: Sequence[Transfer], *, stepwise: bool
) -> tuple[list[int], list[list[int]]]:
    """Return how many transfers each one waits for, and which ones wait for it."""
    into: dict[tuple[int, int], list[int]] = {}
    # By position: the transfers that come to it in the last step that brings any.
    last: dict[int, list[int]] = {}
    missing = [0] * len(transfers)
    dependents: list[list[int]] = [[] for _ in transfers]
    for _, same_step in groupby(enumerate(transfers), key=lambda item: item[1].step):
        step = list(same_step)
        for index, transfer in step:
            needed = {
                earlier
                for chunk in transfer.awaited
                for earlier in into.get((transfer.src, chunk), ())
            }
            if stepwise:
                needed.update(last.get(transfer.src, ()))
            missing[index] = len(needed)
            for earlier in needed:
                dependents[earlier].append(index)
        arriving: dict[int, list[int]] = {}
        for index, transfer in step:
            arriving.setdefault(transfer.dst, []).append(index)
            for chunk in transfer.chunks:
                into.setdefault((transfer.dst, chunk), []).append(index)
        last.update(arriving)
    return missing, dependents


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
    lines = _Lines()
    if (src, dst) in fabric.local_bps:
        return _within(fabric, lines, (src, dst), ready_ns=0, nbytes=size_bytes).tail_ns
    flight = _depart(
        fabric,
        lines,
        ports=(fabric.port_of[src], fabric.port_of[dst]),
        ready_ns=0,
        size_bytes=size_bytes,
        path_mtu=path_mtu,
        verb=verb,
    )
    return _arrive(fabric, lines, flight) + _way_back_ns(fabric, flight)


def _within(
    fabric: FabricModel,
    lines: _Lines,
    ranks: tuple[int, int],
    *,
    ready_ns: int,
    nbytes: int,
) -> _Flight:
    """Carry one message within a host; nothing else is in its way but its own rank."""
    src, dst = ranks
    rate_bps = fabric.local_bps[src, dst] or None
    there_ns = lines.occupy(("within", src), ready_ns, nbytes, rate_bps)
    here = fabric.port_of[src]
    return _Flight(
        ports=(here, here), nbytes=nbytes, head_ns=there_ns, tail_ns=there_ns
    )


def _depart(
    fabric: FabricModel,
    lines: _Lines,
    *,
    ports: tuple[int, int],
    ready_ns: int,
    size_bytes: int,
    path_mtu: int,
    verb: str,
) -> _Flight:
    """Carry one message through its sender's port and the uplinks."""
    src, dst = ports
    overhead_bytes = fabric.overhead_bytes
    nbytes = wire_bytes(
        size_bytes, path_mtu=path_mtu, verb=verb, overhead_bytes=overhead_bytes
    )
    if src == dst:
        return _Flight(ports=ports, nbytes=nbytes, head_ns=ready_ns, tail_ns=ready_ns)
    out, into = fabric.ports[src], fabric.ports[dst]
    path = fabric.path(src, dst)
    packet_bytes = first_packet_wire_bytes(
        size_bytes, path_mtu=path_mtu, verb=verb, overhead_bytes=overhead_bytes
    )
    slowest_bps = path.slowest_bps()
    start_ns = max(ready_ns, lines.free_ns(("out", src)))
    through_ns = max(
        start_ns + serialisation_ns(nbytes, rate_bps=slowest_bps),
        lines.occupy(("out", src), start_ns, nbytes, out.rate_bps),
    )
    if out.switch != into.switch:
        for way, switch in (("up", out.switch), ("down", into.switch)):
            rate_bps = fabric.uplinks_bps.get(switch)
            passed_ns = lines.occupy((way, switch), start_ns, nbytes, rate_bps)
            through_ns = max(through_ns, passed_ns)
    # Of the packet that is stored at every hop, the slowest link's time is in
    # through_ns already.
    latency_ns = path.latency_ns(packet_bytes) - serialisation_ns(
        packet_bytes, rate_bps=slowest_bps
    )
    return _Flight(
        ports=ports,
        nbytes=nbytes,
        head_ns=start_ns + latency_ns,
        tail_ns=through_ns + latency_ns,
    )


def _arrive(fabric: FabricModel, lines: _Lines, flight: _Flight) -> int:
    """Carry a message into its receiver's port; return when it is there."""
    src, dst = flight.ports
    if src == dst:
        return flight.tail_ns
    rate_bps = fabric.ports[dst].rate_bps
    served_ns = lines.occupy(("in", dst), flight.head_ns, flight.nbytes, rate_bps)
    return max(flight.tail_ns, served_ns)


def _way_back_ns(fabric: FabricModel, flight: _Flight) -> int:
    """Return how long the acknowledgement of a message takes."""
    src, dst = flight.ports
    ack_bytes = fabric.overhead_bytes + AETH_BYTES
    return 0 if src == dst else fabric.path(dst, src).latency_ns(ack_bytes)


def ceiling_ns(
    op: CollectiveOp,
    *,
    ranks: Sequence[int],
    root: int,
    input_bytes: int,
    fabric: FabricModel,
    path_mtu: int,
    verb: str = "write",
    matrix: Matrix | None = None,
) -> int | None:
    """Return the bound that no algorithm beats; see the module.

    *matrix* is, of an all_to_all_v, the bytes from each position to each.

    Returns:
        Nanoseconds; None where nothing bounds it: no bytes, ports without a rate, all
        ranks on one port, or messages that pass from port to port within a host.
    """
    ports = [fabric.port_of[rank] for rank in ranks]
    members = Counter(ports)
    if len(members) == 1 or _has_ways_between_ports(fabric, ranks):
        return None

    def time_ns(payload_bytes: int, rate_bps: int | None) -> int:
        if not payload_bytes:
            return 0
        nbytes = wire_bytes(
            payload_bytes,
            path_mtu=path_mtu,
            verb=verb,
            overhead_bytes=fabric.overhead_bytes,
        )
        return serialisation_ns(nbytes, rate_bps=rate_bps)

    crossing = (
        {
            port: _crossing_bytes(op, port, ports, ports[root], input_bytes)
            for port in members
        }
        if matrix is None
        else _uneven_crossing_bytes(ports, matrix)
    )
    bounds_ns = [
        time_ns(payload_bytes, fabric.ports[port].rate_bps)
        for port, payload_bytes in crossing.items()
    ]
    rates_bps = [fabric.ports[port].rate_bps for port in members]
    if op == CollectiveOp.ALL_REDUCE and None not in rates_bps:
        total_bytes = 2 * (len(members) - 1) * input_bytes
        bounds_ns.append(time_ns(total_bytes, sum(rate for rate in rates_bps if rate)))
    return max(bounds_ns) or None


def _has_ways_between_ports(fabric: FabricModel, ranks: Sequence[int]) -> bool:
    """Return whether messages of a group pass from port to port within a host."""
    group = frozenset(ranks) if fabric.local_bps else frozenset()
    return any(
        src in group and dst in group and fabric.port_of[src] != fabric.port_of[dst]
        for src, dst in fabric.local_bps
    )


def _uneven_crossing_bytes(ports: Sequence[int], matrix: Matrix) -> dict[int, int]:
    """Return the payload of an all_to_all_v through each port's busier direction."""
    out: Counter[int] = Counter()
    into: Counter[int] = Counter()
    for src, row in zip(ports, matrix, strict=True):
        for dst, size_bytes in zip(ports, row, strict=True):
            if src != dst:
                out[src] += size_bytes
                into[dst] += size_bytes
    return {port: max(out[port], into[port]) for port in ports}


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
        case CollectiveOp.ALL_TO_ALL | CollectiveOp.ALL_TO_ALL_V:
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
