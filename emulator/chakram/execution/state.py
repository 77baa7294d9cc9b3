"""State machine of a run: takes events, returns instructions.

::

    IDLE --Begin--> PREPARING --all prepared--> ARMING --all armed--> RUNNING
    RUNNING --all finished--> ENDING --every agent stopped or lost--> DONE
    PREPARING ... RUNNING --AgentFailed, AgentLost, hang--> STOPPING
    PREPARING ... ENDING --Abort--> STOPPING
    STOPPING --every agent stopped or lost--> FAILED

In ENDING, the work is done, and agents deliver their last records. Before ENDING, ranks
that have finished still answer retransmissions, and background jobs may continue.

The state machine only decides. ``chakram.execution.session`` prepares, arms and aborts
agents and turns their answers into events. A refused event raises ``UnexpectedEvent``
and changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto

from chakram.foundation.errors import UnexpectedEvent

_FOREIGN_NAMED = 2
"""Maximum number of reported sentences about unexpected packets."""
_SILENT_NAMED = 4
_LATE_TICK_NS = 1_000_000_000

SILENT_NS = 2_500_000_000
"""Time after which an agent counts as silent. Agents send counters every second."""


class Phase(Enum):
    """Phase of a run."""

    IDLE = auto()
    PREPARING = auto()
    ARMING = auto()
    RUNNING = auto()
    ENDING = auto()
    STOPPING = auto()
    DONE = auto()
    FAILED = auto()


_OVER = frozenset({Phase.DONE, Phase.FAILED})


# ---- events ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """All agents of the run are connected."""

    agents: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _OfAgent:
    """An event from, or an instruction for, one agent."""

    agent: str


class AgentPrepared(_OfAgent):
    """An agent has accepted its plan and opened its ports."""


class AgentArmed(_OfAgent):
    """An agent waits for the start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentProgress(_OfAgent):
    """An agent reports the progress of its ranks.

    ``counter`` grows whenever a message or an iteration ends. ``iterations`` is the
    number of iterations that all of its ranks have finished. ``waiting_for`` states for
    each unfinished rank what blocks it. ``foreign`` lists queue pairs that received
    packets from unexpected addresses only.
    """

    now_ns: int
    counter: int
    iterations: int
    waiting_for: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()


class AgentFinished(_OfAgent):
    """All foreground ranks of an agent have finished and delivered their records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentFailed(_OfAgent):
    """An agent cannot continue."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentLost(_OfAgent):
    """The connection to an agent is lost, perhaps because the controller stalled."""

    reason: str
    controller_stalled: bool = False


class AgentStopped(_OfAgent):
    """An agent has stopped its traffic as instructed and delivered its records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Abort:
    """The user or a limit ends the run."""

    reason: str
    interrupted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """Time has passed. ``heard_ns`` is the time of the last message of each agent."""

    now_ns: int
    heard_ns: Mapping[str, int] = field(default_factory=dict)


Event = (
    Begin
    | AgentPrepared
    | AgentArmed
    | AgentProgress
    | AgentFinished
    | AgentFailed
    | AgentLost
    | AgentStopped
    | Abort
    | Tick
)


# ---- instructions ------------------------------------------------------------------


class PrepareAgent(_OfAgent):
    """Send an agent its plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmAgents:
    """Choose a common start time and send it to all agents."""

    agents: tuple[str, ...]


class ReleaseAgent(_OfAgent):
    """Stop the traffic of an agent after a complete run, and read its last records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortAgent(_OfAgent):
    """Stop the traffic of an agent."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeat:
    """Instruction to handle an event again that arrived before its phase."""

    event: AgentFinished


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """The run is over. ``reason`` is None if the run is complete."""

    reason: str | None
    interrupted: bool = False


Instruction = PrepareAgent | ArmAgents | ReleaseAgent | AbortAgent | Repeat | Finish


@dataclass(slots=True)
class ControllerState:
    """State machine that decides the next steps of a run.

    Args:
        hang_timeout_ns: Time without progress of any agent after which the run is hung.
    """

    hang_timeout_ns: int
    phase: Phase = Phase.IDLE
    reason: str | None = None
    interrupted: bool = False
    iterations: int = 0
    _waiting: set[str] = field(default_factory=set)
    _live: set[str] = field(default_factory=set)
    _early: set[str] = field(default_factory=set)
    _counters: dict[str, int] = field(default_factory=dict)
    _iterations_of: dict[str, int] = field(default_factory=dict)
    _waiting_for: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _foreign: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _progress_ns: int | None = None
    _silent_ns: dict[str, int] = field(default_factory=dict)
    _tick_ns: int | None = None

    def handle(self, event: Event) -> list[Instruction]:
        """Take an event, and return the instructions that follow.

        Raises:
            UnexpectedEvent: If the phase does not allow the event. The state is
                unchanged.
        """
        match event:
            case Begin() if self.phase is Phase.IDLE:
                return self._begin(event)
            case AgentPrepared() if self.phase is Phase.PREPARING:
                return self._next_phase(event.agent, Phase.ARMING)
            case AgentArmed() if self.phase is Phase.ARMING:
                return self._next_phase(event.agent, Phase.RUNNING)
            case AgentFinished() if self.phase is Phase.RUNNING:
                return self._next_phase(event.agent, Phase.ENDING)
            case AgentFinished() if self.phase is Phase.ARMING:
                # All agents are armed, but the answer of one agent may still be in
                # flight.
                self._early |= {event.agent} & self._live
                return []
            case AgentProgress() if self._known(event.agent):
                return self._progress(event)
            case Tick():
                return self._tick(event)
            case AgentFailed() if self._known(event.agent):
                return self._failed(event)
            case AgentLost() if self._known(event.agent):
                return self._lost(event)
            case AgentStopped() if self.phase in (Phase.ENDING, Phase.STOPPING):
                return self._gone(event.agent)
            case Abort() if self.phase not in _OVER:
                self.interrupted = self.interrupted or event.interrupted
                return self._stop(event.reason)
            case _ if self.phase in (Phase.ENDING, Phase.STOPPING, *_OVER):
                # Agents may still send events for a moment after the end of a run.
                return []
            case _:
                raise UnexpectedEvent(
                    f"controller in phase {self.phase.name}", f"got {event}"
                )

    def check(self) -> list[str]:
        """Return the invariants that are violated."""
        problems: list[str] = []
        if not self._waiting <= self._live:
            problems.append(f"waits for dead agents {self._waiting - self._live}")
        if self.phase is Phase.FAILED and self.reason is None:
            problems.append("failed without a reason")
        if self.phase is Phase.DONE and self.reason is not None:
            problems.append(f"done, but: {self.reason}")
        if self.phase not in (Phase.IDLE, *_OVER) and not self._waiting:
            problems.append(f"{self.phase.name} waits for no agent")
        return problems

    def _known(self, agent: str) -> bool:
        return agent in self._live and self.phase not in _OVER

    def _begin(self, event: Begin) -> list[Instruction]:
        if not event.agents:
            raise UnexpectedEvent("controller", "a run without agents")
        self.phase = Phase.PREPARING
        self._live = set(event.agents)
        self._waiting = set(event.agents)
        return [PrepareAgent(agent=agent) for agent in event.agents]

    def _next_phase(self, agent: str, phase: Phase) -> list[Instruction]:
        """Record that *agent* is ready. Enter *phase* after the last agent."""
        if agent not in self._waiting:
            raise UnexpectedEvent(
                f"controller in phase {self.phase.name}",
                f"agent {agent} is not waited for",
            )
        self._waiting.discard(agent)
        if self._waiting:
            return []
        self.phase = phase
        self._waiting = set(self._live)
        if phase is Phase.ENDING:
            return [ReleaseAgent(agent=agent) for agent in sorted(self._live)]
        if phase is Phase.ARMING:
            return [ArmAgents(agents=tuple(sorted(self._live)))]
        early = [AgentFinished(agent=each) for each in sorted(self._early)]
        return [Repeat(event=each) for each in early]

    def _progress(self, event: AgentProgress) -> list[Instruction]:
        self._waiting_for[event.agent] = event.waiting_for
        self._foreign[event.agent] = event.foreign
        if event.counter > self._counters.get(event.agent, -1):
            self._counters[event.agent] = event.counter
            self._progress_ns = event.now_ns
        self._iterations_of[event.agent] = event.iterations
        if len(self._iterations_of) == len(self._live):
            self.iterations = max(self.iterations, min(self._iterations_of.values()))
        return []

    def _tick(self, event: Tick) -> list[Instruction]:
        if self.phase is not Phase.RUNNING:
            return []
        now_ns, before_ns = event.now_ns, self._tick_ns
        self._tick_ns = now_ns
        # After a stall of the controller, messages of agents are still unread, so an
        # agent is not silent.
        is_late = before_ns is not None and now_ns - before_ns > _LATE_TICK_NS
        self._silent_ns = (
            {}
            if is_late
            else {
                agent: silent_ns
                for agent in sorted(self._waiting)
                if (silent_ns := now_ns - event.heard_ns.get(agent, now_ns))
                >= SILENT_NS
            }
        )
        if self._progress_ns is None:
            self._progress_ns = now_ns
        if now_ns - self._progress_ns < self.hang_timeout_ns:
            return []
        sentences = [
            sentence
            for agent in sorted(self._waiting_for)
            for sentence in self._waiting_for[agent]
        ]
        seconds = self.hang_timeout_ns / 1e9
        listed = "; ".join(sentences[:4]) or "no agent reports what it waits for"
        more = f"; and {len(sentences) - 4} more" if len(sentences) > 4 else ""
        return self._stop(
            self._with_others(f"no progress for {seconds:g} s: {listed}{more}")
        )

    def _failed(self, event: AgentFailed) -> list[Instruction]:
        if self.phase in (Phase.ENDING, Phase.STOPPING):
            return self._gone(event.agent)
        return self._stop(self._with_others(f"agent {event.agent}: {event.reason}"))

    def _with_others(self, reason: str) -> str:
        """Add possible causes at other agents to a reason.

        A suspended agent sends nothing, so its peers fail. Packets may also arrive from
        addresses that the plan does not list. The receiving agent must not accept these
        packets, so the sending agent gets no answer and fails.
        """
        silent = [
            f"agent {agent} has sent nothing to the controller for "
            f"{silent_ns / 1e9:.1f} s: is it suspended, or is its host down?"
            for agent, silent_ns in self._silent_ns.items()
        ]
        sentences = [
            sentence
            for agent in sorted(self._foreign)
            for sentence in self._foreign[agent]
        ]
        return "; ".join((*silent[:_SILENT_NAMED], reason, *sentences[:_FOREIGN_NAMED]))

    def _lost(self, event: AgentLost) -> list[Instruction]:
        if self.phase is Phase.ENDING:
            return []  # its release fails, too, and then reports missing records
        if self.phase is Phase.STOPPING:
            return self._gone(event.agent)
        self._live.discard(event.agent)
        if event.controller_stalled:
            return self._stop(event.reason)
        return self._stop(f"agent {event.agent}: {event.reason}")

    def _stop(self, reason: str) -> list[Instruction]:
        """Begin to end the run early, for *reason* or an earlier reason."""
        if self.phase is Phase.STOPPING:
            return []
        self.reason = reason
        self._waiting = set(self._live) if self.phase is not Phase.IDLE else set()
        if not self._waiting:
            self.phase = Phase.FAILED
            return [Finish(reason=reason, interrupted=self.interrupted)]
        self.phase = Phase.STOPPING
        return [
            AbortAgent(agent=agent, reason=reason) for agent in sorted(self._waiting)
        ]

    def _gone(self, agent: str) -> list[Instruction]:
        """Record that an agent has stopped. The run is over after the last agent."""
        self._waiting.discard(agent)
        return [] if self._waiting else self._over()

    def _over(self) -> list[Instruction]:
        self.phase = Phase.DONE if self.phase is Phase.ENDING else Phase.FAILED
        return [Finish(reason=self.reason, interrupted=self.interrupted)]
