"""Execution of one rank's program, for a caller that transfers its messages.

The execution follows the rules of a run, which ``chakram.replay.rank`` defines. The
rules cover dependencies, one computation at a time per stream, the job's policy,
recorded start times, and iterations with gaps.

``RankWalk`` calls ``begin`` when a communication may start. The caller reports the end
of each communication and handles timers when they are due.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from chakram.program.columns import COMPUTE
from chakram.records.row_layout import RecordRows, ShareRow
from chakram.replay.compute_streams import ComputeStreams
from chakram.replay.policies import preferences
from chakram.replay.program_tables import ProgramTables
from chakram.replay.rank_progress import Activity
from chakram.replay.readiness import NOTHING, Readiness
from chakram.replay.row_writer import RowWriter

if TYPE_CHECKING:
    from chakram.plan.plan import RankPlan, RunSettings


_ENDLESS = 1 << 62


class RankWalk:
    """Executes the program of one rank, from its first to its last iteration.

    Args:
        plan: The rank with its program. Queue pairs are not needed.
        settings: Number of iterations, and the gaps between them.
        records: Destination of share and iteration rows.
        begin: Function called with (walk, operation, the operation that released it or
            -1, now) when a communication may start.
        like: Another rank of the job with the same columns, whose tables are shared.

    Attributes:
        number: Number of the rank in the plan.
        is_background: Whether the rank continues until all other jobs have finished.
        iterations: Number of iterations.
        iteration: The running iteration, or the next one.
        is_finished: Whether all iterations are complete.
    """

    def __init__(
        self,
        plan: RankPlan,
        settings: RunSettings,
        records: RecordRows,
        begin: Callable[[RankWalk, int, int, int], None],
        like: RankWalk | None = None,
    ) -> None:
        program = plan.program
        columns = program.columns
        job = settings.of(program.job)
        self.number = plan.number
        self.program = program
        self.iteration = 0
        self.is_finished = False
        self.is_background = job.is_background
        self.iterations = (
            _ENDLESS if job.is_background else settings.iterations_of(program.job)
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
            self._kinds = like._kinds
            self._are_barriers = like._are_barriers
            self._durations_ns = like._durations_ns
            self._stream_of = like._stream_of
            self._preference = like._preference
            self._readiness = like._readiness.another()
            self._starts_ns = like._starts_ns
        self._rows = RowWriter(records, plan.number)
        self._streams = ComputeStreams()
        self._activity = Activity()
        self._timers: list[tuple[int, int]] = []
        self._iteration_start_ns = 0
        self._begun: dict[int, tuple[int, int]] = {}

    def arm(self) -> None:
        """Schedule the first iteration at time 0 plus the offset of the job."""
        if self.iterations == 0:
            self.is_finished = True
        else:
            heappush(self._timers, (self._offset_ns, NOTHING))

    def next_timer_ns(self) -> int | None:
        """Return the time of the next timer, or None if there is none."""
        return self._timers[0][0] if self._timers else None

    def handle_timers(self, now_ns: int) -> None:
        """End the computations and pauses that are over, and start due operations."""
        timers = self._timers
        while timers and timers[0][0] <= now_ns:
            _, index = heappop(timers)
            if index == NOTHING:
                self._start_iteration(now_ns)
            elif index >= len(self._kinds):
                self._start(index - len(self._kinds), now_ns)
                self._run(now_ns)
            else:
                self._end_compute(index, now_ns)
                self._run(now_ns)

    def ended(self, index: int, now_ns: int, *, sent: int, received: int) -> None:
        """Complete a communication and write its row.

        Args:
            index: The operation.
            now_ns: Current time.
            sent: Number of bytes that this rank sent for the operation.
            received: Number of bytes that this rank received for the operation.
        """
        ready_ns, slip_ns = self._begun.pop(index)
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
        if not self._are_barriers[index]:
            self._activity.change(0, -1, now_ns)
        self._done(index, now_ns)
        self._run(now_ns)

    def under_way(self) -> list[int]:
        """Return the communications that have begun and not ended."""
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
        self._rows.iteration(
            self.iteration, self._iteration_start_ns, end_ns, self._activity
        )
        self.iteration += 1
        if self.iteration == self.iterations:
            self.is_finished = True
        else:
            heappush(self._timers, (end_ns + self._gap_ns, NOTHING))

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
                heappush(self._timers, (due_ns, index + len(self._kinds)))
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
            self._done(index, now_ns, takes_no_time=True)
        elif self._streams.take(
            self._stream_of[index], index, now_ns, self._preference[index]
        ):
            self._start_compute(index, now_ns)

    def _start_compute(self, index: int, now_ns: int) -> None:
        heappush(self._timers, (now_ns + self._durations_ns[index], index))
        self._activity.change(1, 0, now_ns)

    def _end_compute(self, index: int, now_ns: int) -> None:
        self._activity.change(-1, 0, now_ns)
        following = self._streams.release(self._stream_of[index])
        if following is not None:
            self._start_compute(following[0], now_ns)
        self._done(index, now_ns)

    def _done(self, index: int, now_ns: int, *, takes_no_time: bool = False) -> None:
        """Release an operation's dependents, or end the iteration after the last."""
        self._readiness.done(index, now_ns, takes_no_time)
        if self._readiness.left == 0:
            self._end_iteration()
