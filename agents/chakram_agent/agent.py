"""The agent, which carries out the instructions of its state machine.

Each agent process has one ``Agent``. The gRPC service (``chakram_agent.grpc_server``)
passes the controller's requests to the ``Agent``. The ``Agent`` runs the shard
processes (``chakram_agent.shards``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING

from chakram.collectives.algorithms import ALGORITHMS
from chakram.control.event_loop_stalls import StallMeter
from chakram.control.events import (
    AgentEvent,
    Failed,
    Finished,
    HostCounters,
    LogLine,
    PhaseChanged,
    Progress,
    RecordBatch,
)
from chakram.foundation.errors import (
    AgentError,
    ChakramError,
    PlugInError,
    UnexpectedEvent,
)
from chakram.foundation.units import format_time
from chakram.plan.nic_queue_pairs import Bindings, Peers
from chakram.plan.plan import AgentPlan
from chakram.roce.congestion import CONTROLS
from chakram_agent import events_and_instructions as events
from chakram_agent.agent_clock import monotonic_ns
from chakram_agent.hang_watchdog import LEASE_SENTENCE
from chakram_agent.host_counters import grown, read_host_counters
from chakram_agent.shard_handle import ForkServers
from chakram_agent.shards import Shards
from chakram_agent.shared_counters import Metering
from chakram_agent.state import TRAFFIC_LEASE_NS, AgentState, Phase

if TYPE_CHECKING:
    from chakram_agent.metrics_endpoint import AgentMetrics
    from chakram_agent.send_limits import Policy


MAX_QUEUED_ROWS = 4_000_000
"""Limit on records that wait for the controller, about 700 MB."""


class Session:
    """The queue of events for one controller, in order.

    The queue never drops records. It keeps only the last of consecutive progress
    reports.

    Attributes:
        name: Name of the session.
        ended: Why the agent ended the session. None while the session is open.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.ended: str | None = None
        self._events: list[AgentEvent] = []
        self._rows = 0
        self._arrived = asyncio.Event()

    def put(self, event: AgentEvent) -> bool:
        """Queue an event, and return False if too many records are in the queue."""
        if (
            isinstance(event, Progress)
            and self._events
            and isinstance(self._events[-1], Progress)
        ):
            self._events[-1] = event
        else:
            self._events.append(event)
        if isinstance(event, RecordBatch):
            self._rows += len(event.rows)
        self._arrived.set()
        return self._rows <= MAX_QUEUED_ROWS

    def end(self, reason: str) -> None:
        """End the stream of events after all queued events."""
        self.ended = reason
        self._arrived.set()

    async def take(self) -> list[AgentEvent]:
        """Wait for events and return them, or an empty list after the session's end."""
        while not self._events and self.ended is None:
            self._arrived.clear()
            await self._arrived.wait()
        events, self._events, self._rows = self._events, [], 0
        return events


# A plan lists plug-in packages with their versions, but contains no code. The agent
# compares these packages with the packages on its host.

_REGISTRIES = {each.noun: each for each in (ALGORITHMS, CONTROLS)}


def check_plug_ins(plan: AgentPlan) -> None:
    """Refuse a plan if its plug-ins are missing on this host or have other versions.

    Raises:
        PlugInError: If a plug-in or its version is missing. The error names the package
            to install.
    """
    where = f"plan {plan.run_id}: agent {plan.agent}"
    for each in plan.plug_ins:
        registry = _REGISTRIES.get(each.noun)
        if registry is None:
            raise PlugInError(
                where,
                f"plug-in {each.name[:60]!r} has the unknown type {each.noun[:60]!r} "
                f"(known: {', '.join(_REGISTRIES)})",
            )
        registry.check_package(each.name, each.package, where=where)


log = logging.getLogger(__name__)

TICK_S = 0.05
LOOP_STALL_NS = 300_000_000
SNAPSHOT_S = 1.0
STOP_TIMEOUT_S = 3.0
"""Longest time to wait for shards to stop. The agent kills a slow shard earlier."""


@dataclass(eq=False)
class Agent:
    """The agent of a host, which runs one plan at a time.

    Attributes:
        policy: Limits on destinations and rate.
        tasks: Task group for the tasks of shards.
        servers: Fork servers, which start the shards.
        pin: Whether to pin each shard to one core.
        traffic_lease_ns: Longest time without a heartbeat while there is traffic.
        idle_lease_ns: Longest time without a controller. If None, there is no limit.
        abandoned: Event that the agent sets after *idle_lease_ns* without a controller.
        metrics: Endpoint that gets the counters once a second. If it is None, only the
            controller gets them.
        stalls: Meter for stalls of the event loop.
        ended_session: Name of the last session that ended. Empty if none has ended.
        ended_reason: Why *ended_session* ended.
    """

    policy: Policy
    tasks: asyncio.TaskGroup
    servers: ForkServers
    _: KW_ONLY
    pin: bool = False
    traffic_lease_ns: int = TRAFFIC_LEASE_NS
    idle_lease_ns: int | None = None
    abandoned: asyncio.Event | None = None
    metrics: AgentMetrics | None = None
    metering: Metering = field(default_factory=Metering)
    _plan: AgentPlan | None = None
    _host_counters: dict[str, int] = field(default_factory=dict)
    _session: Session | None = None
    _jobs: tuple[str, ...] = ()
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._had_controller_ns = monotonic_ns()
        self.state = AgentState(traffic_lease_ns=self.traffic_lease_ns)
        self.stalls = StallMeter(monotonic_ns())
        self.ended_session = self.ended_reason = ""
        self._shards = Shards(
            self.policy,
            self.tasks,
            self.metering,
            self.servers,
            pin=self.pin,
            dispatch=self._dispatch,
            tell=self._tell,
        )

    # ---- requests from the controller ------------------------------------------------

    async def attach(self, session: str, controller: str) -> Session:
        """Open a session for a controller.

        Raises:
            AgentError: If another controller has a session.
        """
        if self.state.session is None:
            # If the agent has just lost its controller, wait for the end of the run.
            await self._wait_until(lambda: self.state.phase is Phase.IDLE)
        self._dispatch(
            events.Attach(session=session, controller=controller, now_ns=monotonic_ns())
        )
        self._session = Session(session)
        self._tell(PhaseChanged(time_ns=monotonic_ns(), phase=self.phase_name))
        log.info("session started session=%s controller=%s", session, controller)
        return self._session

    def heartbeat(self, session: str, jobs: Sequence[str] = ()) -> None:
        """Record a controller heartbeat, with the jobs that may begin iterations.

        Raises:
            AgentError: If the session has ended.
        """
        self._dispatch(events.Heartbeat(session=session, now_ns=monotonic_ns()))
        if (*jobs,) != self._jobs:
            self._jobs = (*jobs,)
            self._shards.choose(jobs)

    def detach(self, session: str) -> None:
        """Record that the controller's stream has ended."""
        self._dispatch(events.Detach(session=session))

    async def prepare(self, session: str, plan: AgentPlan) -> Bindings:
        """Start the shards of *plan* and wait until they have opened all ports.

        Returns:
            The ends of queue pairs on RDMA NICs.

        Raises:
            ChakramError: If the agent refuses the plan or cannot open a port.
        """
        check_plug_ins(plan)
        limited, notes = self.policy.limit(plan)
        shards = len(limited.shard_numbers())
        event = events.Prepare(
            session=session,
            run_id=plan.run_id,
            shards=shards,
            goes_on=plan.goes_on(),
        )
        if self.state.phase is Phase.IDLE:
            self._plan = limited
            self._shards.open(limited)
        try:
            self._dispatch(event)
        except ChakramError:
            if self.state.phase is Phase.IDLE:
                self._shards.close()
            raise
        for note in notes:
            self._tell(LogLine(time_ns=monotonic_ns(), level="warning", text=note))
        await self._wait_until(
            lambda: self.state.phase not in (Phase.PREPARING, Phase.DRAINING),
            timeout_s=None,
        )
        if self.state.phase is not Phase.PREPARED:
            raise self._shards.failure or AgentError(
                f"plan {plan.run_id}", self.state.reason or "it was not prepared"
            )
        return Bindings(bound=tuple(self._shards.bound))

    async def connect(self, session: str, peers: Peers) -> None:
        """Connect the queue pairs that have an end on an RDMA NIC.

        Raises:
            ChakramError: If there is no prepared plan, or a queue pair cannot be
                connected.
        """
        self._dispatch(events.Connect(session=session))
        self._shards.connect(peers)
        await self._wait_until(
            lambda: self.state.phase is not Phase.PREPARED or self.state.is_connected,
            timeout_s=None,
        )
        await self._wait_until(
            lambda: self.state.phase is not Phase.DRAINING, timeout_s=None
        )
        if self.state.phase is not Phase.PREPARED:
            raise self._shards.failure or AgentError(
                "queue pairs", self.state.reason or "they were not connected"
            )

    def arm(self, session: str, start_ns: int, jobs: Sequence[str] = ()) -> None:
        """Schedule the start of *jobs* at *start_ns*. If *jobs* is empty, start all.

        Raises:
            AgentError: If *start_ns* is in the past or too far in the future.
            UnexpectedEvent: If there is no prepared plan.
        """
        self._dispatch(
            events.Arm(session=session, start_ns=start_ns, now_ns=monotonic_ns())
        )
        self._jobs = (*jobs,)
        if jobs:
            self._shards.choose(jobs)

    async def abort(self, reason: str) -> None:
        """End the traffic and wait until it has ended."""
        self._dispatch(events.Abort(reason=reason))
        await self._wait_until(lambda: self.state.phase in (Phase.IDLE, Phase.FAILED))

    async def reset(self, session: str) -> None:
        """Discard the run and return to the idle phase.

        Raises:
            UnexpectedEvent: If the run has not ended.
        """
        self._dispatch(events.Reset(session=session))
        await self._wait_until(lambda: self.state.phase is Phase.IDLE)

    async def keep_time(self) -> None:
        """Renew the shards' lease, check deadlines and publish counters in a loop.

        If this loop stalls for too long, the shards stop sending.
        """
        next_snapshot_s = 0.0
        has_waited = False
        while True:
            before_ns = monotonic_ns()
            await asyncio.sleep(TICK_S)
            now_ns = monotonic_ns()
            self.stalls.alive(now_ns)
            if not self._shards.renew_lease(now_ns):
                self._dispatch(events.Abort(reason=LEASE_SENTENCE))
            if now_ns - before_ns > LOOP_STALL_NS and not has_waited:
                # Heartbeats may be queued, so handle them before deadlines. Do not skip
                # the deadlines twice in succession, because many stalls could otherwise
                # postpone them forever.
                has_waited = True
                continue
            has_waited = False
            self._check_controller(now_ns)
            if now_ns >= self.state.next_deadline_ns():
                self._dispatch(events.Tick(now_ns=now_ns))
            if now_ns / 1e9 >= next_snapshot_s:
                next_snapshot_s = now_ns / 1e9 + SNAPSHOT_S
                self._tell_counters()

    def saw_controller(self) -> None:
        """Renew the idle lease, even if no session is open.

        A controller may wait for agents on other hosts, or predict a run, for minutes.
        """
        self._had_controller_ns = monotonic_ns()

    def _check_controller(self, now_ns: int) -> None:
        """Set ``abandoned`` if the agent has had no controller for too long."""
        if self.state.session is not None:
            self._had_controller_ns = now_ns
        lease_ns = self.idle_lease_ns
        if lease_ns is None or self.abandoned is None or self.abandoned.is_set():
            return
        if now_ns - self._had_controller_ns >= lease_ns:
            log.warning("no controller for %s: ending", format_time(lease_ns))
            self.abandoned.set()

    async def shut_down(self, reason: str) -> None:
        """End the run and the session before the agent exits."""
        await self.abort(reason)
        if self._session is not None:
            self._session.end(reason)

    @property
    def phase_name(self) -> str:
        """Name of the current phase."""
        return self.state.phase.name

    # ---- instructions ----------------------------------------------------------------

    def _dispatch(self, event: events.Event) -> None:
        before = self.state.phase
        instructions = self.state.handle(event)
        phase = self.state.phase
        if phase is not before:
            log.info("phase changed phase=%s run_id=%s", phase.name, self.state.run_id)
            self._tell(PhaseChanged(time_ns=monotonic_ns(), phase=phase.name))
        for instruction in instructions:
            self._carry_out(instruction)
        self._changed.set()

    def _carry_out(self, instruction: events.Instruction) -> None:
        match instruction:
            case events.StartShards():
                self._start_shards()
            case events.ArmShards(start_ns=start_ns):
                self._shards.arm(start_ns)
            case events.StopShards():
                self._shards.stop()
            case events.EndSession(session=name, reason=reason):
                self._end_session(name, reason)
            case events.ReportFinished():
                self._tell(self._shards.counters())
                self._tell_host()
                self._tell(Finished(time_ns=monotonic_ns()))
            case events.ReportFailed(reason=reason):
                self._tell(
                    Failed(
                        time_ns=monotonic_ns(),
                        reason=reason,
                        waiting_for=tuple(self._shards.waiting_for),
                    )
                )
            case events.Release():
                self._plan = None
                self._shards.forget()

    def _start_shards(self) -> None:
        plan = self._plan
        if plan is None:
            raise UnexpectedEvent("agent", "there is no plan to start shards for")
        self._host_counters = read_host_counters(plan.ports)
        self.metering.begin(plan)
        if self.metrics is not None:
            self.metrics.begin(plan)
        self._shards.start(plan)

    def _tell_host(self) -> None:
        """Report the increase of the host counters since the start of the shards."""
        if self._plan is not None:
            counts = grown(self._host_counters, read_host_counters(self._plan.ports))
            counted = tuple(counts.items())
            self._tell(HostCounters(time_ns=monotonic_ns(), counts=counted))

    def _end_session(self, name: str, reason: str) -> None:
        session = self._session
        if session is not None and session.name == name:
            # Operators look in the log for the cause of an interrupted run.
            level = logging.INFO if self.state.phase is Phase.IDLE else logging.WARNING
            log.log(level, "session ended session=%s reason=%s", name, reason)
            session.end(reason)
            self.ended_session, self.ended_reason = name, reason
            self._session = None

    # ---- reports to the controller ---------------------------------------------------

    def _tell(self, event: AgentEvent) -> bool:
        return self._session is None or self._session.put(event)

    def _tell_counters(self) -> None:
        if self._shards.are_running() or self.metrics is not None:
            counters = self._shards.counters()
            if self.metrics is not None:
                # Prometheus counters must not restart at 0, so add up all runs.
                totals = self.metering.totals()
                self.metrics.update(counters, self.metering.rows(), totals=totals)
            self._tell(counters)

    async def _wait_until(
        self, condition: Callable[[], bool], *, timeout_s: float | None = STOP_TIMEOUT_S
    ) -> None:
        """Wait up to *timeout_s* for *condition*. Callers must check the condition."""
        try:
            async with asyncio.timeout(timeout_s):
                while not condition():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            log.warning("wait timed out phase=%s", self.phase_name)
