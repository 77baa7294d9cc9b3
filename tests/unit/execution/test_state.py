"""The state machine of a run: decisions on each event."""

from __future__ import annotations

import pytest

from chakram.execution.state import (
    Abort,
    AbortAgent,
    AgentArmed,
    AgentFailed,
    AgentFinished,
    AgentLost,
    AgentPrepared,
    AgentProgress,
    AgentStopped,
    ArmAgents,
    Begin,
    ControllerState,
    Finish,
    Phase,
    PrepareAgent,
    ReleaseAgent,
    Repeat,
    Tick,
)
from chakram.foundation.errors import UnexpectedEvent

SECOND_NS = 10**9


def running(*agents: str, hang_timeout_ns: int = 30 * SECOND_NS) -> ControllerState:
    state = ControllerState(hang_timeout_ns=hang_timeout_ns)
    state.handle(Begin(agents=agents))
    for agent in agents:
        state.handle(AgentPrepared(agent=agent))
    for agent in agents:
        state.handle(AgentArmed(agent=agent))
    assert state.phase is Phase.RUNNING
    return state


def test_a_run_is_prepared_armed_and_finished_by_all_agents() -> None:
    state = ControllerState(hang_timeout_ns=SECOND_NS)
    assert state.handle(Begin(agents=("a", "b"))) == [
        PrepareAgent(agent="a"),
        PrepareAgent(agent="b"),
    ]
    assert state.handle(AgentPrepared(agent="b")) == []
    assert state.handle(AgentPrepared(agent="a")) == [ArmAgents(agents=("a", "b"))]
    assert state.handle(AgentArmed(agent="a")) == []
    assert state.handle(AgentArmed(agent="b")) == []
    assert state.handle(AgentFinished(agent="a")) == []
    assert state.handle(AgentFinished(agent="b")) == [
        ReleaseAgent(agent="a"),
        ReleaseAgent(agent="b"),
    ]
    assert state.phase is Phase.ENDING
    assert state.check() == []


def test_an_agent_may_finish_before_the_last_one_answers_that_it_is_armed() -> None:
    state = ControllerState(hang_timeout_ns=SECOND_NS)
    state.handle(Begin(agents=("a", "b")))
    for agent in ("a", "b"):
        state.handle(AgentPrepared(agent=agent))
    state.handle(AgentArmed(agent="a"))
    finished = AgentFinished(agent="a")
    for event in (finished, finished, AgentFinished(agent="unknown")):
        assert state.handle(event) == []
    assert state.handle(AgentArmed(agent="b")) == [Repeat(event=finished)]
    assert state.phase is Phase.RUNNING


def ending(*agents: str) -> ControllerState:
    """Return a run whose work is done, with pending last records."""
    state = running(*agents)
    for agent in agents:
        state.handle(AgentFinished(agent=agent))
    assert state.phase is Phase.ENDING
    return state


def test_run_ends_when_all_agents_have_sent_their_last_records() -> None:
    state = ending("a", "b")
    assert state.check() == []
    assert state.handle(Tick(now_ns=10**15)) == []
    assert state.handle(AgentStopped(agent="b")) == []
    assert state.handle(AgentStopped(agent="a")) == [Finish(reason=None)]
    assert state.phase is Phase.DONE
    assert state.check() == []


@pytest.mark.parametrize("trouble", [AgentFailed, AgentLost])
def test_problems_after_the_work_do_not_fail_the_run(
    trouble: type[AgentFailed | AgentLost],
) -> None:
    state = ending("a", "b")
    assert state.handle(trouble(agent="a", reason="trouble")) == []
    # The release of a lost agent fails, and reports which records are missing.
    if trouble is AgentLost:
        assert state.handle(AgentStopped(agent="a")) == []
    assert state.handle(AgentStopped(agent="b")) == [Finish(reason=None)]


def test_an_abort_while_agents_are_released_ends_the_run_early() -> None:
    state = ending("a")
    stop = state.handle(Abort(reason="interrupted", interrupted=True))
    assert stop == [AbortAgent(agent="a", reason="interrupted")]
    assert state.handle(AgentStopped(agent="a")) == [
        Finish(reason="interrupted", interrupted=True)
    ]


def test_a_failed_agent_stops_all_and_its_reason_is_kept() -> None:
    state = running("a", "b")
    stop = state.handle(AgentFailed(agent="a", reason="queue pair gave up"))
    assert [type(each) for each in stop] == [AbortAgent, AbortAgent]
    state.handle(AgentFailed(agent="b", reason="aborted"))
    assert state.handle(AgentStopped(agent="a")) == [
        Finish(reason="agent a: queue pair gave up")
    ]


def test_run_does_not_wait_for_a_lost_agent() -> None:
    state = running("a", "b")
    assert state.handle(AgentLost(agent="a", reason="connection closed")) == [
        AbortAgent(agent="b", reason="agent a: connection closed")
    ]
    assert state.handle(AgentStopped(agent="b")) == [
        Finish(reason="agent a: connection closed")
    ]


def test_the_last_agent_lost_ends_the_run_at_once() -> None:
    state = running("a")
    assert state.handle(AgentLost(agent="a", reason="connection closed")) == [
        Finish(reason="agent a: connection closed")
    ]
    assert state.phase is Phase.FAILED


def test_stalled_run_names_the_waiting_ranks() -> None:
    state = running("a", hang_timeout_ns=5 * SECOND_NS)
    state.handle(Tick(now_ns=0))
    state.handle(
        AgentProgress(
            agent="a",
            now_ns=SECOND_NS,
            counter=7,
            iterations=1,
            waiting_for=("rank 0 waits for rank 1",),
        )
    )
    assert state.handle(Tick(now_ns=5 * SECOND_NS)) == []
    (stop,) = state.handle(Tick(now_ns=6 * SECOND_NS))
    assert isinstance(stop, AbortAgent)
    assert stop.reason == "no progress for 5 s: rank 0 waits for rank 1"


@pytest.mark.parametrize(("count", "end"), [(4, "4 waits"), (5, "; and 1 more")])
def test_four_waiting_ranks_are_named(count: int, end: str) -> None:
    state = running("a", hang_timeout_ns=1)
    waiting = tuple(f"rank {number} waits" for number in range(1, count + 1))
    state.handle(
        AgentProgress(agent="a", now_ns=0, counter=7, iterations=1, waiting_for=waiting)
    )
    (stop,) = state.handle(Tick(now_ns=1))
    assert isinstance(stop, AbortAgent)
    assert stop.reason.endswith(end)
    assert stop.reason.count("waits") == 4


def test_failure_names_foreign_packets() -> None:
    """Who sends behind a NAT fails; who knows the addresses is another agent."""
    state = running("a", "b")
    state.handle(
        AgentProgress(
            agent="b", now_ns=1, counter=0, iterations=0, foreign=("came from x",)
        )
    )
    state.handle(AgentFailed(agent="a", reason="no ACK"))
    state.handle(AgentStopped(agent="a"))
    assert state.handle(AgentStopped(agent="b")) == [
        Finish(reason="agent a: no ACK; came from x")
    ]


def test_progress_of_any_agent_is_progress() -> None:
    state = running("a", "b", hang_timeout_ns=5 * SECOND_NS)
    for second in range(20):
        now_ns = second * SECOND_NS
        state.handle(
            AgentProgress(agent="b", now_ns=now_ns, counter=second, iterations=0)
        )
        state.handle(AgentProgress(agent="a", now_ns=now_ns, counter=3, iterations=0))
        assert state.handle(Tick(now_ns=now_ns)) == []


def test_iterations_count_when_all_agents_have_done_them() -> None:
    state = running("a", "b")
    state.handle(AgentProgress(agent="a", now_ns=1, counter=1, iterations=5))
    assert state.iterations == 0
    state.handle(AgentProgress(agent="b", now_ns=1, counter=1, iterations=2))
    assert state.iterations == 2


def test_interrupt_is_distinguished_from_a_failure() -> None:
    state = running("a")
    state.handle(Abort(reason="interrupted", interrupted=True))
    assert state.handle(AgentStopped(agent="a")) == [
        Finish(reason="interrupted", interrupted=True)
    ]


def test_an_abort_before_the_beginning_ends_the_run() -> None:
    state = ControllerState(hang_timeout_ns=SECOND_NS)
    assert state.handle(Abort(reason="no")) == [Finish(reason="no")]


def test_a_refused_event_changes_nothing() -> None:
    state = ControllerState(hang_timeout_ns=SECOND_NS)
    for event in (AgentPrepared(agent="a"), AgentFinished(agent="a"), Begin(agents=())):
        with pytest.raises(UnexpectedEvent):
            state.handle(event)
        assert state.phase is Phase.IDLE
    state = running("a")
    with pytest.raises(UnexpectedEvent, match="not waited for"):
        state.handle(AgentFinished(agent="b"))
    assert state.phase is Phase.RUNNING


def failed_after(*ticks: Tick) -> str:
    """Return the reason of a run whose agent a fails after some ticks."""
    state = running("a", "b", "c")
    state.handle(AgentFinished(agent="c"))
    for tick in ticks:
        state.handle(tick)
    state.handle(AgentFailed(agent="a", reason="gave up"))
    return state.reason or ""


def tick(seconds: float, **heard_s: float) -> Tick:
    return Tick(
        now_ns=round(seconds * SECOND_NS),
        heard_ns={agent: round(at * SECOND_NS) for agent, at in heard_s.items()},
    )


def test_an_agent_that_sends_nothing_is_named_before_its_victim() -> None:
    assert failed_after(tick(5, a=5, b=1, c=1), tick(5.5, a=5, b=1, c=1)) == (
        "agent b has sent nothing to the controller for 4.5 s: is it suspended, or is "
        "its host down?; agent a: gave up"
    )
    # Counters come once a second.
    assert failed_after(tick(5, a=5, b=3), tick(5.5, a=5, b=3.5)) == "agent a: gave up"


def test_controller_blames_no_agent_after_its_own_stall() -> None:
    heard = {"a": 1.0, "b": 1.0}
    assert failed_after(tick(1, **heard), tick(9, **heard)) == "agent a: gave up"


def test_stall_of_the_controller_does_not_blame_the_agent() -> None:
    state = running("a", "b")
    reason = "the controller stalled for 2.0 s"
    state.handle(AgentLost(agent="a", reason=reason, controller_stalled=True))
    assert state.reason == reason
