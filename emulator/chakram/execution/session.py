"""Session that carries out the decisions of the state machine on real agents."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from chakram.control import events as agent_events
from chakram.control.clock_track import ClockTrack
from chakram.execution import state
from chakram.execution.concurrent_calls import call_all
from chakram.foundation.errors import (
    ChakramError,
    ControllerStalled,
    RunFailed,
    RunInterrupted,
    UnexpectedEvent,
)
from chakram.plan.nic_queue_pairs import BoundQueuePair, peers_of, uses_verbs
from chakram.plan.plan import AgentPlan
from chakram.records.row_layout import RecordRows

if TYPE_CHECKING:
    from chakram.control.client import AgentClient


log = logging.getLogger(__name__)

_TICK_S = 0.25
_LOOK_S = 0.05
# These delays are long enough to inform the slowest of some hundred agents.
_START_DELAY_NS = 300_000_000
_START_DELAY_PER_AGENT_NS = 2_000_000


class RunObserver:
    """Base class for observers of a run. It ignores all events."""

    def phase_changed(self, phase: state.Phase) -> None:
        """Handle a phase change of the run."""

    def iterations_done(self, iterations: int) -> None:
        """Handle the end of an iteration of all ranks."""

    def rows_arrived(self, rows: RecordRows) -> None:
        """Handle records of an agent."""

    def counters_arrived(
        self, agent: str, snapshot: agent_events.CountersSnapshot
    ) -> None:
        """Handle counters of an agent."""

    def agent_lost(self, agent: str) -> None:
        """Handle the loss of the connection to an agent."""

    def records_missing(self, agent: str, reason: str) -> None:
        """Handle the loss of the last records of an agent."""

    def agent_said(self, agent: str, level: str, text: str) -> None:
        """Handle a message of an agent for the user."""

    def nic_counted(self, nic: agent_events.NicCounters) -> None:
        """Handle the hardware counters of an RDMA NIC."""

    def jobs_chosen(self, jobs: Sequence[str]) -> None:
        """Handle a choice of *jobs* to continue.

        The records of all other jobs have arrived.
        """

    def host_counted(self, agent: str, host: agent_events.HostCounters) -> None:
        """Handle the counters of an agent's host."""


@dataclass(slots=True, eq=False, kw_only=True)
class Session:
    """One run on connected agents.

    Attributes:
        plans: The plan of each agent, by name.
        clients: The connected agents.
        clocks: Models of the agents' clocks.
        observer: The observer of the run.
        hang_timeout_ns: See ``ControllerState``.
        iterations_of: Number of iterations by rank number, for ranks with a limit.
        duration_limit_ns: Time after which the run ends in any case. None means no
            limit.
        starting: Function that takes the common start time on the controller's clock.
            The session runs the coroutine that the function returns.
        progressed: Function that takes pairs of rank number and finished iterations. If
            the function returns a coroutine, the session runs it.
        jobs_file: File that names the jobs that may begin iterations; see
            ``RunRequest``.
    """

    plans: Mapping[str, AgentPlan]
    clients: Mapping[str, AgentClient]
    clocks: Mapping[str, ClockTrack]
    observer: RunObserver
    hang_timeout_ns: int
    iterations_of: Mapping[int, int]
    duration_limit_ns: int | None = None
    starting: Callable[[int], Coroutine[object, object, None]] | None = None
    progressed: Callable[
        [Sequence[tuple[int, int]]], Coroutine[object, object, None] | None
    ] = lambda _: None
    jobs_file: Path | None = None
    _state: state.ControllerState = field(init=False)
    _deadline_ns: int | None = None
    _events: asyncio.Queue[state.Event] = field(default_factory=asyncio.Queue)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _heard_ns: dict[str, int] = field(default_factory=dict)
    _bound: list[BoundQueuePair] = field(default_factory=list)
    _resting: dict[str, Sequence[int]] = field(default_factory=dict)
    _error: ChakramError | None = None
    _fault: BaseException | None = None

    def __post_init__(self) -> None:
        self._state = state.ControllerState(hang_timeout_ns=self.hang_timeout_ns)

    async def run(self) -> None:
        """Prepare, arm and follow the agents until the run has ended.

        Raises:
            RunInterrupted: If the user interrupted the run.
            RunFailed: If the run ended before its work was done.
            ChakramError: If an agent refused its plan.
        """
        finish: state.Finish | None = None
        try:
            if self.jobs_file is not None:
                jobs = self._choose(self.jobs_file)
                self._spawn(self._follow_choices(self.jobs_file, jobs), "jobs")
            own = f"chakram run on {socket.gethostname()}, process {os.getpid()}"
            await call_all(
                lambda client: client.attach(controller=own),
                self.clients.values(),
            )
            for name, client in self.clients.items():
                self._spawn(self._follow(client), f"follow-{name}")
            self._spawn(self._keep_time(), "time")
            self._events.put_nowait(state.Begin(agents=tuple(self.clients)))
            while finish is None:
                finish = await self._step()
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._fault is not None:
            raise self._fault
        if finish.reason is None:
            return
        if finish.interrupted:
            raise RunInterrupted("run", finish.reason)
        if self._error is not None:
            raise self._error
        raise RunFailed("run", finish.reason)

    async def _step(self) -> state.Finish | None:
        """Take one event and carry out the resulting instructions."""
        event = await self._events.get()
        before = self._state.phase, self._state.iterations
        try:
            instructions = self._state.handle(event)
        except UnexpectedEvent as error:
            # Ignore an agent that violates the protocol.
            log.warning("event refused error=%s", error)
            return None
        if self._state.phase is not before[0]:
            self.observer.phase_changed(self._state.phase)
            if (
                self._state.phase is state.Phase.RUNNING
                and self.duration_limit_ns is not None
            ):
                self._deadline_ns = time.monotonic_ns() + self.duration_limit_ns
        if self._state.iterations != before[1]:
            self.observer.iterations_done(self._state.iterations)
        if isinstance(event, state.Tick):
            self._check_deadline(event.now_ns)
        for instruction in instructions:
            if isinstance(instruction, state.Finish):
                return instruction
            self._carry_out(instruction)
        return None

    def _choose(self, path: Path, before: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Begin iterations only of the jobs in a file, and return their names.

        A file that is empty, perhaps because it is being written, changes nothing.
        """
        try:
            jobs = (*path.read_text("utf-8").split(),) or before
        except (OSError, UnicodeError) as error:
            raise RunFailed(
                f"file of jobs {path}", f"cannot be read: {error}"
            ) from error
        known = {
            rank.program.job for plan in self.plans.values() for rank in plan.ranks
        }
        if unknown := [job for job in jobs if job not in known]:
            raise RunFailed(
                f"file of jobs {path}",
                f"names {unknown[0]}, which is not a job of the run",
                f"choose from {', '.join(sorted(known))}",
            )
        for client in self.clients.values():
            client.jobs = jobs
        return jobs

    async def _follow_choices(self, path: Path, jobs: tuple[str, ...]) -> None:
        is_told = True
        job_of = {
            rank.number: rank.program.job
            for plan in self.plans.values()
            for rank in plan.ranks
        }
        while True:
            await asyncio.sleep(_LOOK_S)
            before, jobs = jobs, self._choose(path, jobs)
            is_told = is_told and jobs == before
            others = {n for n, job in job_of.items() if jobs and job not in jobs}
            if not is_told and {*chain(*self._resting.values())} == others:
                is_told = True
                self.observer.jobs_chosen(jobs)

    async def _keep_time(self) -> None:
        """Send ticks forever, because a run may hang although agents keep sending."""
        while True:
            await asyncio.sleep(_TICK_S)
            self._events.put_nowait(
                state.Tick(now_ns=time.monotonic_ns(), heard_ns=dict(self._heard_ns))
            )

    def _carry_out(self, instruction: state.Instruction) -> None:
        match instruction:
            case state.PrepareAgent(agent=agent):
                self._spawn(self._prepare(agent), f"prepare-{agent}")
            case state.ArmAgents(agents=agents):
                if uses_verbs(self.plans.values()):
                    self._spawn(self._connect_and_arm(agents), "connect")
                else:
                    self._arm_all(agents)
            case state.ReleaseAgent(agent=agent):
                self._spawn(self._release(agent), f"release-{agent}")
            case state.Repeat(event=event):
                self._events.put_nowait(event)
            case state.AbortAgent(agent=agent, reason=reason):
                self._spawn(self._abort(agent, reason), f"abort-{agent}")

    def _spawn(self, work: Coroutine[object, object, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        task.add_done_callback(self._look_at)
        self._tasks.add(task)

    def _look_at(self, task: asyncio.Task[None]) -> None:
        """End the run if a task failed, instead of waiting for its result."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._fault = self._fault or error
            is_known = isinstance(error, ChakramError)
            reason = str(error) if is_known else f"{task.get_name()}: {error!r}"
            self._events.put_nowait(state.Abort(reason=reason))

    async def _prepare(self, agent: str) -> None:
        try:
            bindings = await self.clients[agent].prepare(self.plans[agent])
            self._bound.extend(bindings.bound)
        except ChakramError as error:
            self._refused(agent, error)
        else:
            self._events.put_nowait(state.AgentPrepared(agent=agent))

    async def _connect_and_arm(self, agents: Sequence[str]) -> None:
        """Connect the queue pairs on RDMA NICs, and then schedule the start."""
        async with asyncio.TaskGroup() as tasks:
            connecting = [tasks.create_task(self._connect(agent)) for agent in agents]
        is_aborted = self._state.phase is not state.Phase.ARMING
        if not is_aborted and all(each.result() for each in connecting):
            self._arm_all(agents)

    async def _connect(self, agent: str) -> bool:
        try:
            peers = peers_of(self.plans[agent], self._bound)
            await self.clients[agent].connect_queue_pairs(peers)
        except ChakramError as error:
            self._refused(agent, error)
            return False
        return True

    def _arm_all(self, agents: Sequence[str]) -> None:
        start_ns = (
            time.monotonic_ns()
            + _START_DELAY_NS
            + _START_DELAY_PER_AGENT_NS * len(agents)
        )
        if self.starting is not None:
            self._spawn(self.starting(start_ns), "starting")
        for agent in agents:
            self._spawn(self._arm(agent, start_ns), f"arm-{agent}")

    async def _arm(self, agent: str, start_ns: int) -> None:
        try:
            await self.clients[agent].arm(self.clocks[agent].to_remote(start_ns))
        except ChakramError as error:
            self._refused(agent, error)
        else:
            self._events.put_nowait(state.AgentArmed(agent=agent))

    async def _release(self, agent: str) -> None:
        """Read the last records. An error here does not fail a complete run."""
        client = self.clients[agent]
        try:
            try:
                await client.reset()
            except UnexpectedEvent:
                # The agent is already ending its traffic, for example after a stall.
                await client.abort("the run has ended")
                await client.reset()
        except ChakramError as error:
            self.observer.records_missing(agent, _clause(error))
        self._events.put_nowait(state.AgentStopped(agent=agent))

    async def _abort(self, agent: str, reason: str) -> None:
        event: state.Event = state.AgentStopped(agent=agent)
        try:
            await self.clients[agent].abort(reason)
        except ChakramError as error:
            self.observer.records_missing(agent, _clause(error))
            event = state.AgentLost(agent=agent, reason=_clause(error))
        finally:
            self._events.put_nowait(event)

    def _refused(self, agent: str, error: ChakramError) -> None:
        if self._error is None:
            self._error = error
        self._events.put_nowait(state.AgentFailed(agent=agent, reason=str(error)))

    async def _follow(self, client: AgentClient) -> None:
        """Turn the messages of an agent into events, until the session ends."""
        agent = client.name
        async with aclosing(client.events()) as events:
            while True:
                try:
                    event = await anext(events, None)
                except ChakramError as error:
                    self._lose(agent, error)
                    return
                if event is None:
                    return
                # An error here comes from the controller, for example because of a full
                # disk.
                self._hear(agent, event)

    def _lose(self, agent: str, error: ChakramError) -> None:
        """End the run, because the session of an agent has ended."""
        self.observer.agent_lost(agent)
        self._events.put_nowait(
            state.AgentLost(
                agent=agent,
                reason=_clause(error),
                controller_stalled=isinstance(error, ControllerStalled),
            )
        )

    def _hear(self, agent: str, event: agent_events.AgentEvent) -> None:
        self._heard_ns[agent] = time.monotonic_ns()
        match event:
            case agent_events.RecordBatch(rows=rows):
                self.clocks[agent].line.convert(rows)
                self.observer.rows_arrived(rows)
            case agent_events.Progress():
                self._resting[agent] = event.resting
                work = self.progressed(event.iterations)
                if work is not None:
                    self._spawn(work, "progressed")
                self._events.put_nowait(
                    state.AgentProgress(
                        agent=agent,
                        now_ns=time.monotonic_ns(),
                        counter=event.counter,
                        iterations=self._iterations_done(event),
                        waiting_for=event.waiting_for,
                        foreign=event.foreign,
                    )
                )
            case agent_events.CountersSnapshot():
                self.observer.counters_arrived(agent, event)
            case agent_events.Finished():
                self._events.put_nowait(state.AgentFinished(agent=agent))
            case agent_events.Failed(reason=reason, waiting_for=waiting_for):
                listed = "; ".join(waiting_for[:3])
                self._events.put_nowait(
                    state.AgentFailed(
                        agent=agent, reason=f"{reason}: {listed}" if listed else reason
                    )
                )
            case agent_events.LogLine(level=level, text=text):
                self.observer.agent_said(agent, level, text)
            case agent_events.NicCounters():
                self.observer.nic_counted(event)
            case agent_events.HostCounters():
                self.observer.host_counted(agent, event)
            case agent_events.PhaseChanged():
                pass

    def _iterations_done(self, progress: agent_events.Progress) -> int:
        """Return the minimum number of iterations that running ranks have finished."""
        totals = self.iterations_of
        return min(
            (
                done
                for number, done in progress.iterations
                if done < totals.get(number, 0)
            ),
            default=max(totals.values(), default=0),
        )

    def _check_deadline(self, now_ns: int) -> None:
        if self._state.phase is not state.Phase.RUNNING or self._deadline_ns is None:
            return
        if now_ns > self._deadline_ns:
            self._deadline_ns = None
            self._events.put_nowait(state.Abort(reason="stop_if.duration has elapsed"))

    def abort(self, reason: str) -> None:
        """End the run because it cannot be completed."""
        self._events.put_nowait(state.Abort(reason=reason))

    def interrupt(self, name: str) -> None:
        """End the run cleanly at the user's request."""
        self._events.put_nowait(
            state.Abort(reason=f"interrupted by {name}", interrupted=True)
        )


def _clause(error: ChakramError) -> str:
    """Return the text of an error without its location, which the caller adds."""
    return f"{error.found} ({error.hint})" if error.hint else error.found
