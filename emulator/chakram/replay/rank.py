# cython: language_level=3, annotation_typing=False
"""Replays the program of one rank: what may start now, what a completion releases.

A ``Replay`` is driven by three calls: a message arrived, a message was acknowledged,
time has come.  It answers with messages to post.  It reads no clock and knows no
packet, so the same object runs on hosts, in namespaces and in virtual time.

How messages find their place.  A queue pair belongs to one (group, channel, peer).
The immediate data of a message of a collective is ``(k mod 2**16) << 16 | m``: k
counts the collectives of the group over all iterations, m the messages of this
collective from this source to this destination (both ends count alike, see
``chakram.core.schedule``).  A point-to-point message carries its number among all
messages from this source to this destination.  So a message that comes before its
rank has reached the collective is kept until it does, and two that overtake each other
are told apart.

When is an operation done?  A collective: all of the rank's own messages are
acknowledged and all messages for it have arrived.  A send: acknowledged.  A receive:
its dependencies are done and the message is there.  A compute operation: its time is
over; those of one stream run one after another.

Time that is late.  What a timer releases counts as ready at the timer's deadline, not
at the moment it was looked at; the difference shows up as waiting for the generator
(``generator_wait_ns``), never as time of the network.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from chakram.core.collectives import CollectiveOp
from chakram.core.plan import POINT_TO_POINT, RankPlan, RunSettings
from chakram.core.program import (
    CollectiveOperation,
    ComputeOperation,
    ReceiveOperation,
    SendOperation,
)
from chakram.core.records import (
    CAUSE_MESSAGE,
    CAUSE_OPERATION,
    CAUSE_START,
    RecordRows,
)
from chakram.replay.expansion import Expander, Expansion
from chakram.replay.progress import ActiveCollective, Activity, Flow
from chakram.roce.constants import NEVER

if TYPE_CHECKING:
    from collections.abc import Mapping

_NEVER = NEVER

_EARLY_LIMIT = 1 << 20
"""Messages kept for operations that were not reached; more are nobody's honest work."""

_COLLECTIVE = 0
_SEND = 1
_RECEIVE = 2
_COMPUTE = 3

_TIMER_START = -1
"""Stands for the start of an iteration where else the index of an operation is."""


class Replay:
    """The state of one rank between its first and its last iteration.

    Args:
        plan: The rank with its program and queue pairs.
        settings: Iterations, and what lies between them.
        rank_numbers: Number in the plan of every (job, rank).
        records: Where rows of finished flows, shares and iterations go.

    Raises:
        PlanError: If the program needs a queue pair that the plan does not have.
    """

    def __init__(
        self,
        *,
        plan: RankPlan,
        settings: RunSettings,
        rank_numbers: Mapping[tuple[str, int], int],
        records: RecordRows,
    ) -> None:
        program = plan.program
        self.number = plan.number
        self.job = program.job
        self.rank = program.rank
        self.records = records
        self.iteration = 0
        self.completed_messages = 0
        self.completed_operations = 0
        self.stray_messages = 0
        self._early_messages = 0
        self.finished_ns = NEVER
        self._operations = program.operations
        self._settings = settings
        self._iterations = settings.iterations
        self._gap_ns = settings.gap_ns if settings.sync == "gap" else 0
        self._numbers = rank_numbers
        self._rank_of_number = {
            number: rank
            for (job, rank), number in rank_numbers.items()
            if job == self.job
        }
        self._expander = Expander(plan=plan, rank_numbers=rank_numbers)
        self._group_number = {
            group.name: index for index, group in enumerate(program.groups)
        }
        self._point_to_point = len(self._group_number)
        self._group_of_qpn: dict[int, int] = {}
        self._peer_of_qpn: dict[int, int] = {}
        for pair in plan.queue_pairs:
            self._peer_of_qpn[pair.qpn] = pair.peer_rank
            self._group_of_qpn[pair.qpn] = (
                self._point_to_point
                if pair.group == POINT_TO_POINT
                else self._group_number[pair.group]
            )
        count = len(program.operations)
        self._kinds = [_kind_of(operation) for operation in program.operations]
        self._initial_missing = [
            len(operation.dependencies) for operation in program.operations
        ]
        self._successors: list[list[int]] = [[] for _ in range(count)]
        for index, operation in enumerate(program.operations):
            for dependency in operation.dependencies:
                self._successors[dependency].append(index)
        self._missing = list(self._initial_missing)
        self._left = count
        self._ready_ns = [0] * count
        self._released_by = [_TIMER_START] * count
        self._ready: list[int] = []
        self._per_iteration = self._count_numbers()
        self._active: dict[int, ActiveCollective] = {}
        self._receiving: dict[int, ActiveCollective] = {}
        self._early: dict[int, list[tuple[int, int, int, int]]] = {}
        self._flows: dict[int, Flow] = {}
        self._stream_free_ns: dict[int | None, int] = {}
        self._stream_queue: dict[int | None, deque[tuple[int, int]]] = {}
        self._timers: list[tuple[int, int]] = []
        self._posts: deque[tuple[int, int, int]] = deque()
        self._activity = Activity()
        self._iteration_start_ns = 0

    # ---- what the shell calls ------------------------------------------------------

    def arm(self, start_ns: int) -> None:
        """Let the first iteration start at *start_ns*."""
        if self._iterations == 0:
            self.finished_ns = start_ns
        else:
            heappush(self._timers, (start_ns, _TIMER_START))

    def next_timer_ns(self) -> int:
        """Return when ``handle_timers`` has something to do, ``NEVER`` if nothing."""
        return self._timers[0][0] if self._timers else _NEVER

    def handle_timers(self, now_ns: int) -> None:
        """End the compute operations and pauses whose time is over."""
        while self._timers and self._timers[0][0] <= now_ns:
            deadline_ns, operation = heappop(self._timers)
            if operation == _TIMER_START:
                self._start_iteration(deadline_ns, now_ns)
            else:
                self._end_compute(operation, deadline_ns, now_ns)

    def message_received(self, qpn: int, immediate: int, ce: int, now_ns: int) -> None:
        """Take note that the message *immediate* of a queue pair is complete.

        *ce* of its packets were marked "congestion experienced".
        """
        group = self._group_of_qpn[qpn]
        if group == self._point_to_point:
            key = (self._peer_of_qpn[qpn] << 32) | immediate
            active = self._receiving.get(key)
            if active is None:
                self._keep_early(-1 - key, qpn, 0, ce, now_ns)
            else:
                active.ce = ce
                self._end_receive(active, key, now_ns)
                self._run(now_ns)
            return
        key = (group << 16) | (immediate >> 16)
        active = self._active.get(key)
        if active is None:
            self._keep_early(key, qpn, immediate & 0xFFFF, ce, now_ns)
            return
        self._arrive(active, qpn, immediate & 0xFFFF, ce, now_ns)
        if active.receives_left == 0 and active.sends_left == 0:
            self._end_collective(active, now_ns)
            self._run(now_ns)

    def message_acknowledged(
        self,
        qpn: int,
        immediate: int,
        *,
        posted_ns: int,
        first_sent_ns: int,
        last_acked_ns: int,
        rate_at_start_bps: int,
        packets: int,
        retransmitted: int,
        cnp: int,
        generator_wait_ns: int,
    ) -> None:
        """Take note that all bytes of a message are acknowledged; record its flow."""
        flow = self._flows.pop((qpn << 32) | immediate)
        active = flow.active
        # From ready to posted nothing but the generator stands in the way.
        wait_ns = generator_wait_ns + max(0, posted_ns - flow.ready_ns)
        active.generator_wait_ns += wait_ns
        active.retransmitted += retransmitted
        active.sent_bytes += flow.size_bytes
        self.records.flows.extend(
            (
                self.iteration,
                self.number,
                active.operation,
                flow.step,
                flow.channel,
                flow.peer,
                qpn,
                flow.size_bytes,
                flow.ready_ns,
                posted_ns,
                first_sent_ns,
                last_acked_ns,
                rate_at_start_bps,
                packets,
                retransmitted,
                cnp,
                wait_ns,
                flow.cause_kind,
                flow.cause_rank,
                flow.cause_number,
            )
        )
        self.completed_messages += 1
        active.sends_left -= 1
        if active.sends_left == 0 and active.receives_left == 0:
            self._end_collective(active, last_acked_ns)
            self._run(last_acked_ns)

    def _keep_early(
        self, key: int, qpn: int, message: int, ce: int, now_ns: int
    ) -> None:
        """Keep a message for an operation that this rank has not reached yet."""
        if self._early_messages == _EARLY_LIMIT:
            self.stray_messages += 1
            return
        self._early_messages += 1
        self._early.setdefault(key, []).append((qpn, message, ce, now_ns))

    def next_post(self) -> tuple[int, int, int] | None:
        """Return the next (qpn, immediate, size in bytes) to post, or None."""
        return self._posts.popleft() if self._posts else None

    def finished(self) -> bool:
        """Tell whether all iterations are done."""
        return self.finished_ns != _NEVER

    def waiting_for(self) -> list[str]:
        """Return for each operation under way what it waits for, as a sentence."""
        who = f"job {self.job} rank {self.rank}"
        sentences = [
            f"{who}: {self._name(active.operation)} waits for {text}"
            for active in (*self._active.values(), *self._receiving.values())
            for text in self._missing_messages(active)
        ]
        unacknowledged: dict[tuple[int, int], int] = {}
        for flow in self._flows.values():
            where = (flow.active.operation, flow.peer)
            unacknowledged[where] = unacknowledged.get(where, 0) + 1
        sentences.extend(
            f"{who}: {self._name(operation)} has {count} message(s) to "
            f"rank {self._rank_of(peer)} not acknowledged"
            for (operation, peer), count in unacknowledged.items()
        )
        if not sentences and not self.finished():
            sentences.append(f"{who}: computes, or waits for its start")
        return sentences

    # ---- iterations ----------------------------------------------------------------

    def _start_iteration(self, due_ns: int, now_ns: int) -> None:
        self._missing = list(self._initial_missing)
        self._left = len(self._operations)
        self._iteration_start_ns = due_ns
        self._activity.begin(due_ns)
        for index, missing in enumerate(self._missing):
            if not missing:
                self._ready_ns[index] = due_ns
                self._released_by[index] = _TIMER_START
                heappush(self._ready, index)
        self._run(now_ns)
        if not self._operations:
            self._end_iteration(due_ns)

    def _end_iteration(self, now_ns: int) -> None:
        activity = self._activity
        activity.change(0, 0, now_ns)
        self.records.iterations.extend(
            (
                self.iteration,
                self.number,
                self._iteration_start_ns,
                now_ns,
                activity.compute_ns,
                activity.communication_ns,
                activity.exposed_ns,
                activity.idle_ns,
            )
        )
        self.iteration += 1
        if self.iteration == self._iterations:
            self.finished_ns = now_ns
        else:
            heappush(self._timers, (now_ns + self._gap_ns, _TIMER_START))

    # ---- operations ----------------------------------------------------------------

    def _run(self, now_ns: int) -> None:
        """Start everything that is ready, lowest operation first."""
        while self._ready:
            index = heappop(self._ready)
            kind = self._kinds[index]
            if kind == _COMPUTE:
                self._start_compute(index, now_ns)
            elif kind == _COLLECTIVE:
                self._start_collective(index, now_ns)
            elif kind == _SEND:
                self._start_send(index, now_ns)
            else:
                self._start_receive(index, now_ns)

    def _done(self, index: int, done_ns: int) -> None:
        """Release the successors of an operation; end the iteration after the last."""
        for successor in self._successors[index]:
            self._missing[successor] -= 1
            if not self._missing[successor]:
                self._ready_ns[successor] = done_ns
                self._released_by[successor] = index
                heappush(self._ready, successor)
        self.completed_operations += 1
        self._left -= 1
        if not self._left:
            self._end_iteration(done_ns)

    def _start_compute(self, index: int, now_ns: int) -> None:
        operation = self._operations[index]
        assert isinstance(operation, ComputeOperation)
        ready_ns = self._ready_ns[index]
        if operation.duration_ns == 0:
            self._done(index, ready_ns)
            return
        stream = operation.stream
        if stream in self._stream_free_ns:
            self._stream_queue.setdefault(stream, deque()).append((index, ready_ns))
            return
        self._stream_free_ns[stream] = ready_ns + operation.duration_ns
        heappush(self._timers, (ready_ns + operation.duration_ns, index))
        self._activity.change(1, 0, ready_ns)

    def _end_compute(self, index: int, deadline_ns: int, now_ns: int) -> None:
        operation = self._operations[index]
        assert isinstance(operation, ComputeOperation)
        self._activity.change(-1, 0, deadline_ns)
        del self._stream_free_ns[operation.stream]
        queue = self._stream_queue.get(operation.stream)
        if queue:
            following, ready_ns = queue.popleft()
            self._ready_ns[following] = max(ready_ns, deadline_ns)
            self._start_compute(following, now_ns)
        self._done(index, deadline_ns)
        self._run(now_ns)

    def _start_collective(self, index: int, now_ns: int) -> None:
        operation = self._operations[index]
        assert isinstance(operation, CollectiveOperation)
        group = self._group_number[operation.group]
        sequence = (
            self.iteration * self._per_iteration[group] + operation.number
        ) & 0xFFFF
        key = (group << 16) | sequence
        ready_ns = self._ready_ns[index]
        expansion = self._expander.expansion(operation)
        active = ActiveCollective(index, key, sequence, expansion, ready_ns, now_ns)
        if operation.op != CollectiveOp.BARRIER:
            self._activity.change(0, 1, now_ns)
        self._active[key] = active
        kind, number = self._cause_of(index)
        for send, needs in enumerate(active.missing_needs):
            if not needs:
                self._post(active, send, ready_ns, kind, self.number, number)
        early = self._early.pop(key, ())
        self._early_messages -= len(early)
        for qpn, message, ce, arrived_ns in early:
            # It was there before its rank was: what it releases is ready now.
            self._arrive(active, qpn, message, ce, max(arrived_ns, ready_ns))
        if active.sends_left == 0 and active.receives_left == 0:
            self._end_collective(active, max(now_ns, ready_ns))

    def _post(
        self,
        active: ActiveCollective,
        send: int,
        ready_ns: int,
        cause_kind: int,
        cause_rank: int,
        cause_number: int,
    ) -> None:
        expansion = active.expansion
        qpn = expansion.send_qpns[send]
        immediate = (active.sequence << 16) | expansion.send_messages[send]
        size_bytes = expansion.send_sizes[send]
        self._flows[(qpn << 32) | immediate] = Flow(
            active,
            expansion.send_steps[send],
            expansion.send_channels[send],
            expansion.send_peers[send],
            size_bytes,
            ready_ns,
            cause_kind,
            cause_rank,
            cause_number,
        )
        self._posts.append((qpn, immediate, size_bytes))

    def _arrive(
        self, active: ActiveCollective, qpn: int, message: int, ce: int, now_ns: int
    ) -> None:
        expansion = active.expansion
        receive = expansion.receive_index.get((qpn << 16) | message, -1)
        if receive < 0 or active.arrived[receive]:
            self.stray_messages += 1
            return
        active.arrived[receive] = 1
        active.ce += ce
        active.receives_left -= 1
        active.received_bytes += expansion.receive_sizes[receive]
        missing = active.missing_needs
        for send in expansion.dependents[receive]:
            missing[send] -= 1
            if not missing[send]:
                self._post(
                    active,
                    send,
                    now_ns,
                    CAUSE_MESSAGE,
                    expansion.receive_peers[receive],
                    (active.sequence << 16) | message,
                )

    def _end_collective(self, active: ActiveCollective, now_ns: int) -> None:
        index = active.operation
        kind = self._kinds[index]
        if kind == _COLLECTIVE:
            del self._active[active.key]
            operation = self._operations[index]
            assert isinstance(operation, CollectiveOperation)
            counted = operation.op != CollectiveOp.BARRIER
        else:
            counted = True
        if counted:
            self._activity.change(0, -1, now_ns)
        self.records.shares.extend(
            (
                self.iteration,
                self.number,
                index,
                active.ready_ns,
                active.start_ns,
                now_ns,
                active.sent_bytes,
                active.received_bytes,
                active.generator_wait_ns,
                active.retransmitted,
                active.ce,
            )
        )
        self._done(index, now_ns)

    def _start_send(self, index: int, now_ns: int) -> None:
        operation = self._operations[index]
        assert isinstance(operation, SendOperation)
        qpn = self._expander.qpn(POINT_TO_POINT, 0, operation.peer)
        immediate = (
            self.iteration * self._sends[operation.peer] + operation.number
        ) & 0xFFFFFFFF
        ready_ns = self._ready_ns[index]
        active = ActiveCollective(index, 0, 0, _NOTHING, ready_ns, now_ns)
        active.sends_left = 1
        self._activity.change(0, 1, now_ns)
        kind, number = self._cause_of(index)
        self._flows[(qpn << 32) | immediate] = Flow(
            active,
            0,
            0,
            self._numbers[self.job, operation.peer],
            operation.size_bytes,
            ready_ns,
            kind,
            self.number,
            number,
        )
        self._posts.append((qpn, immediate, operation.size_bytes))

    def _start_receive(self, index: int, now_ns: int) -> None:
        operation = self._operations[index]
        assert isinstance(operation, ReceiveOperation)
        immediate = (
            self.iteration * self._receives[operation.peer] + operation.number
        ) & 0xFFFFFFFF
        key = (operation.peer << 32) | immediate
        ready_ns = self._ready_ns[index]
        active = ActiveCollective(index, key, 0, _NOTHING, ready_ns, now_ns)
        active.receives_left = 1
        active.received_bytes = operation.size_bytes
        self._activity.change(0, 1, now_ns)
        self._receiving[key] = active
        early = self._early.pop(-1 - key, None)
        if early is not None:
            self._early_messages -= 1
            active.ce = early[0][2]
            self._end_receive(active, key, max(early[0][3], now_ns))

    def _end_receive(self, active: ActiveCollective, key: int, now_ns: int) -> None:
        del self._receiving[key]
        active.receives_left = 0
        self._end_collective(active, now_ns)

    def _cause_of(self, index: int) -> tuple[int, int]:
        released_by = self._released_by[index]
        if released_by == _TIMER_START:
            return CAUSE_START, 0
        return CAUSE_OPERATION, released_by

    # ---- counting ----

    def _count_numbers(self) -> list[int]:
        """Count collectives per group, and messages per peer, of one iteration."""
        counts = [0] * len(self._group_number)
        self._sends: dict[int, int] = {}
        self._receives: dict[int, int] = {}
        for operation in self._operations:
            if isinstance(operation, CollectiveOperation):
                counts[self._group_number[operation.group]] += 1
            elif isinstance(operation, SendOperation):
                self._sends[operation.peer] = self._sends.get(operation.peer, 0) + 1
            elif isinstance(operation, ReceiveOperation):
                self._receives[operation.peer] = (
                    self._receives.get(operation.peer, 0) + 1
                )
        return counts

    # ---- words for people ----------------------------------------------------------

    def _name(self, index: int) -> str:
        operation = self._operations[index]
        if isinstance(operation, CollectiveOperation):
            return (
                f"{operation.op} {operation.number} of group {operation.group!r} "
                f"in iteration {self.iteration}"
            )
        if isinstance(operation, SendOperation):
            return f"send to rank {operation.peer} in iteration {self.iteration}"
        if isinstance(operation, ReceiveOperation):
            return f"receive from rank {operation.peer} in iteration {self.iteration}"
        return f"compute {operation.name!r} in iteration {self.iteration}"

    def _missing_messages(self, active: ActiveCollective) -> list[str]:
        operation = self._operations[active.operation]
        if isinstance(operation, ReceiveOperation):
            return [f"a message from rank {operation.peer}"]
        expansion = active.expansion
        return [
            f"the message of step {expansion.receive_steps[receive]} "
            f"from rank {self._rank_of(expansion.receive_peers[receive])}"
            for receive, arrived in enumerate(active.arrived)
            if not arrived
        ]

    def _rank_of(self, number: int) -> int:
        return self._rank_of_number.get(number, number)


def _kind_of(operation: object) -> int:
    if isinstance(operation, CollectiveOperation):
        return _COLLECTIVE
    if isinstance(operation, SendOperation):
        return _SEND
    if isinstance(operation, ReceiveOperation):
        return _RECEIVE
    return _COMPUTE


_NOTHING = Expansion()
