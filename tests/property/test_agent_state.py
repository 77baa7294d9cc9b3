"""The agent's state machine keeps its invariants with any order of events."""

from __future__ import annotations

import copy

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from chakram.foundation.errors import AgentError, UnexpectedEvent
from chakram_agent.events_and_instructions import (
    Abort,
    Arm,
    Attach,
    Connect,
    Detach,
    Event,
    Heartbeat,
    Instruction,
    Prepare,
    Release,
    ReportFailed,
    ReportFinished,
    Reset,
    ShardConnected,
    ShardFailed,
    ShardFinished,
    ShardReady,
    ShardStopped,
    StartShards,
    StopShards,
    Tick,
)
from chakram_agent.state import NEVER, TRAFFIC_LEASE_NS, AgentState, Phase

sessions = st.sampled_from(["s", "t"])
shards = st.integers(0, 2)


class AgentMachine(RuleBasedStateMachine):
    """Throws events at an agent and plays its shell, badly."""

    def __init__(self) -> None:
        super().__init__()
        self.state = AgentState()
        self.now_ns = 0
        self.alive: set[int] = set()
        self.told_to_stop = False

    def throw(self, event: Event) -> list[Instruction]:
        before = copy.deepcopy(self.state)
        try:
            instructions = self.state.handle(event)
        except (UnexpectedEvent, AgentError):
            assert self.state == before
            return []
        for instruction in instructions:
            if isinstance(instruction, StartShards):
                assert not self.alive
                self.alive = set(range(instruction.count))
                self.told_to_stop = False
            elif isinstance(instruction, StopShards):
                self.told_to_stop = True
            elif isinstance(instruction, Release):
                assert not self.alive
            elif isinstance(instruction, ReportFailed):
                assert not self.alive
                assert instruction.reason
            elif isinstance(instruction, ReportFinished):
                assert self.state.phase is Phase.DONE
        return instructions

    @rule(session=sessions)
    def attach(self, session: str) -> None:
        self.throw(Attach(session=session, controller="c", now_ns=self.now_ns))

    @rule(session=sessions)
    def heartbeat(self, session: str) -> None:
        self.throw(Heartbeat(session=session, now_ns=self.now_ns))

    @rule(session=sessions)
    def detach(self, session: str) -> None:
        self.throw(Detach(session=session))

    @rule(session=sessions, count=st.integers(0, 3))
    def prepare(self, session: str, count: int) -> None:
        self.throw(Prepare(session=session, run_id="r", shards=count))

    @rule(session=sessions)
    def connect(self, session: str) -> None:
        self.throw(Connect(session=session))

    @rule(shard=shards)
    def shard_connected(self, shard: int) -> None:
        self.throw(ShardConnected(shard=shard))

    @rule(session=sessions, ahead_ns=st.integers(-5, 10**9))
    def arm(self, session: str, ahead_ns: int) -> None:
        self.throw(
            Arm(session=session, start_ns=self.now_ns + ahead_ns, now_ns=self.now_ns)
        )

    @rule()
    def abort(self) -> None:
        self.throw(Abort(reason="abort"))

    @rule(session=sessions)
    def reset(self, session: str) -> None:
        self.throw(Reset(session=session))

    @rule(shard=shards)
    def shard_ready(self, shard: int) -> None:
        self.throw(ShardReady(shard=shard))

    @rule(shard=shards)
    def shard_finished(self, shard: int) -> None:
        self.throw(ShardFinished(shard=shard))

    @rule(shard=shards)
    def shard_failed(self, shard: int) -> None:
        self.throw(ShardFailed(shard=shard, reason="failed"))

    @rule(shard=shards)
    def shard_stopped(self, shard: int) -> None:
        self.alive.discard(shard)
        self.throw(ShardStopped(shard=shard, reason="stopped"))

    @rule(by_ns=st.integers(0, 2 * TRAFFIC_LEASE_NS))
    def time_goes_by(self, by_ns: int) -> None:
        self.now_ns += by_ns
        self.throw(Tick(now_ns=self.now_ns))

    @rule()
    def the_shell_sleeps_until_the_deadline(self) -> None:
        deadline_ns = self.state.next_deadline_ns()
        if deadline_ns != NEVER:
            self.now_ns = max(self.now_ns, deadline_ns)
            before = (self.state.phase, self.state.session)
            self.throw(Tick(now_ns=self.now_ns))
            assert (self.state.phase, self.state.session) != before

    @invariant()
    def nothing_is_broken(self) -> None:
        assert self.state.check() == []

    @invariant()
    def shards_outlive_no_phase_that_forgets_them(self) -> None:
        if self.state.phase in (Phase.IDLE, Phase.FAILED):
            assert not self.alive

    @invariant()
    def without_a_controller_nobody_sends(self) -> None:
        if self.state.session is None:
            assert not self.alive or self.told_to_stop

    @invariant()
    def an_abort_always_leads_to_an_end(self) -> None:
        state = copy.deepcopy(self.state)
        state.handle(Abort(reason="abort"))
        for shard in sorted(self.alive):
            state.handle(ShardStopped(shard=shard, reason="stopped"))
        assert state.phase in (Phase.IDLE, Phase.FAILED)


AgentMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=30)
TestAgentState = AgentMachine.TestCase
