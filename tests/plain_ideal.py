"""The ideal, message by message with objects: what the quick one is compared with."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import groupby
from typing import TYPE_CHECKING

from chakram.collectives.schedule import transfer_bytes
from chakram.collectives.schedule_check import build_schedule
from chakram.plan.wire_cost import (
    AETH_BYTES,
    first_packet_wire_bytes,
    serialisation_ns,
    wire_bytes,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chakram.collectives.schedule import Algorithm, Transfer
    from chakram.collectives.splits import Matrix
    from chakram.predict.network_model import FabricModel

__all__ = ["plain_ideal_ns"]


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


def plain_ideal_ns(
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
    if matrix is not None:
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
                if matrix is None
                else matrix[transfer.src][transfer.dst]
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
