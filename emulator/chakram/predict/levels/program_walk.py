# cython: language_level=3, annotation_typing=False
# cython: wraparound=False, boundscheck=False, initializedcheck=False
"""Execution of one rank's program, for a caller that transfers its messages.

The execution follows the rules of a run, which ``chakram.replay.rank`` defines. The
rules cover dependencies, one computation at a time per stream, the job's policy,
recorded start times, and iterations with gaps.

``RankWalk`` calls ``begin`` when a communication may start. The caller reports the end
of each communication. It takes the timers of all walks from one queue and passes them
to ``handle_timer`` when they are due.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from chakram.predict.simulator.endless_jobs import MOST_AT_ONCE, endless_job
from chakram.predict.simulator.event_queue import Events
from chakram.program.columns import COMPUTE
from chakram.records.row_layout import IterationRow, RecordRows, ShareRow
from chakram.replay.compute_streams import ComputeStreams
from chakram.replay.program_tables import ProgramTables
from chakram.replay.rank_progress import Activity
from chakram.replay.readiness import NOTHING, Readiness
from chakram.replay.ready_queue_policies import preferences

if TYPE_CHECKING:
    from chakram.plan.plan import RankPlan, RunSettings

__all__ = ["TIMER_BITS", "RankWalk"]

TIMER_BITS = 32
"""The timer numbers of walk n start at n << TIMER_BITS."""

_ENDLESS = 1 << 62


class RankWalk:
    """Executes the program of one rank, from its first to its last iteration.

    Args:
        plan: The rank with its program. Queue pairs are not needed.
        settings: Number of iterations, and the gaps between them.
        records: Destination of share and iteration rows.
        begin: Function called with (walk, operation, the operation that released it or
            -1, now) when a communication may start.
        timers: Queue of timers. Among simultaneous timers, the lowest number is first.
        like: Another rank of the job with the same columns, whose tables are shared.

    Attributes:
        number: Number of the rank in the plan.
        is_recorded: Whether its communications have rows.
        is_background: Whether the rank continues until all other jobs have finished.
        iterations: Number of iterations.
        iteration: The running iteration, or the next one.
        is_finished: Whether all iterations are complete.
        communications: The caller's data about each operation.
        places: The caller's data about groups and peers.
    """

    def __init__(
        self,
        plan: RankPlan,
        settings: RunSettings,
        records: RecordRows,
        begin: Callable[[RankWalk, int, int, int], None],
        timers: Events,
        like: RankWalk | None = None,
    ) -> None:
        program = plan.program
        columns = program.columns
        job = settings.of(program.job)
        self.number = plan.number
        self.is_recorded = True
        self.program = program
        self.iteration = 0
        self.is_finished = False
        self.is_background = job.is_background
        # An idle rank of a background job would repeat forever at one virtual time.
        self.iterations = (
            _ENDLESS
            if job.is_background and not columns.is_idle
            else settings.iterations_of(program.job)
        )
        self._offset_ns = job.offset_ns
        self._gap_ns = settings.gap_ns if settings.sync == "gap" else 0
        self._begin = begin
        self._records = records
        if like is None:
            tables = ProgramTables(plan)
            self._kinds = tables.kinds
            self._are_barriers = tables.are_barriers
            self._durations_ns = tables.durations_ns
            self._stream_of = tables.streams
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
        else:
            self._share_tables(like)
        self._operations = len(columns)
        self._streams = ComputeStreams()
        self._activity = Activity()
        self._timers = timers
        self._first_timer = plan.number << TIMER_BITS
        self._iteration_start_ns = 0
        # Number of consecutive iterations, up to the latest one, that took no time.
        self._at_once = 0
        # Start and slip of each running communication.
        self._begun: dict[int, tuple[int, int]] = {}
        self.communications: list[Any] = []
        self.places: dict[int, Any] = {}

    def _share_tables(self, like: RankWalk) -> None:
        self._kinds = like._kinds
        self._are_barriers = like._are_barriers
        self._durations_ns = like._durations_ns
        self._stream_of = like._stream_of
        self._preference = like._preference
        self._readiness = like._readiness.another()
        self._starts_ns = like._starts_ns

    def arm(self) -> None:
        """Schedule the first iteration at time 0 plus the offset of the job."""
        if self.iterations == 0:
            self.is_finished = True
        else:
            self._set_timer(self._offset_ns, NOTHING)

    def handle_timer(self, number: int, now_ns: int) -> None:
        """End a computation or pause that is over, or start an operation that is due.

        Args:
            number: Number of the timer.
            now_ns: Current time.
        """
        index = number - self._first_timer - 1
        if index == NOTHING:
            self._start_iteration(now_ns)
            return
        if index >= self._operations:
            self._start(index - self._operations, now_ns)
        else:
            self._end_compute(index, now_ns)
        self._run(now_ns)

    def ended(self, index: int, now_ns: int, sent: int, received: int) -> None:
        """Complete a communication and write its row.

        Args:
            index: The operation.
            now_ns: Current time.
            sent: Number of bytes that this rank sent for the operation.
            received: Number of bytes that this rank received for the operation.
        """
        ready_ns, slip_ns = self._begun.pop(index)
        if self.is_recorded:
            self._write_share(index, ready_ns, now_ns, sent, received, slip_ns)
        if not self._are_barriers[index]:
            self._activity.change(0, -1, now_ns)
        self._done(index, now_ns, False)
        self._run(now_ns)

    def _write_share(
        self,
        index: int,
        ready_ns: int,
        now_ns: int,
        sent: int,
        received: int,
        slip_ns: int,
    ) -> None:
        row = ShareRow(
            iteration=self.iteration,
            rank=self.number,
            operation=index,
            ready_ns=ready_ns,
            start_ns=ready_ns,
            end_ns=now_ns,
            sent_bytes=sent,
            received_bytes=received,
            generator_wait_ns=0,
            retransmitted=0,
            ce=0,
            slip_ns=slip_ns,
            wrong=0,
        )
        self._records.shares.extend(row)

    def under_way(self) -> list[int]:
        """Return the communications that have begun but not ended."""
        return list(self._begun)

    def _start_iteration(self, now_ns: int) -> None:
        self._iteration_start_ns = now_ns
        self._activity.begin(now_ns)
        self._readiness.begin(now_ns)
        if self._readiness.left == 0:
            self._end_iteration()
        else:
            self._run(now_ns)

    def _end_iteration(self) -> None:
        end_ns = self._readiness.end_ns
        self._activity.change(0, 0, end_ns)
        activity = self._activity
        row = IterationRow(
            self.iteration,
            self.number,
            self._iteration_start_ns,
            end_ns,
            activity.compute_ns,
            activity.communication_ns,
            activity.exposed_ns,
            activity.idle_ns,
        )
        self._records.iterations.extend(row)
        self.iteration += 1
        next_ns = end_ns + self._gap_ns
        self._at_once = 0 if next_ns > self._iteration_start_ns else self._at_once + 1
        if self.iteration == self.iterations:
            self.is_finished = True
        elif self.is_background and self._at_once == MOST_AT_ONCE:
            raise endless_job(self.program.job, self.program.rank)
        else:
            self._set_timer(next_ns, NOTHING)

    def _run(self, now_ns: int) -> None:
        """Start all ready operations, in the order of the policy."""
        readiness = self._readiness
        index = readiness.take()
        while index != NOTHING:
            due_ns = now_ns
            if self._starts_ns is not None:
                due_ns = self._iteration_start_ns + self._starts_ns[index]
            if due_ns > now_ns:
                readiness.postpone(index, due_ns)
                self._set_timer(due_ns, index + self._operations)
            else:
                self._start(index, now_ns)
            index = readiness.take()

    def _start(self, index: int, now_ns: int) -> None:
        """Start an operation, or queue it for its stream."""
        if self._kinds[index] != COMPUTE:
            slip_ns = 0
            if self._starts_ns is not None:
                slip_ns = now_ns - (self._iteration_start_ns + self._starts_ns[index])
            self._begun[index] = now_ns, slip_ns
            if not self._are_barriers[index]:
                self._activity.change(0, 1, now_ns)
            self._begin(self, index, self._readiness.released_by[index], now_ns)
        elif self._durations_ns[index] == 0:
            self._done(index, now_ns, True)
        elif self._streams.take(
            self._stream_of[index], index, now_ns, self._preference[index]
        ):
            self._start_compute(index, now_ns)

    def _start_compute(self, index: int, now_ns: int) -> None:
        self._set_timer(now_ns + self._durations_ns[index], index)
        self._activity.change(1, 0, now_ns)

    def _end_compute(self, index: int, now_ns: int) -> None:
        self._activity.change(-1, 0, now_ns)
        following = self._streams.release(self._stream_of[index])
        if following is not None:
            self._start_compute(following[0], now_ns)
        self._done(index, now_ns, False)

    def _done(self, index: int, now_ns: int, takes_no_time: bool) -> None:
        """Release the dependents of an operation.

        End the iteration if the operation was the last one.
        """
        self._readiness.done(index, now_ns, takes_no_time)
        if self._readiness.left == 0:
            self._end_iteration()

    def _set_timer(self, at_ns: int, index: int) -> None:
        number = self._first_timer + index + 1
        self._timers.add_at(at_ns, number, number)
