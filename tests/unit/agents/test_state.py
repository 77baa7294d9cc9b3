from __future__ import annotations

import pytest

from chakram.foundation.errors import AgentError, UnexpectedEvent
from chakram_agent.events_and_instructions import (
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
from chakram_agent.state import (
    NEVER,
    QUIET_LEASE_NS,
    TRAFFIC_LEASE_NS,
    AgentState,
    Phase,
)

SECOND = 10**9
ATTACH = Attach(session="s", controller="c", now_ns=0)
PREPARE = Prepare(session="s", run_id="r", shards=2)
READY = [ShardReady(shard=0), ShardReady(shard=1)]
ARM = Arm(session="s", start_ns=SECOND, now_ns=0)
FINISHED = [ShardFinished(shard=0), ShardFinished(shard=1)]
STOPPED = [
    ShardStopped(shard=0, reason="killed"),
    ShardStopped(shard=1, reason="killed"),
]
WAY: dict[Phase, list[Event]] = {
    Phase.IDLE: [ATTACH],
    Phase.PREPARING: [ATTACH, PREPARE],
    Phase.PREPARED: [ATTACH, PREPARE, *READY],
    Phase.ARMED: [ATTACH, PREPARE, *READY, ARM],
    Phase.RUNNING: [ATTACH, PREPARE, *READY, ARM, Tick(now_ns=SECOND)],
    Phase.DRAINING: [ATTACH, PREPARE, *READY, Abort(reason="x")],
    Phase.DONE: [ATTACH, PREPARE, *READY, ARM, *FINISHED],
    Phase.FAILED: [ATTACH, PREPARE, *READY, Abort(reason="x"), *STOPPED],
}
ACTIVE = [Phase.PREPARING, Phase.PREPARED, Phase.ARMED, Phase.RUNNING]


def handle_all(state: AgentState, events: list[Event]) -> list[Instruction]:
    instructions: list[Instruction] = []
    for event in events:
        instructions += state.handle(event)
        assert state.check() == []
    return instructions


def state_in(phase: Phase) -> AgentState:
    state = AgentState()
    handle_all(state, WAY[phase])
    assert state.phase is phase
    return state


def test_a_run_goes_from_idle_to_done_and_back() -> None:
    state = AgentState()
    assert handle_all(state, [ATTACH, PREPARE]) == [StartShards(count=2)]
    assert handle_all(state, [*READY, ARM]) == [ArmShards(start_ns=SECOND)]
    handle_all(state, [Tick(now_ns=SECOND - 1)])
    assert state.phase is Phase.ARMED
    handle_all(state, [Tick(now_ns=SECOND)])
    assert state.phase is Phase.RUNNING
    assert handle_all(state, FINISHED) == [ReportFinished()]
    assert handle_all(state, [Reset(session="s")]) == [StopShards()]
    assert handle_all(state, STOPPED) == [Release()]
    assert state.phase is Phase.IDLE
    assert state.session == "s"
    assert handle_all(state, [PREPARE]) == [StartShards(count=2)]


@pytest.mark.parametrize("phase", [*ACTIVE, Phase.DONE])
def test_abort_ends_a_run_in_every_phase(phase: Phase) -> None:
    state = state_in(phase)
    assert handle_all(state, [Abort(reason="enough")]) == [StopShards()]
    assert handle_all(state, STOPPED) == [ReportFailed(reason="enough")]
    assert state.phase is Phase.FAILED


@pytest.mark.parametrize("phase", [Phase.IDLE, Phase.DRAINING, Phase.FAILED])
def test_abort_is_no_error_where_nothing_runs(phase: Phase) -> None:
    state = state_in(phase)
    reason = state.reason
    assert handle_all(state, [Abort(reason="enough")]) == []
    assert (state.phase, state.reason) == (phase, reason)


@pytest.mark.parametrize("phase", [*ACTIVE, Phase.DONE])
def test_a_lost_controller_ends_everything(phase: Phase) -> None:
    state = state_in(phase)
    instructions = handle_all(state, [Detach(session="s")])
    assert instructions == [
        StopShards(),
        EndSession(session="s", reason="the controller has left"),
    ]
    assert handle_all(state, STOPPED) == [Release()]
    assert state.phase is Phase.IDLE


@pytest.mark.parametrize("phase", [Phase.ARMED, Phase.RUNNING])
def test_traffic_needs_heartbeats(phase: Phase) -> None:
    state = state_in(phase)
    handle_all(state, [Heartbeat(session="s", now_ns=3 * SECOND)])
    last = 3 * SECOND + TRAFFIC_LEASE_NS
    if phase is Phase.RUNNING:
        assert state.next_deadline_ns() == last
    assert handle_all(state, [Tick(now_ns=last - 1)]) == []
    stop, ended = handle_all(state, [Tick(now_ns=last)])
    assert stop == StopShards()
    assert ended == EndSession(
        session="s", reason="no heartbeat from the controller for 1.5 s"
    )


def test_heartbeat_timeout_is_configurable() -> None:
    state = AgentState(traffic_lease_ns=5 * SECOND)
    handle_all(state, [ATTACH, PREPARE, *READY, ARM, Tick(now_ns=SECOND)])
    assert handle_all(state, [Tick(now_ns=5 * SECOND - 1)]) == []
    assert StopShards() in handle_all(state, [Tick(now_ns=5 * SECOND)])


def test_background_ranks_need_heartbeats() -> None:
    state = AgentState()
    prepare = Prepare(session="s", run_id="r", shards=1, goes_on=True)
    handle_all(state, [ATTACH, prepare, ShardReady(shard=0), ARM])
    handle_all(state, [Tick(now_ns=SECOND), ShardFinished(shard=0)])
    assert state.phase is Phase.DONE
    assert state.next_deadline_ns() == TRAFFIC_LEASE_NS
    assert StopShards() in handle_all(state, [Tick(now_ns=4 * SECOND)])
    handle_all(state, [ShardStopped(shard=0, reason=None)])
    handle_all(state, [ATTACH])
    assert state.next_deadline_ns() == QUIET_LEASE_NS


@pytest.mark.parametrize("phase", [Phase.IDLE, Phase.PREPARED, Phase.DONE])
def test_without_traffic_the_controller_may_be_slow(phase: Phase) -> None:
    state = state_in(phase)
    assert state.next_deadline_ns() == QUIET_LEASE_NS
    assert handle_all(state, [Tick(now_ns=QUIET_LEASE_NS - 1)]) == []
    handle_all(state, [Tick(now_ns=QUIET_LEASE_NS)])
    assert state.session is None
    assert state.next_deadline_ns() == NEVER


@pytest.mark.parametrize("phase", ACTIVE)
def test_a_shard_that_fails_ends_the_run(phase: Phase) -> None:
    state = state_in(phase)
    failed = ShardFailed(shard=1, reason="the queue pair gave up")
    assert handle_all(state, [failed]) == [StopShards()]
    assert handle_all(state, STOPPED) == [ReportFailed(reason=failed.reason)]


@pytest.mark.parametrize("phase", ACTIVE)
def test_a_shard_that_dies_ends_the_run(phase: Phase) -> None:
    state = state_in(phase)
    assert handle_all(state, [STOPPED[1]]) == [StopShards()]
    assert handle_all(state, [STOPPED[0]]) == [ReportFailed(reason="killed")]


def test_death_of_the_only_shard_needs_no_stop() -> None:
    state = AgentState()
    handle_all(state, [ATTACH, Prepare(session="s", run_id="r", shards=1)])
    assert handle_all(state, [STOPPED[0]]) == [ReportFailed(reason="killed")]


def test_first_reason_is_kept() -> None:
    state = state_in(Phase.RUNNING)
    handle_all(
        state,
        [
            ShardFailed(shard=0, reason="first"),
            ShardFailed(shard=1, reason="second"),
            Abort(reason="third"),
        ],
    )
    assert handle_all(state, STOPPED) == [ReportFailed(reason="first")]


def test_a_shard_that_dies_after_the_work_is_no_failure() -> None:
    state = state_in(Phase.DONE)
    assert handle_all(state, STOPPED) == []
    assert state.phase is Phase.DONE
    assert handle_all(state, [Reset(session="s")]) == [Release()]


def test_a_controller_lost_after_a_failure_leaves_the_agent_idle() -> None:
    state = state_in(Phase.FAILED)
    assert Release() in handle_all(state, [Detach(session="s")])
    assert state.phase is Phase.IDLE


def test_a_controller_lost_while_draining_is_not_reported_to() -> None:
    state = state_in(Phase.DRAINING)
    handle_all(state, [Detach(session="s")])
    assert handle_all(state, STOPPED) == [Release()]


def test_agent_has_one_controller_at_a_time() -> None:
    state = state_in(Phase.IDLE)
    with pytest.raises(AgentError, match="the agent is in use by c"):
        state.handle(Attach(session="t", controller="d", now_ns=0))


def test_a_new_controller_waits_for_the_old_run_to_end() -> None:
    state = state_in(Phase.RUNNING)
    handle_all(state, [Detach(session="s")])
    with pytest.raises(AgentError, match="still ending a run"):
        state.handle(Attach(session="t", controller="d", now_ns=0))


@pytest.mark.parametrize(
    "event",
    [
        Prepare(session="t", run_id="r", shards=1),
        Arm(session="t", start_ns=2, now_ns=1),
        Reset(session="t"),
        Heartbeat(session="t", now_ns=0),
    ],
)
def test_only_the_controlling_session_may_command(event: Event) -> None:
    state = state_in(Phase.PREPARED)
    with pytest.raises(AgentError, match="another controller uses it"):
        state.handle(event)
    assert state.phase is Phase.PREPARED


@pytest.mark.parametrize("start_ns", [0, -1, 3601 * SECOND])
def test_a_start_is_near_and_in_the_future(start_ns: int) -> None:
    state = state_in(Phase.PREPARED)
    with pytest.raises(AgentError, match="s from now"):
        state.handle(Arm(session="s", start_ns=start_ns, now_ns=0))
    assert state.phase is Phase.PREPARED


@pytest.mark.parametrize("phase", [p for p in Phase if p is not Phase.IDLE])
def test_a_second_plan_is_refused(phase: Phase) -> None:
    with pytest.raises(UnexpectedEvent, match="cannot prepare now"):
        state_in(phase).handle(PREPARE)


@pytest.mark.parametrize("phase", [p for p in Phase if p is not Phase.PREPARED])
def test_only_a_prepared_agent_is_armed(phase: Phase) -> None:
    with pytest.raises(UnexpectedEvent, match="cannot arm now"):
        state_in(phase).handle(ARM)


@pytest.mark.parametrize(
    "phase", [Phase.PREPARING, Phase.ARMED, Phase.RUNNING, Phase.DRAINING]
)
def test_running_run_is_not_reset(phase: Phase) -> None:
    with pytest.raises(UnexpectedEvent, match="abort it first"):
        state_in(phase).handle(Reset(session="s"))


def test_a_plan_needs_shards() -> None:
    with pytest.raises(AgentError, match="it has no shards"):
        state_in(Phase.IDLE).handle(Prepare(session="s", run_id="r", shards=0))


def test_events_of_dead_shards_are_refused() -> None:
    with pytest.raises(UnexpectedEvent, match="is not running"):
        state_in(Phase.RUNNING).handle(ShardReady(shard=2))


def test_a_shard_cannot_finish_before_the_start_is_known() -> None:
    with pytest.raises(UnexpectedEvent, match="ShardFinished"):
        state_in(Phase.PREPARED).handle(FINISHED[0])


@pytest.mark.parametrize(
    ("broken", "problem"),
    [
        (AgentState(run_id="r"), "idle, but has a run"),
        (AgentState(phase=Phase.DONE, session="s"), "DONE without a run"),
        (
            AgentState(phase=Phase.DONE, run_id="r"),
            "DONE without a controller",
        ),
        (
            AgentState(phase=Phase.FAILED, session="s", run_id="r"),
            "failed with live shards or without a reason",
        ),
        (
            AgentState(phase=Phase.DRAINING, session="s", run_id="r"),
            "draining without shards",
        ),
        (AgentState(_live={1}), "a shard runs that was not started"),
        (AgentState(_finished={0}), "a shard finished before it was ready"),
        (
            AgentState(phase=Phase.PREPARING, session="s", run_id="r", _shards=1),
            "PREPARING, but a shard has ended",
        ),
        (
            AgentState(phase=Phase.PREPARED, session="s", run_id="r", _shards=1),
            "PREPARED, but a shard is not ready",
        ),
        (
            AgentState(phase=Phase.ARMED, session="s", run_id="r"),
            "ARMED without a start",
        ),
        (
            AgentState(phase=Phase.DONE, session="s", run_id="r", _shards=1),
            "done, but a shard is not",
        ),
    ],
)
def test_invariant_check_finds_broken_states(broken: AgentState, problem: str) -> None:
    assert problem in broken.check()
