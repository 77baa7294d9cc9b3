"""Graph of one rank, built from the transfers and the work in its host trace.

A host runs one operation at a time. Its threads alternate: the autograd thread runs
while its caller waits. Across all threads, ids ascend in the order in which operations
*start*. These dependencies follow from that order:

* Computation waits for the previous kernel of its stream and for everything the host
  has waited for. If no kernels are known, the host counts as the only stream.
* A transfer waits for the last earlier computation of each stream, and for everything
  the host has waited for. ``chakram.program.collective_order`` orders the transfers of
  a group.
* The host waits for a synchronous transfer immediately. It waits for an asynchronous
  one at its ``wait`` node, or at an idle gap in the profile.
* With NCCL, such a wait stops only one GPU stream, and the host runs ahead. No trace
  names that stream. But a kernel that started before another kernel ended has not
  waited for that kernel. So the times in the profile rule out dependencies.
* A group runs one collective after another (NCCL has a stream for each group, and gloo
  has a queue). So a wait for one collective covers all earlier ones of that group.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from chakram.chakra.read.pytorch.communication_nodes import WAIT
from chakram.chakra.read.pytorch.groups import GroupFinder, Transfer
from chakram.chakra.read.pytorch.host_trace_nodes import HostNode
from chakram.chakra.read.pytorch.kineto import Profile, Span
from chakram.chakra.read.pytorch.tensor_values import check_size
from chakram.collectives.ops import CollectiveOp
from chakram.foundation.errors import TraceError
from chakram.trace.builder import TraceGraphBuilder
from chakram.trace.graph import TraceGraph
from chakram.trace.host_node_ids import MOST_ID, PART_SHIFT
from chakram.trace.node import CPU_STREAM, NodeKind

_ROUNDING_NS: Final = 1_000
"""Tolerance for comparing times: old PyTorch profiles have whole microseconds."""

_STREAMS: Final = 256
"""Maximum number of distinct streams. More streams would take quadratic time."""

_UNKNOWN: Final = Span(2**62, -(2**62))
"""Time of an item whose times are unknown.

All earlier items count as ended when it starts, and it counts as ended when any later
item starts.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A node that took time according to the profile."""

    node_id: int
    offset: int
    name: str
    rf_id: int


@dataclass(slots=True, eq=False, kw_only=True)
class HostGraph:
    """Builder of the graph from transfers and work, which are added in host order.

    Attributes:
        rank: Number of the rank.
        source: Name of the rank's file.
        groups: Resolver for the process groups of the rank.
        profile: The profile of the rank, or None.
        waited_ns: Time that operations waited for transfers that they called, by the
            operation's record function id.
    """

    rank: int
    source: str
    groups: GroupFinder
    profile: Profile | None
    waited_ns: Mapping[int, int]
    _order: HostOrder = field(init=False)
    _builder: TraceGraphBuilder = field(init=False)

    def __post_init__(self) -> None:
        self._order = HostOrder()
        self._builder = TraceGraphBuilder(rank=self.rank, source=self.source)

    def build(self) -> TraceGraph:
        """Return the graph."""
        return self._builder.build()

    def without_wait(self) -> tuple[list[int], int]:
        """Return the ids of asynchronous transfers without a wait.

        The second value is the number of all asynchronous transfers.
        """
        return self._order.without_wait(), self._order.asynchronous

    def add_work(self, item: Work) -> None:
        """Add a node that took time, with one part for each stream that it used.

        Raises:
            TraceError: If its id is repeated or too large.
        """
        assert self.profile is not None  # work is known only from a profile
        self._check_id(item.node_id)
        kernels = self.profile.kernels.get(item.rf_id)
        parts: Iterable[tuple[int | None, Span]]
        if kernels is None:
            own = self.profile.own[item.rf_id]
            computed_ns = own.duration_ns - self.waited_ns.get(item.rf_id, 0)
            parts = [(None, own._replace(duration_ns=max(0, computed_ns)))]
        else:
            parts = sorted(kernels.items())
        for number, (stream, span) in enumerate(parts):
            if not span.duration_ns:
                continue
            node_id = item.node_id | number << PART_SHIFT
            self._builder.add(
                node_id=node_id,
                kind=NodeKind.COMPUTE,
                name=item.name,
                dependencies=self._order.compute(
                    node_id, stream, _UNKNOWN if stream is None else span
                ),
                file_offset=item.offset,
                duration_ns=span.duration_ns,
                start_ns=span.start_ns,
                stream=CPU_STREAM if stream is None else stream,
            )

    def add_step(self, node: HostNode) -> None:
        """Add the marker of a step, which no node waits for.

        Raises:
            TraceError: If its id is repeated or too large.
        """
        self._check_id(node.node_id)
        spans = {} if self.profile is None else self.profile.spans
        span = spans.get(node.rf_id)
        self._builder.add(
            node_id=node.node_id,
            kind=NodeKind.PASS,
            name=node.name,
            file_offset=node.offset,
            duration_ns=0 if span is None else span.duration_ns,
            start_ns=None if span is None else span.start_ns,
        )

    def add_wait(self, transfers: Sequence[int]) -> None:
        """Add a wait that only the profile shows, for the transfers with these ids."""
        node_id = transfers[0] | 1 << PART_SHIFT
        self._builder.add(
            node_id=node_id,
            kind=NodeKind.PASS,
            name=WAIT,
            dependencies=self._order.shown_wait(node_id, tuple(transfers)),
        )

    def add_transfer(self, transfer: Transfer, group: str | None) -> None:
        """Add a wait, or a transfer in *group* (None for all ranks).

        Raises:
            TraceError: If its id is repeated or too large, or if it lacks a peer.
        """
        node, what = transfer.node, transfer.what
        self._check_id(node.node_id)
        times = self._times(transfer)
        columns: dict[str, Any] = {
            "node_id": node.node_id,
            "file_offset": node.offset,
            **times,
        }
        if what.op == WAIT:
            after = self._order.wait(
                node.node_id, group=what.group, sequence=what.sequence
            )
            if after is not None:
                self._builder.add(
                    kind=NodeKind.PASS, name=WAIT, dependencies=after, **columns
                )
            return
        after = self._order.transfer(
            node.node_id,
            group=what.group,
            sequence=what.sequence,
            is_async=what.is_async is not False,
            # Groups do not order messages, so each message has its own queue.
            queue=group if isinstance(what.op, CollectiveOp) else node.node_id,
            # Without a kernel, the known times are those of the host. Do not use them
            # to order transfers.
            stream=times.get("stream"),
            span=Span(times["start_ns"], times["duration_ns"])
            if "stream" in times
            else _UNKNOWN,
        )
        columns["dependencies"] = after
        columns["group"] = group
        if isinstance(what.op, CollectiveOp):
            size_bytes = what.size_bytes
            if what.op is CollectiveOp.SCATTER:
                size_bytes *= self.groups.size(what, group, node.where)
                check_size(size_bytes, node.where)
            self._builder.add(
                kind=NodeKind.COLLECTIVE,
                name=what.op.value,
                op=what.op,
                comm_bytes=size_bytes,
                root=what.rank,
                splits=what.splits,
                **columns,
            )
            return
        if what.rank is None:
            raise TraceError(
                node.where,
                f"is a {what.op} without a peer",
                "replay another trace: a receive from any source cannot be replayed",
            )
        kind = NodeKind.SEND if what.op == "send" else NodeKind.RECEIVE
        self._builder.add(
            kind=kind,
            name=what.op,
            comm_bytes=what.size_bytes,
            peer=self.groups.global_rank(what.rank, group, node.where),
            tag=what.tag,
            **columns,
        )

    def _times(self, transfer: Transfer) -> dict[str, Any]:
        """Return duration, start and stream of a transfer, if they are known."""
        profile = self.profile
        if profile is None:
            return {}
        if (kernel := transfer.kernel(profile)) is not None:
            stream, span = kernel
            return {
                "duration_ns": span.duration_ns,
                "start_ns": span.start_ns,
                "stream": stream,
            }
        for rf_id in transfer.nearest_rf_ids:
            whole = profile.spans.get(rf_id)
            if whole is not None:
                return {
                    "duration_ns": whole.duration_ns,
                    "start_ns": whole.start_ns,
                }
        return {}

    def _check_id(self, node_id: int) -> None:
        if node_id >= MOST_ID:
            raise TraceError(
                self.source, f"has node id {node_id}", f"use node ids below {MOST_ID}"
            )


@dataclass(slots=True)
class HostOrder:
    """Dependencies of each item, derived from the order on the host.

    ``_waits`` has the items that the host waited for, by the stream that ran the
    transfer. ``_ran_on`` has the computations and transfers of each stream.
    ``_computing`` has the streams with computations. ``_passed`` has the waits that the
    computations of each stream already depend on. A wait is also an item. It depends on
    everything that the host waited for earlier.
    """

    _waits: dict[int | None, _Ends] = field(default_factory=lambda: defaultdict(_Ends))
    _ran_on: dict[int | None, _Ends] = field(default_factory=lambda: defaultdict(_Ends))
    _last_on: dict[int | None, int] = field(default_factory=dict)
    _computing: dict[int | None, None] = field(default_factory=dict)
    _passed: dict[int, dict[int | None, int]] = field(default_factory=dict)
    _pending: dict[object, deque[tuple[object, int]]] = field(default_factory=dict)
    _queues: dict[object, list[int]] = field(default_factory=dict)
    _queue_of: dict[int, object] = field(default_factory=dict)
    _kernel_of: dict[int, tuple[Span, int | None]] = field(default_factory=dict)

    @property
    def asynchronous(self) -> int:
        """Number of asynchronous transfers."""
        return len(self._queue_of)

    def without_wait(self) -> list[int]:
        """Return the ids of asynchronous transfers without a known wait."""
        return sorted(each for queue in self._queues.values() for each in queue)

    def compute(self, node_id: int, stream: int | None, span: Span) -> tuple[int, ...]:
        """Return the dependencies of a computation."""
        stream = None if stream is None else stream % _STREAMS
        last = [self._last_on[stream]] if stream in self._last_on else []
        self._computing[stream] = None
        self._add_run(node_id, span, stream)
        waits = _ended(self._waits, span)
        if stream is not None:
            # The dependency on the stream's previous kernel implies the waits in
            # ``passed``.
            passed = self._passed.setdefault(stream, {})
            waits = {on: each for on, each in waits.items() if passed.get(on) != each}
            passed |= waits
        return tuple(dict.fromkeys((*last, *waits.values())))

    def transfer(
        self,
        node_id: int,
        *,
        group: object,
        sequence: object,
        is_async: bool,
        queue: object,
        stream: int | None,
        span: Span,
    ) -> tuple[int, ...]:
        """Return the dependencies of a transfer.

        Args:
            node_id: Id of the transfer.
            group: Reference to the group, as stated in the trace.
            sequence: Sequence number of the transfer in the group, or None.
            is_async: Whether the host continues without waiting for the transfer.
            queue: Key of the queue that runs transfers one after another. This transfer
                is appended to the queue.
            stream: Stream of the transfer's kernel, or None if unknown.
            span: Time of the transfer's kernel, or ``_UNKNOWN``.
        """
        stream = None if stream is None else stream % _STREAMS
        inputs = {
            on: self._ran_on[on]
            for on in (*self._computing, stream)
            if on in self._ran_on
        }
        before = (_ended(inputs, span), _ended(self._waits, span))
        after = tuple(dict.fromkeys(each for of in before for each in of.values()))
        if stream is not None:
            self._add_run(node_id, span, stream)
        if not is_async:
            self._waits[stream].add(node_id, span)
            self._queues.pop(queue, None)
            return after
        self._kernel_of[node_id] = span, stream
        self._queues.setdefault(queue, []).append(node_id)
        self._queue_of[node_id] = queue
        if sequence is not None:
            self._pending.setdefault(sequence, deque()).append((group, node_id))
        return after

    def wait(
        self, node_id: int, *, group: object, sequence: object
    ) -> tuple[int, ...] | None:
        """Return the dependencies of a wait, or None if the trace lacks its transfer.

        Sequence numbers count within a group. A wait without a group completes the
        oldest transfer with its number. Coalesced transfers share one number and one
        wait. In older traces, numbers do not distinguish messages from collectives, so
        a message and a collective can share a number too.
        """
        pending = self._pending.get(sequence)
        if pending is None:
            return None
        begun = [each for each in pending if group in (None, each[0])]
        if group is None or not isinstance(sequence, tuple):
            del begun[1:]
        if not begun:
            return None
        for each in begun:
            pending.remove(each)
        if not pending:
            del self._pending[sequence]
        return self.shown_wait(node_id, tuple(transfer for _, transfer in begun))

    def shown_wait(self, node_id: int, begun: tuple[int, ...]) -> tuple[int, ...]:
        """Return the dependencies of a wait for the transfers *begun*."""
        for transfer in begun:
            queue = self._queues.get(self._queue_of[transfer], [])
            del queue[: bisect_right(queue, transfer)]
        # The wait ends with the last transfer. If a transfer has no stream, the end is
        # unknown.
        last, stream = max(
            (self._kernel_of[each] for each in begun),
            key=lambda ran: (ran[1] is None, ran[0].end_ns),
        )
        waits = _UNKNOWN if stream is None else Span(last.end_ns, 0)
        after = (*begun, *_ended(self._waits, waits).values())
        self._waits[stream].add(node_id, waits)
        return after

    def _add_run(self, node_id: int, span: Span, stream: int | None) -> None:
        self._ran_on[stream].add(node_id, span)
        self._last_on[stream] = node_id


class _Ends:
    """The items of one stream by end time, which can differ from the host's order."""

    def __init__(self) -> None:
        self._ends_ns = array("q")
        self._ids = array("Q")

    def add(self, node_id: int, span: Span) -> None:
        """Add an item."""
        place = bisect_right(self._ends_ns, span.end_ns)
        self._ends_ns.insert(place, span.end_ns)
        self._ids.insert(place, node_id)

    def before(self, span: Span) -> Sequence[int]:
        """Return the last item that had ended when *span* began, or nothing."""
        place = bisect_right(self._ends_ns, span.start_ns + _ROUNDING_NS)
        return self._ids[place - 1 : place] if place else ()


def _ended(streams: Mapping[int | None, _Ends], span: Span) -> dict[int | None, int]:
    """Return the last item of each stream that had ended when *span* began."""
    return {
        stream: each for stream, ends in streams.items() for each in ends.before(span)
    }
