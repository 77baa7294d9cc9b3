"""The host's order as dependencies.

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
from dataclasses import dataclass, field


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
