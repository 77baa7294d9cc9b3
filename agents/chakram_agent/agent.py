"""The agent at work: carries out what its state machine decides.

One object per process.  The gRPC service (``chakram_agent.shell``) hands in what the
controller asks for; shards are processes; this stands between them.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from chakram.control.codec import encode_plan
from chakram.control.details import rebuild
from chakram.control.event_codec import decode_progress, decode_rows
from chakram.control.events import (
    CountersSnapshot,
    Failed,
    Finished,
    LogLine,
    PhaseChanged,
    Progress,
    RecordBatch,
)
from chakram.control.messages import pb
from chakram.errors import AgentError, ChakramError, UnexpectedEvent
from chakram.fabric.cores import shard_core
from chakram_agent.divided import DividedPorts
from chakram_agent.events import (
    Abort,
    Arm,
    ArmShards,
    Attach,
    Detach,
    EndSession,
    Event,
    Heartbeat,
    Instruction,
    Prepare,
    Release,
    ReportFailed,
    ReportFinished,
    Reset,
    ShardFailed,
    ShardFinished,
    ShardReady,
    ShardStopped,
    StartShards,
    StopShards,
    Tick,
)
from chakram_agent.metering import Metering
from chakram_agent.session import Session
from chakram_agent.shard_process import ShardProcess
from chakram_agent.state import AgentState, Phase

if TYPE_CHECKING:
    from collections.abc import Callable

    from chakram.control.events import AgentEvent
    from chakram.core.plan import AgentPlan
    from chakram_agent.metrics import AgentMetrics
    from chakram_agent.policy import Policy

__all__ = ["Agent"]

log = logging.getLogger(__name__)

TICK_S = 0.05
HELD_UP_NS = 300_000_000
SNAPSHOT_S = 1.0
STOP_TIMEOUT_S = 3.0
"""Longer than a shard may take to stop, kill included."""


class Agent:
    """Runs plans, one at a time.

    Args:
        policy: What it allows.
        tasks: Owns the tasks of shards.
        pin: Whether each shard keeps to one core.
        metrics: Where the counters go once a second; None: to the controller alone.
    """

    def __init__(
        self,
        policy: Policy,
        tasks: asyncio.TaskGroup,
        *,
        pin: bool = False,
        metrics: AgentMetrics | None = None,
    ) -> None:
        self.policy = policy
        self._pin = pin
        self._metrics = metrics
        self.state = AgentState()
        self.metering = Metering()
        self._tasks = tasks
        self._plan: AgentPlan | None = None
        self._shards: dict[int, ShardProcess] = {}
        self._divided = DividedPorts()
        self._session: Session | None = None
        self._failure: ChakramError | None = None
        self._waiting_for: list[str] = []
        self._progress: dict[int, Progress] = {}
        self._changed = asyncio.Event()

    # ---- what the controller asks for ------------------------------------------------

    async def attach(self, session: str, controller: str) -> Session:
        """Give the agent to a controller.

        Raises:
            AgentError: If another one has it.
        """
        if self.state.session is None:
            # The last controller may have been lost a moment ago.
            await self._wait_until(lambda: self.state.phase is Phase.IDLE)
        self._dispatch(
            Attach(session=session, controller=controller, now_ns=time.monotonic_ns())
        )
        self._session = Session(session)
        self._tell(PhaseChanged(time_ns=time.monotonic_ns(), phase=self.phase_name))
        log.info("session started session=%s controller=%s", session, controller)
        return self._session

    def heartbeat(self, session: str) -> None:
        """Note that the controller lives.

        Raises:
            AgentError: If the session has ended.
        """
        self._dispatch(Heartbeat(session=session, now_ns=time.monotonic_ns()))

    def detach(self, session: str) -> None:
        """Note that the controller's stream has ended."""
        self._dispatch(Detach(session=session))

    async def prepare(self, session: str, plan: AgentPlan) -> None:
        """Start shards for *plan*; they have opened all ports when this returns.

        Raises:
            ChakramError: If the plan is not allowed here or a port cannot be opened.
        """
        limited, notes = self.policy.limit(plan)
        shards = len(limited.shard_numbers())
        event = Prepare(
            session=session,
            run_id=plan.run_id,
            shards=shards,
            goes_on=plan.goes_on(),
        )
        if self.state.phase is Phase.IDLE:
            self._plan = limited
            self._divided.open(limited)
        try:
            self._dispatch(event)
        except ChakramError:
            if self.state.phase is Phase.IDLE:
                self._divided.close()
            raise
        for note in notes:
            self._tell(LogLine(time_ns=time.monotonic_ns(), level="warning", text=note))
        await self._wait_until(
            lambda: self.state.phase not in (Phase.PREPARING, Phase.DRAINING),
            timeout_s=None,
        )
        if self.state.phase is not Phase.PREPARED:
            raise self._failure or AgentError(
                f"plan {plan.run_id}", self.state.reason or "it was not prepared"
            )

    def arm(self, session: str, start_ns: int) -> None:
        """Let all shards start at *start_ns*.

        Raises:
            AgentError: If it is too late for that.
            UnexpectedEvent: If there is no prepared plan.
        """
        self._dispatch(
            Arm(session=session, start_ns=start_ns, now_ns=time.monotonic_ns())
        )

    async def abort(self, reason: str) -> None:
        """End the traffic; it is over when this returns."""
        self._dispatch(Abort(reason=reason))
        await self._wait_until(lambda: self.state.phase in (Phase.IDLE, Phase.FAILED))

    async def reset(self, session: str) -> None:
        """Forget the run.

        Raises:
            UnexpectedEvent: If it has not ended.
        """
        self._dispatch(Reset(session=session))
        await self._wait_until(lambda: self.state.phase is Phase.IDLE)

    async def keep_time(self) -> None:
        """Tell the machine the time, and the controller the counters, for ever."""
        next_snapshot_s = 0.0
        while True:
            before_ns = time.monotonic_ns()
            await asyncio.sleep(TICK_S)
            now_ns = time.monotonic_ns()
            if now_ns - before_ns > HELD_UP_NS:
                continue  # heartbeats may have come meanwhile: hear them first
            if now_ns >= self.state.next_deadline_ns():
                self._dispatch(Tick(now_ns=now_ns))
            if now_ns / 1e9 >= next_snapshot_s:
                next_snapshot_s = now_ns / 1e9 + SNAPSHOT_S
                self._tell_counters()

    async def shut_down(self, reason: str) -> None:
        """End the run and the session: the agent itself is about to end."""
        await self.abort(reason)
        if self._session is not None:
            self._session.end(reason)

    @property
    def phase_name(self) -> str:
        """The name of the phase."""
        return self.state.phase.name

    # ---- instructions ----------------------------------------------------------------

    def _dispatch(self, event: Event) -> None:
        before = self.state.phase
        instructions = self.state.handle(event)
        phase = self.state.phase
        if phase is not before:
            log.info("phase changed phase=%s run_id=%s", phase.name, self.state.run_id)
            self._tell(PhaseChanged(time_ns=time.monotonic_ns(), phase=phase.name))
        for instruction in instructions:
            self._carry_out(instruction)
        self._changed.set()

    def _carry_out(self, instruction: Instruction) -> None:
        match instruction:
            case StartShards():
                self._start_shards()
            case ArmShards(start_ns=start_ns):
                for shard in self._shards.values():
                    shard.tell(pb.ShardCommand(arm=pb.ShardArm(start_ns=start_ns)))
            case StopShards():
                for shard in self._shards.values():
                    shard.stop()
            case EndSession(session=name, reason=reason):
                self._end_session(name, reason)
            case ReportFinished():
                self._tell(self.counters())
                self._tell(Finished(time_ns=time.monotonic_ns()))
            case ReportFailed(reason=reason):
                self._tell(
                    Failed(
                        time_ns=time.monotonic_ns(),
                        reason=reason,
                        waiting_for=tuple(self._waiting_for),
                    )
                )
            case Release():
                self._plan = None
                self._failure = None
                self._waiting_for = []
                self._progress = {}

    def _start_shards(self) -> None:
        plan = self._plan
        if plan is None:
            raise UnexpectedEvent("agent", "there is no plan to start shards for")
        self._failure = None
        self._waiting_for = []
        self._progress = {}
        self.metering.begin(plan)
        if self._metrics is not None:
            self._metrics.begin(plan)
        numbers = plan.shard_numbers()
        usable = os.sched_getaffinity(0) if self._pin else ()
        for index, number in enumerate(numbers):
            core = shard_core(usable, number=index, shards=len(numbers))
            self._tasks.create_task(
                self._run_shard(
                    index,
                    shard_part(plan, number),
                    core,
                    self._divided.parts(number),
                ),
                name=f"shard-{index}",
            )

    def _end_session(self, name: str, reason: str) -> None:
        session = self._session
        if session is not None and session.name == name:
            log.info("session ended session=%s reason=%s", name, reason)
            session.end(reason)
            self._session = None

    # ---- shards ----------------------------------------------------------------------

    async def _run_shard(
        self,
        number: int,
        plan: AgentPlan,
        core: int | None,
        parts: list[pb.PortPart],
    ) -> None:
        """Start a shard and listen to it until it ends."""
        reason = "its process ended"
        try:
            shard = await ShardProcess.start(
                number,
                core,
                queue_pairs=sum(len(rank.queue_pairs) for rank in plan.ranks),
                ports=len(plan.ports),
                inherited=[
                    each for part in parts for each in (part.receiver, part.line)
                ],
            )
        except ChakramError as error:
            self._failure = self._failure or error
            self._divided.leave(number)
            self._dispatch(ShardStopped(shard=number, reason=str(error)))
            return
        except asyncio.CancelledError:
            self._divided.leave(number)
            raise
        self._shards[number] = shard
        self.metering.add_shard(number, shard.counters)
        try:
            if self.state.phase is not Phase.PREPARING:
                shard.stop()  # it was called off while the process started
            setup = pb.ShardSetup(
                shard=number,
                plan=encode_plan(plan),
                allow=[str(prefix) for prefix in self.policy.allow],
                parts=parts,
            )
            shard.tell(pb.ShardCommand(setup=setup))
            async for report in shard.reports():
                self._take_report(number, report)
        except ChakramError as error:
            self._dispatch(ShardFailed(shard=number, reason=str(error)))
        except asyncio.CancelledError:
            shard.kill()
            raise
        finally:
            try:
                reason = await shard.close()
            finally:
                del self._shards[number]
                self.metering.remove_shard(number)
                self._divided.leave(number)
        if not self._shards:
            self._tell(self.counters())  # with what the last words have added
        self._dispatch(ShardStopped(shard=number, reason=reason))

    def _take_report(self, number: int, report: pb.ShardReport) -> None:
        now_ns = time.monotonic_ns()
        match report.WhichOneof("report"):
            case "ready":
                self._dispatch(ShardReady(shard=number))
            case "progress":
                self._note_progress(
                    number, decode_progress(report.progress, time_ns=now_ns)
                )
            case "records":
                rows = decode_rows(report.records, where=f"shard {number}")
                self.metering.note(rows)
                if not self._tell(RecordBatch(time_ns=now_ns, rows=rows)):
                    self._dispatch(
                        Abort(reason="the controller does not take the records")
                    )
            case "finished":
                self._dispatch(ShardFinished(shard=number))
            case "failed":
                error = rebuild(report.failed.error)
                self._failure = self._failure or error
                self._waiting_for.extend(report.failed.waiting_for)
                self._dispatch(ShardFailed(shard=number, reason=_reason(error)))
            case "stopped":
                self._waiting_for.extend(
                    sentence
                    for sentence in report.stopped.waiting_for
                    if sentence not in self._waiting_for
                )

    def _note_progress(self, number: int, progress: Progress) -> None:
        """Tell the controller about all shards as one."""
        self._progress[number] = progress
        parts = self._progress.values()
        self._tell(
            Progress(
                time_ns=progress.time_ns,
                counter=sum(part.counter for part in parts),
                iterations=tuple(row for part in parts for row in part.iterations),
                waiting_for=tuple(
                    sentence for part in parts for sentence in part.waiting_for
                ),
            )
        )

    # ---- telling ---------------------------------------------------------------------

    def _tell(self, event: AgentEvent) -> bool:
        return self._session is None or self._session.put(event)

    def _tell_counters(self) -> None:
        if self._shards or self._metrics is not None:
            counters = self.counters()
            if self._metrics is not None:
                # Prometheus counts on over all runs.
                self._metrics.update(
                    replace(counters, values=self.metering.totals()),
                    self.metering.rows(),
                )
            self._tell(counters)

    def counters(self) -> CountersSnapshot:
        """Return all counters of the run as they are now."""
        return CountersSnapshot(
            time_ns=time.monotonic_ns(),
            values=self.metering.of_run(),
            loads=tuple(
                counters.load(number) for number, counters in self.metering.shards()
            ),
        )

    async def _wait_until(
        self, condition: Callable[[], bool], *, timeout_s: float | None = STOP_TIMEOUT_S
    ) -> None:
        """Wait for *condition*, at most *timeout_s*; who asks looks what came of it."""
        try:
            async with asyncio.timeout(timeout_s):
                while not condition():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            log.warning("waited in vain phase=%s", self.phase_name)


def shard_part(plan: AgentPlan, number: int) -> AgentPlan:
    """Return what shard *number* has to know of a plan."""
    if plan.probes is not None:
        return plan
    ranks = tuple(rank for rank in plan.ranks if rank.shard == number)
    ports = {rank.port for rank in ranks}
    return replace(
        plan,
        ranks=ranks,
        ports=tuple(port for port in plan.ports if port.number in ports),
    )


def _reason(error: ChakramError) -> str:
    """Return an error as a reason: a run that failed says only what happened."""
    return error.found if error.where == "shard" else str(error)
