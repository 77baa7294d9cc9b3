"""How long a schedule takes at least: its bound.

It is what *this* schedule needs alone on the fabric, headers counted, in whatever order
its packets go, along whichever of the equal-cost paths: no simulation and no network of
these links beats it.  It is the longest of

    what has to wait for one another    every transfer alone, packets stored and
                                        forwarded at each hop; the last one until its
                                        acknowledgement is back
    what shares a line                  all bytes that cross it, behind the shortest way
                                        there and before the shortest way on: what waits
                                        for them included
                                        (``chakram.predict.bound_times``)

Token buckets pass packets on at once, and may be ahead of their rate
(``Hop.ahead_ns``): there nothing is stored, and a line is done by that much sooner.

Lines are the links of hosts, in either direction, and between switches all links that
equal-cost paths may choose among, together: perfect balance.  Acknowledgements compete
with nothing; windows, credits, bursts and hosts cost nothing; ranks of one port need no
network, and messages that stay within a host by choice take their bytes at the rate
that was chosen.

Where no two messages share a line at once the bound is what the schedule takes.  For a
ring all_reduce of n ranks, with chunks of c wire bytes on ports of rate r and one
packet stored at the switch, that is

    2(n - 1)(8c/r + alpha) + the way back of one acknowledgement.

Elsewhere it takes longer, by what the order of messages, uneven paths and windows cost.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

from chakram.collectives.algorithms.transfer_lists import ListedAlgorithm
from chakram.collectives.schedule import Algorithm, Transfer, transfer_bytes
from chakram.collectives.schedule_check import build_schedule
from chakram.collectives.uneven_messages import matrix_bytes
from chakram.predict.bound_times import BoundTimes
from chakram.predict.paths import Message, Path, Paths, Route

if TYPE_CHECKING:
    from chakram.collectives.split_sizes import Matrix
    from chakram.predict.paths import FabricModel


_KEPT_TRANSFERS = 1 << 16
"""Transfers of all schedules that are kept for the next collective: some 20 MiB."""

_NOTHING: Mapping[int, tuple[int, ...]] = {}

_ROUNDING = 1e-12
"""What sums of floating-point numbers may be wrong by, as a part of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shape:
    """What collectives of a group by one algorithm have in common, whatever their size.

    ``path_of`` has the number of each transfer's path, ``route_of`` that of each path's
    route; ``waits`` tells whether any transfer waits for another.
    """

    transfers: tuple[Transfer, ...]
    times: BoundTimes
    path_of: array[int]
    route_of: tuple[int, ...]
    routes: tuple[Route, ...]
    waits: bool


class ScheduleBounds:
    """Finds the bounds of collectives and messages of one job.

    Args:
        fabric: Where its ranks are.
        path_mtu: Payload of a full packet.
        verb: ``write`` or ``send``.
        parts: In how many parts messages travel, on paths of their own.
        message_bytes: Longer messages are posted as several; 0: they are not.
    """

    def __init__(
        self,
        fabric: FabricModel,
        *,
        path_mtu: int,
        verb: str = "write",
        parts: int = 1,
        message_bytes: int = 0,
    ) -> None:
        self._paths = Paths(
            fabric,
            path_mtu=path_mtu,
            verb=verb,
            parts=parts,
            message_bytes=message_bytes,
        )
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
        """Return what a schedule takes at least; see the module.

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
        is_sparse = False
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
            else:
                is_sparse = True
        messages: list[Message] = []
        numbers: dict[tuple[int, int], int] = {}
        kinds = array("q", [-1]) * len(sizes)
        for index, (path, size) in enumerate(zip(shape.path_of, sizes, strict=True)):
            if is_sparse and not size:
                continue
            kind = shape.route_of[path], size
            number = numbers.setdefault(kind, len(numbers))
            if number == len(messages):
                messages.append(self._paths.message(shape.routes[kind[0]], size))
            kinds[index] = number
        return _rounded_ns(shape.times.end_ns(messages, kinds, self._paths.lines))

    def message_ns(self, *, src: int, dst: int, size_bytes: int) -> int:
        """Return the completion time of one message alone on the fabric.

        It is what a flow's completion time is compared with: posted to acknowledged.
        """
        taken = self._paths.path(src, dst)
        message = self._paths.message(taken.route, size_bytes)
        return _rounded_ns(message.alone_ns + taken.back_ns)

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
        needs = schedule_needs(transfers, stepwise=stepwise)
        numbers: dict[Path, int] = {}
        of_pair: dict[tuple[int, int], int] = {}
        path_of = array("q", bytes(8 * len(transfers)))
        for index, each in enumerate(transfers):
            pair = each.src, each.dst
            number = of_pair.get(pair)
            if number is None:
                path = self._paths.path(ranks[each.src], ranks[each.dst])
                number = of_pair[pair] = numbers.setdefault(path, len(numbers))
            path_of[index] = number
        paths = tuple(numbers)
        routes: dict[Route, int] = {}
        route_of = [routes.setdefault(path.route, len(routes)) for path in paths]
        return _Shape(
            transfers=transfers,
            times=BoundTimes(
                needs=needs,
                lines=[path.lines for path in paths],
                path=path_of,
                back_ns=[path.back_ns for path in paths],
            ),
            path_of=path_of,
            route_of=tuple(route_of),
            routes=tuple(routes),
            waits=any(needs),
        )


def bound_ns(
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
    """Return what one schedule takes at least: ``ScheduleBounds``, used once."""
    bounds = ScheduleBounds(fabric, path_mtu=path_mtu, verb=verb)
    return bounds.collective_ns(
        algorithm, ranks=ranks, root=root, input_bytes=input_bytes, matrix=matrix
    )


def _rounded_ns(time_ns: float) -> int:
    """Return whole nanoseconds, none too many.

    What is measured is whole nanoseconds, too: a hundredth of one makes none longer.
    """
    return int(time_ns * (1.0 - _ROUNDING) + 0.01)


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
) -> list[tuple[int, ...]]:
    """Return the earlier transfers that each one waits for."""
    # By position, and there by chunk: the transfers that bring it.
    into: dict[int, dict[int, tuple[int, ...]]] = {}
    # By position: the transfers that come to it in the last step that brings any.
    last: dict[int, list[int]] = {}
    needs: list[tuple[int, ...]] = []
    first_of_step = 0
    for _, same_step in groupby(transfers, key=attrgetter("step")):
        step = list(same_step)
        for transfer in step:
            brought = into.get(transfer.src, _NOTHING)
            found = brought.get(transfer.chunk, ())
            if not (stepwise or transfer.further or transfer.after):
                needs.append(found)
                continue
            needed = set(found)
            for chunk in transfer.awaited:
                needed.update(brought.get(chunk, ()))
            if stepwise:
                needed.update(last.get(transfer.src, ()))
            needs.append(tuple(needed))
        arriving: dict[int, list[int]] = {}
        for index, transfer in enumerate(step, first_of_step):
            if stepwise:
                arriving.setdefault(transfer.dst, []).append(index)
            brought = into.setdefault(transfer.dst, {})
            for chunk in transfer.chunks:
                brought[chunk] = (*brought.get(chunk, ()), index)
        last.update(arriving)
        first_of_step += len(step)
    return needs
