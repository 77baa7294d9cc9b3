"""The graph of one rank, made of what its host trace has of transfers and of work.

A host runs one operation after another, and its threads hand over to each other: the
one that autograd works on runs while the one that called it waits.  So the ids, which
ascend with the start of operations over all threads, are the order in which things are
*begun*.  What waits for what follows from that:

* computation follows computation of its stream (of the host, where no kernels are
  known) and whatever the host has waited for;
* a transfer follows the last computation begun before it, and what the host has waited
  for; of its group's order ``chakram.program.ordering`` takes care;
* a transfer that is not asynchronous has been waited for as soon as it is begun, an
  asynchronous one when its ``wait`` comes, if that is in the trace, or where the
  profile shows that the host stood still for it;
* a group does one collective after another (NCCL has a stream for each, gloo a queue),
  so a wait for one covers all before it in that group.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from chakram.chakra.read.pytorch.operations import WAIT
from chakram.chakra.read.pytorch.tensor_values import check_size
from chakram.collectives.ops import CollectiveOp
from chakram.foundation.errors import TraceError
from chakram.trace.builder import TraceGraphBuilder
from chakram.trace.node import CPU_STREAM, NodeKind

if TYPE_CHECKING:
    from chakram.chakra.read.pytorch.groups import GroupFinder, Transfer
    from chakram.chakra.read.pytorch.kineto import Profile, Span
    from chakram.trace.graph import TraceGraph

# Ids of a node's parts on further streams; PyTorch counts its nodes from 1.
_STREAM_SHIFT: Final = 40
_MOST_ID: Final = 1 << _STREAM_SHIFT


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A node that took time."""

    node_id: int
    offset: int
    name: str
    rf_id: int


class HostGraph:
    """Takes transfers and work in the order of the host.

    Args:
        rank: The rank.
        source: Name of its file.
        groups: Its process groups.
        profile: What its profile says.
    """

    def __init__(
        self,
        *,
        rank: int,
        source: str,
        groups: GroupFinder,
        profile: Profile | None,
    ) -> None:
        self._source = source
        self._groups = groups
        self._profile = profile
        self._order = HostOrder()
        self._builder = TraceGraphBuilder(rank=rank, source=source)

    def build(self) -> TraceGraph:
        """Return the graph."""
        return self._builder.build()

    def never_awaited(self) -> tuple[list[int], int]:
        """Return asynchronous transfers without a wait, and the number of all."""
        return self._order.never_awaited(), self._order.asynchronous

    def add_work(self, item: Work) -> None:
        """Take a node that took time: a part for each stream that it was at work on.

        Raises:
            TraceError: If its id stands twice, or is too large.
        """
        assert self._profile is not None  # else there are no such nodes
        self._check_id(item.node_id)
        kernels = self._profile.kernels.get(item.rf_id)
        parts: Iterable[tuple[int | None, Span]]
        if kernels is None:
            parts = [(None, self._profile.own[item.rf_id])]
        else:
            parts = sorted(kernels.items())
        for number, (stream, span) in enumerate(parts):
            if not span.duration_ns:
                continue
            node_id = item.node_id | number << _STREAM_SHIFT
            self._builder.add(
                node_id=node_id,
                kind=NodeKind.COMPUTE,
                name=item.name,
                dependencies=self._order.compute(node_id, stream),
                file_offset=item.offset,
                duration_ns=span.duration_ns,
                start_ns=span.start_ns,
                stream=CPU_STREAM if stream is None else stream,
            )

    def add_wait(self, transfers: Sequence[int]) -> None:
        """Take a wait for transfers, by their ids, that only the profile shows."""
        node_id = transfers[0] | 1 << _STREAM_SHIFT
        self._builder.add(
            node_id=node_id,
            kind=NodeKind.PASS,
            name=WAIT,
            dependencies=self._order.shown_wait(node_id, tuple(transfers)),
        )

    def add_transfer(self, transfer: Transfer, group: str | None) -> None:
        """Take a node that communicates in *group* (None: all ranks), or waits.

        Raises:
            TraceError: If its id stands twice, or is too large, or it lacks a peer.
        """
        node, what = transfer.node, transfer.what
        self._check_id(node.node_id)
        columns: dict[str, Any] = {
            "node_id": node.node_id,
            "file_offset": node.offset,
            **self._times(transfer),
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
            # Messages are not ordered by their group.
            queue=group if isinstance(what.op, CollectiveOp) else node.node_id,
        )
        columns["dependencies"] = after
        columns["group"] = group
        if isinstance(what.op, CollectiveOp):
            size_bytes = what.size_bytes
            if what.op is CollectiveOp.SCATTER:
                size_bytes *= self._groups.size(what, group, node.where)
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
                f"is a {what.op} that does not say with whom",
                "a receive from any source cannot be replayed",
            )
        kind = NodeKind.SEND if what.op == "send" else NodeKind.RECEIVE
        self._builder.add(
            kind=kind,
            name=what.op,
            comm_bytes=what.size_bytes,
            peer=self._groups.global_rank(what.rank, group, node.where),
            tag=what.tag,
            **columns,
        )

    def _times(self, transfer: Transfer) -> dict[str, Any]:
        """Return how long a transfer took and on which stream, if that is known."""
        profile = self._profile
        if profile is None:
            return {}
        label = () if transfer.label is None else (transfer.label,)
        rf_ids = (*label, *transfer.rf_ids)
        for rf_id in rf_ids:
            for stream, span in profile.kernels.get(rf_id, {}).items():
                return {
                    "duration_ns": span.duration_ns,
                    "start_ns": span.start_ns,
                    "stream": stream,
                }
        for rf_id in rf_ids:
            whole = profile.spans.get(rf_id)
            if whole is not None:
                return {
                    "duration_ns": whole.duration_ns,
                    "start_ns": whole.start_ns,
                }
        return {}

    def _check_id(self, node_id: int) -> None:
        if node_id >= _MOST_ID:
            raise TraceError(
                self._source, f"has node id {node_id}", f"below {_MOST_ID} they are"
            )


@dataclass(slots=True)
class HostOrder:
    """Tells of each item, in the order of the host, which earlier ones it follows.

    What the host has waited for is one item, or that and nothing: a wait is itself
    an item, which follows all that it waits for.
    """

    _waited: int | None = None
    _last_of_stream: dict[int | None, int] = field(default_factory=dict)
    _stream: int | None = None
    _pending: dict[object, deque[tuple[object, int]]] = field(default_factory=dict)
    _queues: dict[object, list[int]] = field(default_factory=dict)
    _queue_of: dict[int, object] = field(default_factory=dict)

    @property
    def asynchronous(self) -> int:
        """Number of asynchronous transfers."""
        return len(self._queue_of)

    def never_awaited(self) -> list[int]:
        """Return the ids of asynchronous transfers without a known wait."""
        return sorted(each for queue in self._queues.values() for each in queue)

    def compute(self, node_id: int, stream: int | None) -> tuple[int, ...]:
        """Return what a computation follows."""
        after = self._after(stream)
        self._last_of_stream[stream] = node_id
        self._stream = stream
        return after

    def transfer(
        self,
        node_id: int,
        *,
        group: object,
        sequence: object,
        is_async: bool,
        queue: object,
    ) -> tuple[int, ...]:
        """Return what a transfer follows.

        Args:
            node_id: Its id.
            group: The group, as the trace names it.
            sequence: Its number there; None: it has none.
            is_async: Whether the host goes on without waiting for it.
            queue: What does transfers one after another; this one is the last in it.
        """
        after = self._after(self._stream)
        if not is_async:
            self._waited = node_id
            self._queues.pop(queue, None)
            return after
        self._queues.setdefault(queue, []).append(node_id)
        self._queue_of[node_id] = queue
        if sequence is not None:
            self._pending.setdefault(sequence, deque()).append((group, node_id))
        return after

    def wait(
        self, node_id: int, *, group: object, sequence: object
    ) -> tuple[int, ...] | None:
        """Return what a wait follows; None if what it waits for is not in the trace.

        Sequence numbers count within a group; a wait that names none ends the oldest
        transfer of that number.  Transfers that were coalesced have one number and one
        wait; older traces, whose numbers do not tell messages from collectives, give
        one number to a message and a collective, too.
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
        """Return what a wait follows for transfers of which only the profile tells."""
        for transfer in begun:
            queue = self._queues.get(self._queue_of[transfer], [])
            del queue[: bisect_right(queue, transfer)]
        after = (*begun, *(() if self._waited is None else (self._waited,)))
        self._waited = node_id
        return after

    def _after(self, stream: int | None) -> tuple[int, ...]:
        last = self._last_of_stream.get(stream)
        return tuple(
            dict.fromkeys(each for each in (last, self._waited) if each is not None)
        )
