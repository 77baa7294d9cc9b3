"""The bound: the minimum time that a schedule takes alone on the fabric.

The bound includes headers. It holds for any order of packets and any choice among
equal-cost paths. No simulation and no network with these links is faster. The bound is
the maximum of two times:

- dependencies: the time of the longest chain of transfers until the last acknowledgment
  arrives, with each transfer alone and store and forward at each hop
- shared lines: the sum of the minimum time to reach a line, the time of all bytes that
  cross the line, and the minimum time after it (``chakram.predict.shared_line_bound``)

The time after a line includes later transfers that wait for the transfers on that line.

Token buckets forward packets immediately and may run ahead of their rate by
``Hop.ahead_ns``. They add no store-and-forward delay. The bound of their lines is lower
by ``ahead_ns``.

A *line* is a host link in one direction. Between switches, all links that equal-cost
paths may choose from form one line, which assumes perfect balance. Acknowledgments use
no bandwidth. Windows, credits, bursts and hosts cost no time. Ranks on the same port
need no network. If the configuration keeps messages within a host, each message takes
its size divided by the configured rate.

If no two messages share a line at the same time, the schedule takes exactly the bound.
Consider a ring all_reduce of n ranks, with chunks of c wire bytes on ports of rate r.
Let alpha be the latency of a path: the propagation delays, and the time to store one
packet at the switch. The bound is

    2(n - 1)(8c/r + alpha) + the return time of one acknowledgment.

Other schedules take longer, because of message order, uneven paths and windows.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter

from chakram.collectives.algorithms.transfer_lists import ListedAlgorithm
from chakram.collectives.schedule import Algorithm, Transfer, transfer_bytes
from chakram.collectives.schedule_check import build_schedule
from chakram.collectives.split_sizes import Matrix
from chakram.collectives.uneven_messages import matrix_bytes
from chakram.predict.fabric_model import FabricModel, Message, Path, Paths, Route
from chakram.predict.shared_line_bound import BoundTimes

_KEPT_TRANSFERS = 1 << 16
"""Maximum number of transfers in all cached schedules, which use about 20 MiB."""

_NOTHING: Mapping[int, tuple[int, ...]] = {}

_ROUNDING = 1e-12
"""Relative error allowed for sums of floating-point numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shape:
    """Data of a collective that is the same for all input sizes.

    The data applies to one algorithm, and to groups whose paths are alike. ``lines`` is
    the number of lines. ``path_of`` contains the path index of each transfer.
    ``route_of`` contains the route index of each path. ``waits`` is true if any
    transfer waits for another transfer. ``times_ns`` contains known times, by the
    number of input bytes.
    """

    transfers: tuple[Transfer, ...]
    times: BoundTimes
    path_of: array[int]
    route_of: tuple[int, ...]
    routes: tuple[Route, ...]
    waits: bool
    lines: int
    times_ns: dict[int, int] = field(default_factory=dict)


class ScheduleBounds:
    """Computes the bounds of collectives and messages of one job.

    Args:
        fabric: The fabric and the placement of the ranks.
        path_mtu: Payload bytes of a full packet.
        verb: ``write`` or ``send``.
        parts: Number of parts of a message, each on its own path.
        message_bytes: Maximum size of a work request, above which messages are split. 0
            means no limit.
        has_acks: Whether a message ends with its last acknowledgment.
    """

    def __init__(
        self,
        fabric: FabricModel,
        *,
        path_mtu: int,
        verb: str = "write",
        parts: int = 1,
        message_bytes: int = 0,
        has_acks: bool = True,
    ) -> None:
        self._paths = Paths(
            fabric,
            path_mtu=path_mtu,
            verb=verb,
            parts=parts,
            message_bytes=message_bytes,
            has_acks=has_acks,
        )
        self._shapes: OrderedDict[tuple[object, ...], _Shape] = OrderedDict()
        self._alike: dict[tuple[object, ...], tuple[object, ...]] = {}
        self._pairs_of: dict[tuple[object, ...], tuple[tuple[int, int], ...]] = {}
        self._equal: dict[Path, Path] = {}

    def collective_ns(
        self,
        algorithm: Algorithm,
        *,
        ranks: Sequence[int],
        root: int,
        input_bytes: int,
        matrix: Matrix | None = None,
    ) -> int:
        """Return the minimum time of a schedule: see the module docstring.

        Args:
            algorithm: Algorithm that generates the schedule.
            ranks: Ranks of the group, in the order of their positions.
            root: Position of the root.
            input_bytes: Contribution of one rank.
            matrix: For an all_to_all_v, the bytes between each pair of positions.

        Returns:
            The time in nanoseconds, or 0 if no transfer crosses the fabric.
        """
        shape = self._shape(algorithm, tuple(ranks), root)
        if matrix is None and (known_ns := shape.times_ns.get(input_bytes)) is not None:
            return known_ns
        sizes = (
            _sizes(
                algorithm, shape.transfers, nranks=len(ranks), input_bytes=input_bytes
            )
            if matrix is None
            else _uneven_sizes(algorithm, shape.transfers, matrix)
        )
        is_sparse = False
        # A part of zero bytes is not sent, except in user-defined algorithms.
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
        time_ns = _rounded_ns(shape.times.end_ns(messages, kinds, shape.lines))
        if matrix is None:
            shape.times_ns[input_bytes] = time_ns
        return time_ns

    def message_ns(self, *, src: int, dst: int, size_bytes: int) -> int:
        """Return the time of one message alone, from posting to acknowledgment.

        This time is the reference for flow completion times.
        """
        taken = self._paths.path(src, dst)
        message = self._paths.message(taken.route, size_bytes)
        return _rounded_ns(message.alone_ns + taken.back_ns)

    # Schedules.

    def _shape(self, algorithm: Algorithm, ranks: tuple[int, ...], root: int) -> _Shape:
        key: tuple[object, ...] = algorithm, ranks, root
        alike = self._alike.get(key)
        if alike is None:
            pairs = self._pairs(algorithm, len(ranks), root)
            paths = self._numbered([(ranks[src], ranks[dst]) for src, dst in pairs])
            alike = self._alike[key] = algorithm, len(ranks), root, paths
        shape = self._shapes.get(alike)
        if shape is not None:
            self._shapes.move_to_end(alike)
            return shape
        transfers = build_schedule(algorithm, nranks=len(ranks), root=root).transfers
        shape = self._shapes[alike] = self._make_shape(
            transfers, ranks, stepwise=algorithm.stepwise
        )
        kept = sum(len(each.transfers) for each in self._shapes.values())
        while kept > _KEPT_TRANSFERS and len(self._shapes) > 1:
            kept -= len(self._shapes.popitem(last=False)[1].transfers)
        return shape

    def _pairs(
        self, algorithm: Algorithm, nranks: int, root: int
    ) -> tuple[tuple[int, int], ...]:
        """Return the pairs of positions that exchange messages, by first use."""
        key = algorithm, nranks, root
        if key not in self._pairs_of:
            transfers = build_schedule(algorithm, nranks=nranks, root=root).transfers
            self._pairs_of[key] = tuple(
                dict.fromkeys((each.src, each.dst) for each in transfers)
            )
        return self._pairs_of[key]

    def _numbered(self, pairs: Iterable[tuple[int, int]]) -> tuple[Path, ...]:
        """Return paths between pairs of ranks, with lines numbered by first occurrence.

        Groups with equal results have equal times.
        """
        numbers: dict[int, int] = {}
        found = []
        for src, dst in pairs:
            path = self._paths.path(src, dst)
            lines = tuple(
                [numbers.setdefault(line, len(numbers)) for line in path.lines]
            )
            path = Path(path.route, lines, path.back_ns)
            found.append(self._equal.setdefault(path, path))
        return tuple(found)

    def _make_shape(
        self,
        transfers: tuple[Transfer, ...],
        ranks: tuple[int, ...],
        *,
        stepwise: bool,
    ) -> _Shape:
        needs = schedule_needs(transfers, stepwise=stepwise)
        pairs = dict.fromkeys((each.src, each.dst) for each in transfers)
        paths_of = self._numbered((ranks[src], ranks[dst]) for src, dst in pairs)
        numbers: dict[Path, int] = {}
        of_pair = {
            pair: numbers.setdefault(path, len(numbers))
            for pair, path in zip(pairs, paths_of, strict=True)
        }
        paths = tuple(numbers)
        routes: dict[Route, int] = {}
        route_of = [routes.setdefault(path.route, len(routes)) for path in paths]
        path_of = array("q", [of_pair[each.src, each.dst] for each in transfers])
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
            lines=1 + max((line for path in paths for line in path.lines), default=-1),
        )


def _rounded_ns(time_ns: float) -> int:
    """Round down to whole nanoseconds, with a tolerance of 0.01 ns.

    Measured times are whole nanoseconds, so the tolerance does not matter.
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
    known: dict[tuple[int, Sequence[int]], int] = {}
    sizes = []
    for each in transfers:
        chunks = each.chunk, each.further
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
    """Return the earlier transfers that each transfer waits for."""
    # For each position and chunk, the transfers that deliver the chunk.
    into: dict[int, dict[int, tuple[int, ...]]] = {}
    # For each position, the incoming transfers of the latest step that has any.
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
