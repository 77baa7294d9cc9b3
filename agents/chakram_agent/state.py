"""State machine of an agent: takes events, returns instructions.

::

    IDLE --Prepare--> PREPARING --all shards ready--> PREPARED --Arm--> ARMED
    ARMED --start time--> RUNNING --all shards finished--> DONE
    PREPARING ... RUNNING --ShardFailed, ShardStopped--> DRAINING --> FAILED
    PREPARING ... DONE --Abort--> DRAINING --all stopped--> FAILED
    PREPARING ... DONE --controller lost--> DRAINING --all stopped--> IDLE
    PREPARED, DONE --Reset--> DRAINING --all stopped--> IDLE
    FAILED --Reset, controller lost--> IDLE

In DONE, the shards still answer packets from their peers, which may lack
acknowledgments. In DRAINING, the shards stop and send their remaining records. A
session is the time during which one controller uses the agent. It ends with the
controller's stream, or when heartbeats cease.

``chakram_agent.agent`` carries out the instructions and passes the resulting events
back. A refused event raises an error and changes nothing. This module does no I/O and
reads no clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto

from chakram.foundation.errors import AgentError, UnexpectedEvent
from chakram_agent import events_and_instructions as events

NEVER = 2**63 - 1
TRAFFIC_LEASE_NS = 1_500_000_000
"""Longest time without a heartbeat while traffic flows or is about to start."""
QUIET_LEASE_NS = 15_000_000_000
"""Longest time without a heartbeat while there is no traffic.

A controller that plans or writes results may be slow to send heartbeats.
"""
LATEST_START_NS = 3600 * 10**9
"""Longest delay until the start of a run. A longer delay indicates a clock error."""


class Phase(Enum):
    """A phase of the agent."""

    IDLE = auto()
    PREPARING = auto()
    PREPARED = auto()
    ARMED = auto()
    RUNNING = auto()
    DRAINING = auto()
    DONE = auto()
    FAILED = auto()


TRAFFIC = frozenset({Phase.ARMED, Phase.RUNNING})
ACTIVE = frozenset({Phase.PREPARING, Phase.PREPARED, *TRAFFIC})


@dataclass(slots=True)
class AgentState:
    """State of the agent, which decides what the agent does next."""

    phase: Phase = Phase.IDLE
    session: str | None = None
    controller: str = ""
    run_id: str | None = None
    start_ns: int | None = None
    reason: str | None = None
    """Why the run ends early."""
    traffic_lease_ns: int = TRAFFIC_LEASE_NS
    _shards: int = 0
    _live: set[int] = field(default_factory=set)
    _ready: set[int] = field(default_factory=set)
    _is_connecting: bool = False
    _connected: set[int] = field(default_factory=set)
    _finished: set[int] = field(default_factory=set)
    _goes_on: bool = False
    _releasing: bool = False
    """Whether IDLE follows DRAINING, without a report to the controller."""
    _heartbeat_ns: int = 0

    def handle(self, event: events.Event) -> list[events.Instruction]:
        """Handle an event and return the instructions to carry out, in order.

        Raises:
            UnexpectedEvent: If the phase does not allow the event. The state is
                unchanged.
            AgentError: If the session has ended, another controller uses the agent, or
                the request is invalid. The state is unchanged.
        """
        match event:
            case events.Attach():
                return self._attach(event)
            case events.Heartbeat():
                self._require_session(event.session)
                self._heartbeat_ns = max(self._heartbeat_ns, event.now_ns)
                return []
            case events.Detach():
                return self._lost(event.session, "the controller has left")
            case events.Prepare():
                return self._prepare(event)
            case events.Connect():
                return self._connect(event)
            case events.Arm():
                return self._arm(event)
            case events.Abort():
                if self.phase in ACTIVE or self.phase is Phase.DONE:
                    return self._drain(event.reason)
                return []
            case events.Reset():
                return self._reset(event)
            case events.Tick():
                return self._tick(event.now_ns)
            case _:
                return self._shard_event(event)

    @property
    def is_connected(self) -> bool:
        """Whether all shards have connected their queue pairs."""
        return len(self._connected) == self._shards

    def next_deadline_ns(self) -> int:
        """Return when a ``Tick`` may next change the state, or NEVER."""
        deadline_ns = NEVER
        if self.session is not None:
            deadline_ns = self._heartbeat_ns + self._lease_ns()
        if self.phase is Phase.ARMED and self.start_ns is not None:
            deadline_ns = min(deadline_ns, self.start_ns)
        return deadline_ns

    def check(self) -> list[str]:
        """Return sentences about violated invariants, empty if there are none."""
        problems: list[str] = []
        everyone = set(range(self._shards))
        if not self._connected <= self._ready:
            problems.append("a shard connected before it was ready")
        if not self._finished <= self._ready <= everyone:
            problems.append("a shard finished before it was ready")
        if not self._live <= everyone:
            problems.append("a shard runs that was not started")
        if self.phase is Phase.IDLE:
            if self.run_id is not None or self._shards or self.reason is not None:
                problems.append("idle, but has a run")
        elif self.run_id is None:
            problems.append(f"{self.phase.name} without a run")
        if self.session is None and self.phase not in (Phase.IDLE, Phase.DRAINING):
            problems.append(f"{self.phase.name} without a controller")
        if self.phase in ACTIVE and (self._live != everyone or self.reason is not None):
            problems.append(f"{self.phase.name}, but a shard has ended")
        if self.phase in (Phase.PREPARED, *TRAFFIC) and self._ready != everyone:
            problems.append(f"{self.phase.name}, but a shard is not ready")
        if self.phase in TRAFFIC and self.start_ns is None:
            problems.append(f"{self.phase.name} without a start")
        if self.phase is Phase.DONE and self._finished != everyone:
            problems.append("done, but a shard is not")
        if self.phase is Phase.DRAINING and not self._live:
            problems.append("draining without shards")
        if self.phase is Phase.FAILED and (self._live or self.reason is None):
            problems.append("failed with live shards or without a reason")
        return problems

    # ---- controller events -----------------------------------------------------------

    def _attach(self, event: events.Attach) -> list[events.Instruction]:
        if self.session is not None:
            raise AgentError(
                "session",
                f"the agent is in use by {self.controller or 'another controller'}",
                "an agent serves one controller at a time; end the other one",
            )
        if self.phase is not Phase.IDLE:
            raise AgentError(
                "session",
                "the agent is still ending a run whose controller was lost",
                "try again in a second",
            )
        self.session = event.session
        self.controller = event.controller
        self._heartbeat_ns = event.now_ns
        return []

    def _require_session(self, session: str) -> None:
        if session != self.session:
            raise AgentError(
                "session",
                "it has ended"
                if self.session is None
                else "another controller uses it",
                "attach again",
            )

    def _prepare(self, event: events.Prepare) -> list[events.Instruction]:
        self._require_session(event.session)
        if self.phase is not Phase.IDLE:
            raise self._unexpected("prepare", "reset it first")
        if event.shards < 1:
            raise AgentError(f"plan {event.run_id}", "it has no shards")
        self.phase = Phase.PREPARING
        self.run_id = event.run_id
        self._shards = event.shards
        self._goes_on = event.goes_on
        self._live = set(range(event.shards))
        return [events.StartShards(count=event.shards)]

    def _connect(self, event: events.Connect) -> list[events.Instruction]:
        self._require_session(event.session)
        if self.phase is not Phase.PREPARED:
            raise self._unexpected("connect", "prepare it first")
        if self._is_connecting:
            raise self._unexpected("connect", "its queue pairs are connected once")
        self._is_connecting = True
        return []

    def _arm(self, event: events.Arm) -> list[events.Instruction]:
        self._require_session(event.session)
        if self.phase is not Phase.PREPARED:
            raise self._unexpected("arm", "prepare it first")
        if self._is_connecting and not self.is_connected:
            raise self._unexpected("arm", "wait until its queue pairs are connected")
        ahead_ns = event.start_ns - event.now_ns
        if not 0 < ahead_ns <= LATEST_START_NS:
            raise AgentError(
                "start",
                f"{event.start_ns} is {ahead_ns / 1e9:.6f} s from now",
                "choose a start within the next hour of the agent's own clock",
            )
        self.phase = Phase.ARMED
        self.start_ns = event.start_ns
        return [events.ArmShards(start_ns=event.start_ns)]

    def _reset(self, event: events.Reset) -> list[events.Instruction]:
        self._require_session(event.session)
        match self.phase:
            case Phase.IDLE:
                return []
            case Phase.FAILED:
                return self._release()
            case Phase.PREPARED | Phase.DONE:
                self._releasing = True
                return self._drain("reset")
        raise self._unexpected("reset", "abort it first")

    def _lost(self, session: str, reason: str) -> list[events.Instruction]:
        """End the session and the run that it controlled."""
        if session != self.session:
            return []  # the session has ended already
        self.session = None
        self.controller = ""
        ended = events.EndSession(session=session, reason=reason)
        match self.phase:
            case Phase.IDLE:
                return [ended]
            case Phase.FAILED:
                return [ended, *self._release()]
            case Phase.DRAINING:
                self._releasing = True
                return [ended]
        self._releasing = True
        return [*self._drain(reason), ended]

    def _tick(self, now_ns: int) -> list[events.Instruction]:
        if self.session is not None and now_ns - self._heartbeat_ns >= self._lease_ns():
            seconds = self._lease_ns() / 1e9
            return self._lost(
                self.session, f"no heartbeat from the controller for {seconds:g} s"
            )
        if (
            self.phase is Phase.ARMED
            and self.start_ns is not None
            and now_ns >= self.start_ns
        ):
            self.phase = Phase.RUNNING
        return []

    def _lease_ns(self) -> int:
        has_traffic = self.phase in TRAFFIC or (
            self.phase is Phase.DONE and self._goes_on
        )
        return self.traffic_lease_ns if has_traffic else QUIET_LEASE_NS

    # ---- shard events ----------------------------------------------------------------

    def _shard_event(self, event: events.ShardEvent) -> list[events.Instruction]:
        if event.shard not in self._live:
            raise UnexpectedEvent(
                f"agent in phase {self.phase.name}",
                f"got {event}, but that shard is not running",
            )
        if isinstance(event, events.ShardStopped):
            return self._shard_stopped(event)
        if self.phase in (Phase.DRAINING, Phase.DONE):
            return []  # the shard sent this before it received the stop command
        match event:
            case events.ShardReady() if self.phase is Phase.PREPARING:
                self._ready.add(event.shard)
                if len(self._ready) == self._shards:
                    self.phase = Phase.PREPARED
                return []
            case events.ShardConnected() if self.phase is Phase.PREPARED:
                self._connected.add(event.shard)
                return []
            case events.ShardFinished() if self.phase in TRAFFIC:
                self._finished.add(event.shard)
                if len(self._finished) < self._shards:
                    return []
                self.phase = Phase.DONE
                return [events.ReportFinished()]
            case events.ShardFailed():
                return self._drain(event.reason)
        raise UnexpectedEvent(f"agent in phase {self.phase.name}", f"got {event}")

    def _shard_stopped(self, event: events.ShardStopped) -> list[events.Instruction]:
        self._live.discard(event.shard)
        if self.phase in ACTIVE:
            return self._drain(event.reason)
        if self.phase is Phase.DRAINING and not self._live:
            return self._drained()
        return []

    def _drain(self, reason: str) -> list[events.Instruction]:
        self.reason = reason
        if not self._live:
            return self._drained()
        self.phase = Phase.DRAINING
        return [events.StopShards()]

    def _drained(self) -> list[events.Instruction]:
        if self._releasing:
            return self._release()
        self.phase = Phase.FAILED
        return [events.ReportFailed(reason=self.reason or "")]

    def _release(self) -> list[events.Instruction]:
        self.phase = Phase.IDLE
        self.run_id = self.start_ns = self.reason = None
        self._shards = 0
        self._live, self._ready, self._finished = set(), set(), set()
        self._connected = set()
        self._is_connecting = False
        self._releasing = self._goes_on = False
        return [events.Release()]

    def _unexpected(self, asked: str, hint: str) -> UnexpectedEvent:
        return UnexpectedEvent(
            f"agent in phase {self.phase.name}", f"cannot {asked} now", hint
        )
