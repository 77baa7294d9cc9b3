# cython: language_level=3, annotation_typing=False
"""Replays the program of one rank: starts operations and handles completions.

Three kinds of calls drive a ``Replay``: a message arrived, a message was acknowledged,
or a timer is due. It returns messages to post. It reads no clock and handles no
packets, so the same object runs on hosts, in namespaces and in virtual time.

``chakram.replay.incoming`` matches arriving messages to operations.
``chakram.replay.message_posting`` decides when messages may leave. This module runs the
operations of the program, one iteration after the other.

An operation is done under these conditions:

* Collective: all of the rank's own messages are acknowledged and all messages for it
  have arrived.
* Send: its message is acknowledged.
* Receive: its dependencies are done and its message has arrived.
* Compute operation: its duration is over. Compute operations of one stream run one
  after another, in the order of the job's policy
  (``chakram.replay.ready_queue_policies``).

If the job follows recorded times, a ready operation does not start before its recorded
start, relative to the start of the iteration. Any delay after the recorded start is the
slip of the operation.

Events are handled in the order in which they happened. An operation that an event
releases is ready at the time of the event, not when the event is handled. The time of
an event is the deadline of a timer, or the arrival of a message or acknowledgment. The
delay until the event is handled is recorded as waiting for the generator
(``generator_wait_ns``), never as network time.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

from chakram.program.columns import COMPUTE
from chakram.replay.compute_streams import ComputeStreams
from chakram.replay.credits import Credits
from chakram.replay.expansion import Expander
from chakram.replay.incoming import NOT_NOW, IncomingMessages
from chakram.replay.message_posting import Posts
from chakram.replay.program_tables import ProgramTables
from chakram.replay.rank_progress import Activity
from chakram.replay.readiness import NOTHING, Readiness
from chakram.replay.ready_queue_policies import preferences
from chakram.replay.row_writer import RowWriter
from chakram.replay.status_text import waiting_words
from chakram.roce.constants import NEVER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from chakram.plan.plan import RankPlan, RunSettings
    from chakram.records.row_layout import RecordRows
    from chakram.replay.rank_progress import ActiveOperation, Flow
    from chakram.replay.rank_queue_pair import Pair
    from chakram.roce.events import MessageReceived, SendCompleted

__all__ = ["Replay"]

_NEVER = NEVER
_NOTHING = NOTHING
_NOT_NOW = NOT_NOW
_COMPUTE = COMPUTE

_ENDLESS = 1 << 62
"""Number of iterations of a background job, which runs until the other jobs end."""


class Replay:
    """The state of one rank from its first to its last iteration.

    Args:
        plan: The rank with its program and queue pairs.
        settings: Number of iterations, and gap or barrier between them.
        rank_numbers: Plan number of every (job, rank).
        records: Destination of the rows of finished flows, shares and iterations.
        has_arrivals: Whether to also record the arrival of messages.
        first_place: Place of the rank's first queue pair: see ``Pair``.

    Attributes:
        pairs: The rank's queue pairs by QPN, in the order of the plan.
        is_background: Whether the rank continues until all other jobs have ended.
        is_held: Whether the rank begins no further iteration.
        iteration: Number of the current or next iteration.
        completed_messages: Number of the rank's acknowledged messages, over all
            iterations.
        completed_operations: Number of operations done, over all iterations.
        finished_ns: End of the last iteration, or ``NEVER`` before that.

    Raises:
        PlanError: If the program is invalid or needs something that the plan lacks.
    """

    __slots__ = (
        "_activity",
        "_are_barriers",
        "_arrivals",
        "_durations_ns",
        "_expander",
        "_gap_ns",
        "_has_arrivals",
        "_held_by",
        "_iteration_start_ns",
        "_iterations",
        "_kinds",
        "_numbers",
        "_offset_ns",
        "_posts",
        "_preference",
        "_program",
        "_readiness",
        "_rows",
        "_starts_ns",
        "_stream_of",
        "_streams",
        "_timers",
        "_warmup",
        "completed_messages",
        "completed_operations",
        "finished_ns",
        "is_background",
        "is_held",
        "iteration",
        "job",
        "number",
        "pairs",
        "rank",
    )

    def __init__(
        self,
        *,
        plan: RankPlan,
        settings: RunSettings,
        rank_numbers: Mapping[tuple[str, int], int],
        records: RecordRows,
        has_arrivals: bool = False,
        first_place: int = 0,
    ) -> None:
        program = plan.program
        columns = program.columns
        self.number = plan.number
        self.job = program.job
        self.rank = program.rank
        self.iteration = 0
        self.completed_messages = 0
        self.completed_operations = 0
        self.finished_ns = NEVER
        self._program = program
        job = settings.of(program.job)
        self.is_background = job.is_background
        self.is_held = False
        # A background rank without work would repeat endless iterations without
        # advancing the time.
        self._iterations = (
            _ENDLESS
            if job.is_background and not columns.is_idle
            else settings.iterations_of(program.job)
        )
        self._warmup = settings.warmup
        self._offset_ns = job.offset_ns
        self._gap_ns = settings.gap_ns if settings.sync == "gap" else 0
        self._numbers = rank_numbers
        tables = ProgramTables(plan, first_place)
        self.pairs = tables.pairs
        self._kinds = tables.kinds
        self._are_barriers = tables.are_barriers
        self._durations_ns = tables.durations_ns
        self._stream_of = tables.streams
        self._expander = Expander(
            plan=plan, pairs=tables.pairs, rank_numbers=rank_numbers
        )
        self._preference = preferences(job.policy, columns)
        self._readiness = Readiness(
            list(map(columns.dependencies_of, range(len(columns)))),
            self._preference,
        )
        self._starts_ns = (
            [columns.start_ns(row) or 0 for row in range(len(columns))]
            if job.order == "start_times"
            else None
        )
        self._rows = RowWriter(records, plan.number)
        self._has_arrivals = has_arrivals
        self._streams = ComputeStreams()
        # For each compute operation that waited for its stream, the operation that
        # occupied the stream.
        self._held_by: dict[int, int] = {}
        self._timers: list[tuple[int, int]] = []
        self._arrivals = IncomingMessages(tables)
        self._posts = Posts(
            plan.number,
            Credits(settings.credits, plan.queue_pairs, tables.pairs)
            if settings.credits
            else None,
            self._rows,
        )
        self._activity = Activity()
        self._iteration_start_ns = 0

    # Inputs.

    def arm(self, start_ns: int) -> None:
        """Schedule the first iteration at *start_ns* plus the offset of the job."""
        if self._iterations == 0:
            self.finished_ns = start_ns
        else:
            self._begin_at(start_ns + self._offset_ns)

    def hold(self, is_held: bool, now_ns: int) -> None:
        """Hold the rank after its current iteration, or resume it at *now_ns*."""
        if is_held == self.is_held:
            return
        self.is_held = is_held
        if self._timers and self._timers[0][1] == _NOTHING:
            self._timers.clear()  # between iterations, there is no other timer
            self._begin_at(now_ns)

    def rests(self) -> bool:
        """Return whether the rank is held, and neither sends nor computes."""
        if not self.is_held or self.next_timer_ns() != _NEVER:
            return False
        for active in self._arrivals.under_way():
            if active.marks.find(1, active.first_send) >= 0:
                return False
        return True

    def next_timer_ns(self) -> int:
        """Return when ``handle_timers`` is next due, or ``NEVER`` without a timer."""
        return self._timers[0][0] if self._timers else _NEVER

    def handle_timers(self, now_ns: int) -> None:
        """Handle due timers: end computations and gaps, start operations."""
        self._handle_timers_until(now_ns, now_ns)

    def message_received(self, pair: Pair, event: MessageReceived, now_ns: int) -> None:
        """Handle a complete message that arrived on a queue pair."""
        received_ns = event.received_ns
        if self._timers and self._timers[0][0] <= received_ns:
            self._handle_timers_until(received_ns, now_ns)
        if event.message_id is None:
            self._arrivals.refuse()
            return
        immediate = event.message_id
        if self._posts.take_grant(pair, received_ns):
            return
        active = self._arrivals.find(pair, immediate, event)
        if active is None:
            return
        self._arrive(active, pair, immediate, event)
        if active.messages_left == 0:
            self._end(active)
            self._run(now_ns)

    def message_acknowledged(
        self, flow: Flow, event: SendCompleted, now_ns: int, recorded_qpn: int = 0
    ) -> None:
        """Record an acknowledged message and continue its operation.

        The record contains *recorded_qpn* if the message used another queue pair of a
        bundle.
        """
        acked_ns = event.last_acked_ns
        if self._timers and self._timers[0][0] <= acked_ns:
            self._handle_timers_until(acked_ns, now_ns)
        active = self._posts.acknowledged(flow, event, self.iteration, recorded_qpn)
        if active is None:
            return
        self.completed_messages += 1
        if active.messages_left == 0:
            self._end(active)
            self._run(now_ns)

    # Outputs.

    def next_post(self) -> Flow | None:
        """Return the next message to post, or None."""
        return self._posts.next_post()

    def finished(self) -> bool:
        """Return whether all iterations are done."""
        return self.finished_ns != _NEVER

    def is_measuring(self) -> bool:
        """Return whether the rank is communicating in a measured iteration."""
        return self.iteration >= self._warmup and self._activity.is_communicating()

    def stray_messages(self) -> int:
        """Return how many messages match no operation or exceed `EARLY_LIMIT`."""
        return self._arrivals.strays()

    def early_messages(self) -> int:
        """Return the number of messages that wait for their operation to start."""
        return self._arrivals.early()

    def waiting_for(self) -> list[str]:
        """Return what each active operation waits for, one sentence each."""
        sentences = waiting_words(
            program=self._program,
            iteration=self.iteration,
            active=self._arrivals.under_way(),
            rank_of={
                number: rank
                for (job, rank), number in self._numbers.items()
                if job == self.job
            },
        )
        sentences += self._posts.waiting_for()
        if not sentences and not self.finished():
            sentences.append("computes, or waits for its start time")
        strays = self.stray_messages()
        if strays:
            sentences.append(f"{strays} message(s) arrived that belong to no operation")
        return [f"job {self.job} rank {self.rank}: {each}" for each in sentences]

    # Iterations.

    def _start_iteration(self, due_ns: int, now_ns: int) -> None:
        self._iteration_start_ns = due_ns
        self._held_by.clear()
        self._activity.begin(due_ns)
        self._readiness.begin(due_ns)
        if self._readiness.left == 0:
            self._end_iteration()
        else:
            self._run(now_ns)

    def _end_iteration(self) -> None:
        end_ns = self._readiness.end_ns
        self._activity.change(0, 0, end_ns)
        self._rows.iteration(
            self.iteration, self._iteration_start_ns, end_ns, self._activity
        )
        self.iteration += 1
        if self.iteration == self._iterations:
            self.finished_ns = end_ns
        else:
            self._begin_at(end_ns + self._gap_ns)

    def _begin_at(self, due_ns: int) -> None:
        """Schedule the next iteration."""
        heappush(self._timers, (_NEVER if self.is_held else due_ns, _NOTHING))

    def _handle_timers_until(self, until_ns: int, now_ns: int) -> None:
        """Handle the timers due by *until_ns*, at the current time *now_ns*."""
        timers = self._timers
        while timers and timers[0][0] <= until_ns:
            deadline_ns, index = heappop(timers)
            if index == _NOTHING:
                self._start_iteration(deadline_ns, now_ns)
            elif index >= len(self._kinds):
                self._begin(index - len(self._kinds), now_ns)
                self._run(now_ns)
            else:
                self._end_compute(index, deadline_ns)
                self._run(now_ns)

    # Operations.

    def _run(self, now_ns: int) -> None:
        """Start all ready operations, in the order of the policy."""
        readiness = self._readiness
        index = readiness.take()
        while index != _NOTHING:
            if self._starts_ns is None:
                self._begin(index, now_ns)
            else:
                due_ns = self._iteration_start_ns + self._starts_ns[index]
                if due_ns > readiness.ready_ns[index]:
                    readiness.postpone(index, due_ns)
                    heappush(self._timers, (due_ns, index + len(self._kinds)))
                else:
                    self._begin(index, now_ns)
            index = readiness.take()

    def _begin(self, index: int, now_ns: int) -> None:
        """Start an operation, or queue it for its stream."""
        ready_ns = self._readiness.ready_ns[index]
        if self._kinds[index] != _COMPUTE:
            self._start_communication(index, now_ns)
        elif self._durations_ns[index] == 0:
            self._done(index, ready_ns, True)
        elif self._streams.take(
            self._stream_of[index], index, ready_ns, self._preference[index]
        ):
            self._start_compute(index, ready_ns)

    def _done(self, index: int, done_ns: int, takes_no_time: bool = False) -> None:
        """Release an operation's dependents. The last operation ends the iteration."""
        self.completed_operations += 1
        self._readiness.done(index, done_ns, takes_no_time)
        if self._readiness.left == 0:
            self._end_iteration()

    def _start_compute(self, index: int, start_ns: int) -> None:
        heappush(self._timers, (start_ns + self._durations_ns[index], index))
        self._activity.change(1, 0, start_ns)

    def _end_compute(self, index: int, end_ns: int) -> None:
        self._activity.change(-1, 0, end_ns)
        if self.iteration >= self._warmup:
            self._rows.computation(
                self.iteration,
                index,
                self._readiness.ready_ns[index],
                end_ns - self._durations_ns[index],
                end_ns,
                self._readiness.released_by[index],
                self._held_by.pop(index, _NOTHING),
            )
        following = self._streams.release(self._stream_of[index])
        if following is not None:
            next_index, ready_ns = following
            if ready_ns < end_ns:
                self._held_by[next_index] = index
            self._start_compute(next_index, max(ready_ns, end_ns))
        self._done(index, end_ns)

    def _start_communication(self, index: int, now_ns: int) -> None:
        expansion = self._expander.expansion(index)
        is_counted = not self._are_barriers[index]
        ready_ns = self._readiness.ready_ns[index]
        # Without sends, the operation needs no action by the generator, so it starts
        # when it is ready.
        start_ns = now_ns if expansion.send_pairs else ready_ns
        active = self._arrivals.begin(
            index,
            self.iteration,
            expansion,
            ready_ns,
            start_ns,
            is_counted,
        )
        active.released_by = self._readiness.released_by[index]
        if self._starts_ns is not None:
            active.slip_ns = start_ns - (
                self._iteration_start_ns + self._starts_ns[index]
            )
        if is_counted:
            self._activity.change(0, 1, start_ns)
        self._posts.begin(active)
        if self._arrivals.early():
            for pair, immediate, event in self._arrivals.kept(active):
                self._arrive(active, pair, immediate, event)
        if active.messages_left == 0:
            self._end(active)

    def _arrive(
        self,
        active: ActiveOperation,
        pair: Pair,
        immediate: int,
        event: MessageReceived,
    ) -> None:
        """Process a message for an active operation and post the sends it releases."""
        receive = self._arrivals.take(active, pair, immediate, event)
        if receive == _NOT_NOW:
            return
        if self._has_arrivals:
            expansion = active.expansion
            channel = expansion.receive_channels[receive]
            self._rows.arrival(
                self.iteration,
                active.index,
                expansion.receive_peers[receive],
                channel << 32 | immediate,
                event.received_ns,
            )
        self._posts.arrived(active, receive, pair, immediate, event.received_ns)

    def _end(self, active: ActiveOperation) -> None:
        """Record an operation whose messages are all done."""
        self._arrivals.end(active)
        if active.is_counted:
            self._activity.change(0, -1, active.end_ns)
        self._rows.share(self.iteration, active)
        self._done(active.index, active.end_ns)
