"""How fast a schedule could be: its ideal.

It is the time of *this* schedule alone on the fabric, in the alpha-beta model with
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

Where no transfer waits for another, all of them share their ports from the start.  Then
no order is the schedule's, and whatever has most to do decides: a port, in one
direction, or the uplinks of a switch.

With receiver credits a message also waits until its receiver has granted one of those
before it: the grant of a message leaves when it is there and takes the latency of an
empty message.  Like acknowledgements, grants compete with nothing.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from chakram.collectives.algorithms.listed import ListedAlgorithm
from chakram.collectives.schedule import transfer_bytes
from chakram.collectives.schedule_check import build_schedule
from chakram.collectives.uneven import matrix_bytes
from chakram.predict.paths import Paths
from chakram.predict.timeline import Timeline

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chakram.collectives.schedule import Algorithm, Transfer
    from chakram.collectives.splits import Matrix
    from chakram.predict.network_model import FabricModel
    from chakram.predict.paths import Route


__all__ = [
    "Ideals",
    "ideal_ns",
    "schedule_needs",
]

_KEPT_TRANSFERS = 1 << 16
"""Transfers of all schedules that are kept for the next collective: some 20 MiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shape:
    """What collectives of a group by one algorithm have in common, whatever their size.

    ``routes`` are the routes with their transfers; ``waits`` tells whether any transfer
    waits for another.
    """

    transfers: tuple[Transfer, ...]
    timeline: Timeline
    routes: dict[Route, list[int]]
    waits: bool


@dataclass(slots=True)
class _Times:
    """Columns of times, one entry per transfer; see ``Timeline.end_ns``."""

    out_ns: array[int]
    path_ns: array[int]
    latency_ns: array[int]
    up_ns: array[int]
    down_ns: array[int]
    in_ns: array[int]


class Ideals:
    """Finds the ideals of collectives and messages of one job.

    Args:
        fabric: Where its ranks are.
        path_mtu: Payload of a full packet.
        verb: ``write`` or ``send``.
        credits: Messages that may be on one way before one is granted; 0: any number.
    """

    def __init__(
        self,
        fabric: FabricModel,
        *,
        path_mtu: int,
        verb: str = "write",
        credits: int = 0,
    ) -> None:
        self._paths = Paths(fabric, path_mtu=path_mtu, verb=verb)
        self._credits = credits
        self._shapes: OrderedDict[tuple[object, ...], _Shape] = OrderedDict()

    def collective_ns(
        self,
        algorithm: Algorithm,
        *,
        ranks: Sequence[int],
        root: int,
        input_bytes: int,
        matrix: Matrix | None = None,
    ) -> int:
        """Return the time of a schedule alone on the fabric; see the module.

        Args:
            algorithm: Makes the schedule.
            ranks: The group, in its order.
            root: A position in it.
            input_bytes: What one rank contributes.
            matrix: Of an all_to_all_v, the bytes from each position to each.

        Returns:
            Nanoseconds; 0 where no transfer crosses the fabric.
        """
        shape = self._shape(algorithm, tuple(ranks), root)
        sizes = (
            _sizes(
                algorithm, shape.transfers, nranks=len(ranks), input_bytes=input_bytes
            )
            if matrix is None
            else _uneven_sizes(algorithm, shape.transfers, matrix)
        )
        present = None
        # A part of no bytes is no message, but in users' algorithms.
        if matrix is not None and not isinstance(algorithm, ListedAlgorithm):
            if shape.waits and 0 in sizes:
                shape = self._make_shape(
                    tuple(
                        each
                        for each, size in zip(shape.transfers, sizes, strict=True)
                        if size
                    ),
                    tuple(ranks),
                    stepwise=algorithm.stepwise,
                )
                sizes = [size for size in sizes if size]
            elif 0 in sizes:
                present = sizes
        times = self._times(shape, sizes)
        return shape.timeline.end_ns(
            out_ns=times.out_ns,
            path_ns=times.path_ns,
            latency_ns=times.latency_ns,
            up_ns=times.up_ns,
            down_ns=times.down_ns,
            in_ns=times.in_ns,
            present=present,
            credits=self._credits,
        )

    def message_ns(self, *, src: int, dst: int, size_bytes: int) -> int:
        """Return the completion time of one message alone on the fabric.

        It is what a flow's completion time is compared with: posted to acknowledged.
        """
        taken = self._paths.path(src, dst)
        out, path, latency, up, down, into = (
            column[size_bytes]
            for column in self._paths.times_ns(taken.route, {size_bytes})
        )
        return max(out, path, up, down, into) + latency + taken.back_ns

    # Schedules.

    def _shape(self, algorithm: Algorithm, ranks: tuple[int, ...], root: int) -> _Shape:
        key = (algorithm, ranks, root)
        shape = self._shapes.get(key)
        if shape is not None:
            self._shapes.move_to_end(key)
            return shape
        schedule = build_schedule(algorithm, nranks=len(ranks), root=root)
        shape = self._shapes[key] = self._make_shape(
            schedule.transfers, ranks, stepwise=algorithm.stepwise
        )
        kept = sum(len(each.transfers) for each in self._shapes.values())
        while kept > _KEPT_TRANSFERS and len(self._shapes) > 1:
            kept -= len(self._shapes.popitem(last=False)[1].transfers)
        return shape

    def _make_shape(
        self,
        transfers: tuple[Transfer, ...],
        ranks: tuple[int, ...],
        *,
        stepwise: bool,
    ) -> _Shape:
        missing, dependents = schedule_needs(transfers, stepwise=stepwise)
        all_taken = [
            self._paths.path(ranks[each.src], ranks[each.dst]) for each in transfers
        ]
        routes: dict[Route, list[int]] = {}
        for index, taken in enumerate(all_taken):
            routes.setdefault(taken.route, []).append(index)
        numbers: dict[tuple[int, int, int], int] = {}
        links = [
            numbers.setdefault((each.src, each.dst, each.channel), len(numbers))
            for each in transfers
        ]
        timeline = Timeline(
            lines=self._paths.lines,
            missing=missing,
            dependents=dependents,
            out_lines=array("q", [taken.out_line for taken in all_taken]),
            in_lines=array("q", [taken.in_line for taken in all_taken]),
            up_lines=array("q", [taken.up_line for taken in all_taken]),
            down_lines=array("q", [taken.down_line for taken in all_taken]),
            back_ns=array("q", [taken.back_ns for taken in all_taken]),
            links=array("q", links),
            grant_ns=array("q", [taken.grant_ns for taken in all_taken]),
        )
        return _Shape(
            transfers=transfers,
            timeline=timeline,
            routes=routes,
            waits=any(missing),
        )

    def _times(self, shape: _Shape, sizes: Sequence[int]) -> _Times:
        columns = [[0] * len(sizes) for _ in range(6)]
        for route, places in shape.routes.items():
            of_route = [sizes[place] for place in places]
            tables = self._paths.times_ns(route, set(of_route))
            # Links of one rate have one table.
            found = {
                id(table): [table[size] for size in of_route]
                for table in {id(each): each for each in tables}.values()
            }
            for number, table in enumerate(tables):
                times_ns = found[id(table)]
                if len(places) == len(sizes):
                    columns[number] = times_ns
                    continue
                column = columns[number]
                for place, time_ns in zip(places, times_ns, strict=True):
                    column[place] = time_ns
        return _Times(*(array("q", column) for column in columns))


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
    credits: int = 0,
) -> int:
    """Return the time of one schedule alone on the fabric: ``Ideals``, used once."""
    ideals = Ideals(fabric, path_mtu=path_mtu, verb=verb, credits=credits)
    return ideals.collective_ns(
        algorithm, ranks=ranks, root=root, input_bytes=input_bytes, matrix=matrix
    )


def _sizes(
    algorithm: Algorithm,
    transfers: Sequence[Transfer],
    *,
    nranks: int,
    input_bytes: int,
) -> list[int]:
    """Return the size of every message."""
    known: dict[tuple[int, ...], int] = {}
    sizes = []
    for each in transfers:
        chunks = each.chunks
        size_bytes = known.get(chunks)
        if size_bytes is None:
            size_bytes = known[chunks] = transfer_bytes(
                algorithm, each, nranks=nranks, input_bytes=input_bytes
            )
        sizes.append(size_bytes)
    return sizes


def _uneven_sizes(
    algorithm: Algorithm, transfers: Sequence[Transfer], matrix: Matrix
) -> list[int]:
    """Return the size of every message of an all_to_all_v."""
    if not isinstance(algorithm, ListedAlgorithm):
        return [matrix[each.src][each.dst] for each in transfers]
    pair_bytes = matrix_bytes(matrix)
    return [algorithm.uneven_bytes(each.chunk, pair_bytes) for each in transfers]


def schedule_needs(
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
            needed = set(into.get((transfer.src, transfer.chunk), ()))
            if transfer.further or transfer.after:
                needed.update(
                    earlier
                    for chunk in transfer.awaited
                    for earlier in into.get((transfer.src, chunk), ())
                )
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
