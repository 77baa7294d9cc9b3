"""The controller's state machine keeps its invariants with any events."""

from __future__ import annotations

import contextlib

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from chakram.execution.state import (
    Abort,
    AgentArmed,
    AgentFailed,
    AgentFinished,
    AgentLost,
    AgentPrepared,
    AgentProgress,
    AgentStopped,
    Begin,
    ControllerState,
    Event,
    Finish,
    Phase,
    Tick,
)
from chakram.foundation.errors import UnexpectedEvent

AGENTS = ("a", "b", "c")
agents = st.sampled_from(AGENTS)


class AnyOrder(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.state = ControllerState(hang_timeout_ns=1000)
        self.now_ns = 0
        self.finishes = 0

    def handle(self, event: Event) -> None:
        before = self.state.phase
        try:
            instructions = self.state.handle(event)
        except UnexpectedEvent:
            assert self.state.phase is before
            return
        self.finishes += sum(isinstance(each, Finish) for each in instructions)

    @rule(names=st.sets(agents, min_size=1))
    def begin(self, names: set[str]) -> None:
        self.handle(Begin(agents=tuple(sorted(names))))

    @rule(
        kind=st.sampled_from([AgentPrepared, AgentArmed, AgentFinished, AgentStopped]),
        agent=agents,
    )
    def answer(self, kind: type[AgentPrepared], agent: str) -> None:
        self.handle(kind(agent=agent))

    @rule(kind=st.sampled_from([AgentFailed, AgentLost]), agent=agents)
    def trouble(self, kind: type[AgentFailed], agent: str) -> None:
        self.handle(kind(agent=agent, reason="trouble"))

    @rule(agent=agents, counter=st.integers(0, 5))
    def progress(self, agent: str, counter: int) -> None:
        self.handle(
            AgentProgress(
                agent=agent, now_ns=self.now_ns, counter=counter, iterations=0
            )
        )

    @rule(step_ns=st.integers(0, 600))
    def tick(self, step_ns: int) -> None:
        self.now_ns += step_ns
        self.handle(Tick(now_ns=self.now_ns))

    @rule()
    def abort(self) -> None:
        self.handle(Abort(reason="stop"))

    @rule()
    def abort_and_all_answer(self) -> None:
        """Abort works from every phase: the run ends once all agents answered."""
        self.handle(Abort(reason="stop"))
        for agent in AGENTS:
            with contextlib.suppress(UnexpectedEvent):
                self.handle(AgentStopped(agent=agent))
        assert self.state.phase in (Phase.DONE, Phase.FAILED)

    @invariant()
    def holds(self) -> None:
        assert self.state.check() == []
        over = self.state.phase in (Phase.DONE, Phase.FAILED)
        assert self.finishes == (1 if over else 0)


TestAnyOrder = AnyOrder.TestCase
