"""A session executes the decisions of the controller, with simulated agents."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from chakram.control.clock_pings import PingTimes
from chakram.control.clock_track import ClockTrack
from chakram.control.events import (
    AgentEvent,
    CountersSnapshot,
    Failed,
    Finished,
    HostCounters,
    LogLine,
    NicCounters,
    Progress,
    RecordBatch,
)
from chakram.execution import session as session_module
from chakram.execution.session import Session
from chakram.execution.state import Phase
from chakram.foundation.errors import (
    AgentError,
    ChakramError,
    PlanError,
    RunDirectoryError,
    RunFailed,
    RunInterrupted,
    UnexpectedEvent,
)
from chakram.plan.nic_queue_pairs import Bindings, BoundQueuePair, Peers
from chakram.records.row_layout import RecordRows
from tests.plans import ring_plan

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from pathlib import Path

    from chakram.plan.plan import AgentPlan


class PlayedAgent:
    """An agent whose events come from a script once it is armed."""

    def __init__(
        self,
        name: str,
        script: tuple[AgentEvent, ...] = (Finished(time_ns=9),),
        *,
        refuses: ChakramError | None = None,
        refuses_peers: ChakramError | None = None,
        bindings: Bindings | None = None,
        lost: bool = False,
        on_armed: Callable[[], None] | None = None,
    ) -> None:
        self.name = name
        self.calls: list[str] = []
        self.armed_ns = 0
        self._script = script
        self._refuses = refuses
        self._refuses_peers = refuses_peers
        self.bindings = bindings or Bindings()
        self.peers: Peers | None = None
        self._lost = lost
        self._on_armed = on_armed
        self._armed = asyncio.Event()
        self.jobs: tuple[str, ...] = ()

    async def attach(self, *, controller: str = "") -> None:
        self.calls.append("attach")

    async def prepare(self, plan: AgentPlan) -> Bindings:
        self.calls.append("prepare")
        if self._refuses is not None:
            raise self._refuses
        return self.bindings

    async def connect_queue_pairs(self, peers: Peers) -> None:
        self.calls.append("connect")
        self.peers = peers
        if self._refuses_peers is not None:
            raise self._refuses_peers

    async def arm(self, start_ns: int) -> None:
        self.calls.append("arm")
        self.armed_ns = start_ns
        self._armed.set()

    async def reset(self) -> None:
        self.calls.append("reset")

    async def abort(self, reason: str) -> None:
        self.calls.append(f"abort: {reason}")
        if self._lost:
            raise AgentError(self.name, "the connection was lost")

    async def events(self) -> AsyncIterator[AgentEvent]:
        await self._armed.wait()
        # The answers to arm come before whatever the traffic gives.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        if self._on_armed is not None:
            self._on_armed()
        for event in self._script:
            yield event
        if self._lost:
            raise AgentError(self.name, "the connection was lost", "see its log")
        await asyncio.Event().wait()


class Watcher:
    """Records its calls."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def phase_changed(self, phase: Phase) -> None:
        self.told.append(phase.name)

    def iterations_done(self, iterations: int) -> None:
        self.told.append(f"iterations {iterations}")

    def rows_arrived(self, rows: RecordRows) -> None:
        self.told.append("rows")

    def counters_arrived(self, agent: str, snapshot: CountersSnapshot) -> None:
        self.told.append(f"counters of {agent}")

    def agent_lost(self, agent: str) -> None:
        self.told.append(f"lost {agent}")

    def records_missing(self, agent: str, reason: str) -> None:
        self.told.append(f"records of {agent} missing: {reason}")

    def agent_said(self, agent: str, level: str, text: str) -> None:
        self.told.append(f"{agent} {level}: {text}")

    def nic_counted(self, nic: NicCounters) -> None:
        self.told.append(f"NIC of port {nic.port}: {dict(nic.counts)}")

    def host_counted(self, agent: str, host: HostCounters) -> None:
        self.told.append(f"host of {agent}: {dict(host.counts)}")

    def jobs_chosen(self, jobs: Sequence[str]) -> None:
        self.told.append(f"jobs {', '.join(jobs)}")


def clock_ahead(offset_ns: int) -> ClockTrack:
    """Return the model of a clock that is ahead by so much, and runs as fast."""
    track = ClockTrack()
    times = {"remote_received_ns": offset_ns, "remote_sent_ns": offset_ns}
    track.add([PingTimes(sent_ns=0, answered_ns=0, **times)])
    return track


def session_of(
    *agents: PlayedAgent,
    watcher: Watcher | None = None,
    offsets_ns: dict[str, int] | None = None,
    hang_timeout_ns: int = 60 * 10**9,
    duration_limit_ns: int | None = None,
    plans: dict[str, AgentPlan] | None = None,
    jobs_file: Path | None = None,
) -> Session:
    return Session(
        plans=plans or {agent.name: ring_plan(agent=agent.name) for agent in agents},
        clients={agent.name: agent for agent in agents},  # type: ignore[misc] # played
        clocks={
            agent.name: clock_ahead((offsets_ns or {}).get(agent.name, 0))
            for agent in agents
        },
        observer=watcher or Watcher(),
        hang_timeout_ns=hang_timeout_ns,
        iterations_of={0: 3, 1: 9},
        duration_limit_ns=duration_limit_ns,
        jobs_file=jobs_file,
    )


@pytest.mark.asyncio
async def test_a_run_goes_from_preparation_to_its_end() -> None:
    watcher = Watcher()
    first = PlayedAgent(
        "a",
        (
            RecordBatch(time_ns=1, rows=RecordRows()),
            CountersSnapshot(time_ns=2),
            LogLine(time_ns=3, level="warning", text="hot"),
            Progress(time_ns=4, counter=1, iterations=((0, 1),)),
            Finished(time_ns=5),
        ),
    )
    second = PlayedAgent("b")
    await session_of(first, second, watcher=watcher).run()
    assert first.calls == ["attach", "prepare", "arm", "reset"]
    assert watcher.told[:3] == ["PREPARING", "ARMING", "RUNNING"]
    assert watcher.told[-1] == "DONE"
    assert {"rows", "counters of a", "a warning: hot"} <= set(watcher.told)


@pytest.mark.asyncio
async def test_agents_are_attached_at_the_same_time() -> None:
    waiting = {"a", "b", "c"}
    all_called = asyncio.Event()

    class Attached(PlayedAgent):
        async def attach(self, *, controller: str = "") -> None:
            waiting.discard(self.name)
            if not waiting:
                all_called.set()
            async with asyncio.timeout(1):
                await all_called.wait()

    agents = [Attached(name) for name in sorted(waiting)]
    await session_of(*agents).run()
    assert [agent.calls for agent in agents] == [["prepare", "arm", "reset"]] * 3


@pytest.mark.asyncio
async def test_an_agent_that_refuses_the_session_ends_the_run() -> None:
    class Busy(PlayedAgent):
        async def attach(self, *, controller: str = "") -> None:
            raise AgentError("agent b", "the agent is in use by another controller")

    first, busy = PlayedAgent("a"), Busy("b")
    with pytest.raises(AgentError, match="agent b: the agent is in use"):
        await session_of(first, busy).run()
    assert first.calls == ["attach"]


@pytest.mark.asyncio
async def test_an_agent_may_finish_before_another_answers_that_it_is_armed() -> None:
    class Slow(PlayedAgent):
        async def arm(self, start_ns: int) -> None:
            await super().arm(start_ns)
            await finished.wait()
            for _ in range(9):
                await asyncio.sleep(0)

    class Quick(PlayedAgent):
        async def events(self) -> AsyncIterator[AgentEvent]:
            await self._armed.wait()
            yield Finished(time_ns=1)
            finished.set()
            await asyncio.Event().wait()

    finished = asyncio.Event()
    watcher = Watcher()
    quick, slow = Quick("a"), Slow("b")
    async with asyncio.timeout(5):
        await session_of(quick, slow, watcher=watcher).run()
    assert watcher.told == ["PREPARING", "ARMING", "RUNNING", "ENDING", "DONE"]


def on_nics(plan: AgentPlan, *numbers: int) -> AgentPlan:
    """Return a plan with some ports on RDMA NICs."""
    return replace(
        plan,
        ports=tuple(
            replace(port, open="verbs:mlx5_0") if port.number in numbers else port
            for port in plan.ports
        ),
    )


def bound(port: int, qpn: int) -> BoundQueuePair:
    return BoundQueuePair(
        port=port,
        qpn=qpn,
        device_qpn=77,
        address=1 << 40,
        key=5,
        slot_bytes=4096,
        slots=1,
        path_mtu=1024,
    )


@pytest.mark.asyncio
async def test_ends_on_nics_are_made_known_to_their_peers_before_the_start() -> None:
    plan = on_nics(ring_plan(agent="a"), 0)
    pair = plan.ranks[1].queue_pairs[0]
    assert (pair.remote_port, plan.ranks[1].port) == (0, 1)
    end = bound(0, pair.remote_qpn)
    watcher = Watcher()
    script = (
        NicCounters(time_ns=1, port=0, counts=(("cnp_rx", 3),)),
        Finished(time_ns=2),
    )
    agent = PlayedAgent("a", script, bindings=Bindings(bound=(end,)))
    await session_of(agent, plans={"a": plan}, watcher=watcher).run()
    assert agent.calls == ["attach", "prepare", "connect", "arm", "reset"]
    assert agent.peers is not None
    (peer,) = agent.peers.peers
    assert (peer.port, peer.qpn, peer.remote) == (1, pair.qpn, end)
    assert "NIC of port 0: {'cnp_rx': 3}" in watcher.told


@pytest.mark.asyncio
async def test_an_agent_that_cannot_connect_ends_the_run_before_it_starts() -> None:
    refusal = RunFailed("port 0", "mlx5_0 cannot connect queue pair 5")
    agent = PlayedAgent("a", refuses_peers=refusal)
    plans = {"a": on_nics(ring_plan(agent="a"), 0, 1)}
    with pytest.raises(RunFailed, match="cannot connect queue pair 5"):
        await session_of(agent, plans=plans).run()
    assert "arm" not in agent.calls


@pytest.mark.asyncio
async def test_progress_is_that_of_the_slowest_unfinished_rank() -> None:
    watcher = Watcher()
    # Rank 2 is not waited for: it may do as many iterations as it likes.
    steps = [((0, 2), (1, 4), (2, 70)), ((0, 3), (1, 5), (2, 71)), ((0, 3), (1, 9))]
    agent = PlayedAgent(
        "a",
        (
            *(Progress(time_ns=4, counter=1, iterations=each) for each in steps),
            Finished(time_ns=5),
        ),
    )
    await session_of(agent, watcher=watcher).run()
    told = [text for text in watcher.told if text.startswith("iterations")]
    assert told == ["iterations 2", "iterations 5", "iterations 9"]


@pytest.mark.asyncio
async def test_all_agents_start_at_one_time_in_their_clocks() -> None:
    here, there = PlayedAgent("a"), PlayedAgent("b")
    await session_of(here, there, offsets_ns={"b": 5_000}).run()
    assert there.armed_ns - here.armed_ns == 5_000


@pytest.mark.asyncio
async def test_refused_plan_raises_the_error_of_the_agent() -> None:
    refusal = PlanError("port 0", "192.0.2.1 is outside of --allow", "allow it")
    good, bad = PlayedAgent("a"), PlayedAgent("b", refuses=refusal)
    with pytest.raises(PlanError, match="outside of --allow"):
        await session_of(good, bad).run()
    assert good.calls[-1].startswith("abort")
    assert "arm" not in good.calls


@pytest.mark.asyncio
async def test_failed_agent_ends_the_run_with_reason_and_waiting_ranks() -> None:
    failing = PlayedAgent(
        "a",
        (Failed(time_ns=1, reason="retries exhausted", waiting_for=("rank 0 waits",)),),
    )
    other = PlayedAgent("b", ())
    with pytest.raises(RunFailed, match="retries exhausted: rank 0 waits"):
        await session_of(failing, other).run()
    assert other.calls[-1].startswith("abort: agent a: retries exhausted")


@pytest.mark.asyncio
async def test_a_lost_agent_ends_the_run() -> None:
    watcher = Watcher()
    lost, other = PlayedAgent("a", (), lost=True), PlayedAgent("b", ())
    with pytest.raises(RunFailed, match="agent a: the connection was lost"):
        await session_of(lost, other, watcher=watcher).run()
    assert "lost a" in watcher.told


@pytest.mark.asyncio
async def test_hanging_run_names_the_waiting_ranks() -> None:
    hung = PlayedAgent(
        "a",
        (
            Progress(
                time_ns=1,
                counter=1,
                iterations=((0, 0),),
                waiting_for=("rank 0 waits for rank 1",),
            ),
        ),
    )
    with pytest.raises(RunFailed, match=r"no progress .* rank 0 waits for rank 1"):
        await session_of(hung, hang_timeout_ns=1).run()


class LateAgent(PlayedAgent):
    """An agent with pending events when it is released."""

    def __init__(
        self,
        name: str,
        rest: tuple[AgentEvent, ...] = (),
        *,
        refuses_reset: ChakramError | None = None,
        on_reset: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(name)
        self._rest = rest
        self._refuses_reset = refuses_reset
        self._on_reset = on_reset
        self._released = asyncio.Event()
        self._told = asyncio.Event()

    async def reset(self) -> None:
        self.calls.append("reset")
        if self._refuses_reset is not None:
            raise self._refuses_reset
        if self._on_reset is not None:
            self._on_reset()
        self._released.set()
        await self._told.wait()

    async def events(self) -> AsyncIterator[AgentEvent]:
        await self._armed.wait()
        yield Finished(time_ns=1)
        await self._released.wait()
        for event in self._rest:
            yield event
        if self._on_reset is None:
            self._told.set()
        await asyncio.Event().wait()


@pytest.mark.asyncio
async def test_events_after_the_work_are_read_completely() -> None:
    watcher = Watcher()
    rest = (
        RecordBatch(time_ns=2, rows=RecordRows()),
        CountersSnapshot(time_ns=3),
    )
    front, back = PlayedAgent("a"), LateAgent("b", rest)
    await session_of(front, back, watcher=watcher).run()
    assert watcher.told[-4:] == ["ENDING", "rows", "counters of b", "DONE"]
    assert front.calls == back.calls == ["attach", "prepare", "arm", "reset"]


@pytest.mark.asyncio
async def test_completed_run_names_agents_with_missing_records() -> None:
    watcher = Watcher()
    lost = AgentError("agent b", "the connection was lost", "see its log")
    front, back = PlayedAgent("a"), LateAgent("b", refuses_reset=lost)
    await session_of(front, back, watcher=watcher).run()
    assert watcher.told[-2:] == [
        "records of b missing: the connection was lost (see its log)",
        "DONE",
    ]


@pytest.mark.asyncio
async def test_an_agent_that_has_stalled_at_the_end_delivers_its_last_records() -> None:
    class Stalled(LateAgent):
        async def reset(self) -> None:
            if "abort: the run has ended" not in self.calls:
                raise UnexpectedEvent("agent in phase DRAINING", "cannot reset now")
            await super().reset()

    watcher = Watcher()
    agent = Stalled("a", (RecordBatch(time_ns=2, rows=RecordRows()),))
    await session_of(agent, watcher=watcher).run()
    assert watcher.told[-3:] == ["ENDING", "rows", "DONE"]


class AgentLostAtTheEnd(PlayedAgent):
    """An agent that is lost while it is released, before its release fails."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._released = asyncio.Event()

    async def reset(self) -> None:
        self._released.set()
        await asyncio.sleep(0.01)
        raise AgentError("agent b", "it does not answer in time")

    async def events(self) -> AsyncIterator[AgentEvent]:
        await self._armed.wait()
        yield Finished(time_ns=1)
        await self._released.wait()
        raise AgentError("agent b", "the connection was lost")


@pytest.mark.asyncio
async def test_completed_run_names_agents_that_were_lost_at_its_end() -> None:
    watcher = Watcher()
    front, back = PlayedAgent("a"), AgentLostAtTheEnd("b")
    await session_of(front, back, watcher=watcher).run()
    assert watcher.told[-2:] == [
        "records of b missing: it does not answer in time",
        "DONE",
    ]


@pytest.mark.asyncio
async def test_interrupt_ends_a_run_with_missing_last_records() -> None:
    agent = LateAgent("a", on_reset=lambda: session.interrupt("SIGINT"))
    session = session_of(agent)
    with pytest.raises(RunInterrupted, match="interrupted by SIGINT"):
        await session.run()
    assert agent.calls[-2:] == ["reset", "abort: interrupted by SIGINT"]


class TalkingAgent(PlayedAgent):
    """An agent that continues to send events after the end of the run."""

    def __init__(self, name: str, event: AgentEvent) -> None:
        super().__init__(name)
        self._event = event

    async def events(self) -> AsyncIterator[AgentEvent]:
        while True:
            yield self._event
            await asyncio.sleep(0.01)


@pytest.mark.asyncio
async def test_hanging_run_is_detected_despite_agent_messages() -> None:
    agent = TalkingAgent("a", Progress(time_ns=1, counter=1, iterations=((0, 0),)))
    with pytest.raises(RunFailed, match="no progress"):
        await session_of(agent, hang_timeout_ns=1).run()
    agent = TalkingAgent("a", LogLine(time_ns=1, level="info", text="still here"))
    with pytest.raises(RunFailed, match=r"stop_if\.duration"):
        await session_of(agent, duration_limit_ns=1).run()


@pytest.mark.asyncio
async def test_internal_error_ends_the_run() -> None:
    class Faulty(Watcher):
        def agent_said(self, agent: str, level: str, text: str) -> None:
            raise ZeroDivisionError(text)

    agent = PlayedAgent("a", (LogLine(time_ns=1, level="info", text="hello"),))
    with pytest.raises(ZeroDivisionError, match="hello"):
        await session_of(agent, watcher=Faulty()).run()
    assert agent.calls[-1].startswith("abort: follow-a: ZeroDivisionError")


@pytest.mark.asyncio
async def test_a_run_that_ends_early_names_agents_with_missing_records() -> None:
    class Slow(PlayedAgent):
        async def abort(self, reason: str) -> None:
            raise AgentError("agent b", "its records could not be read within 30 s")

    watcher = Watcher()
    failing = PlayedAgent(
        "a", (Failed(time_ns=1, reason="retries exhausted", waiting_for=()),)
    )
    with pytest.raises(RunFailed, match="agent a: retries exhausted"):
        await session_of(failing, Slow("b", ()), watcher=watcher).run()
    assert (
        "records of b missing: its records could not be read within 30 s"
        in watcher.told
    )


@pytest.mark.asyncio
async def test_internal_error_of_an_abort_ends_the_run() -> None:
    class Faulty(PlayedAgent):
        async def abort(self, reason: str) -> None:
            raise ZeroDivisionError(reason)

    agent = Faulty("a", (Failed(time_ns=1, reason="no ACK", waiting_for=()),))
    with pytest.raises(ZeroDivisionError, match="no ACK"):
        async with asyncio.timeout(1):
            await session_of(agent).run()


@pytest.mark.asyncio
async def test_records_that_cannot_be_written_are_not_blamed_on_their_agent() -> None:
    class Full(Watcher):
        def rows_arrived(self, rows: RecordRows) -> None:
            raise RunDirectoryError("runs/1/flows.parquet", "cannot be written")

    watcher = Full()
    agent = PlayedAgent("a", (RecordBatch(time_ns=1, rows=RecordRows()),))
    with pytest.raises(RunDirectoryError) as raised:
        await session_of(agent, watcher=watcher).run()
    assert str(raised.value) == "runs/1/flows.parquet: cannot be written"
    assert agent.calls[-1] == f"abort: {raised.value}"
    assert "lost a" not in watcher.told


@pytest.mark.asyncio
async def test_a_limit_of_time_ends_the_run() -> None:
    with pytest.raises(RunFailed, match=r"stop_if\.duration"):
        await session_of(PlayedAgent("a", ()), duration_limit_ns=1).run()


@pytest.mark.asyncio
async def test_interrupt_ends_the_run_cleanly() -> None:
    agent = PlayedAgent("a", (), on_armed=lambda: session.interrupt("SIGINT"))
    session = session_of(agent)
    with pytest.raises(RunInterrupted, match="interrupted by SIGINT"):
        await session.run()
    assert agent.calls[-1] == "abort: interrupted by SIGINT"


@pytest.mark.asyncio
async def test_jobs_of_a_file_are_told_to_agents_and_announced_when_others_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "_LOOK_S", 0.001)
    path = tmp_path / "jobs"
    path.write_text("job\n")
    reports: asyncio.Queue[AgentEvent] = asyncio.Queue()

    class Following(PlayedAgent):
        async def arm(self, start_ns: int) -> None:
            self.calls.append(f"arm {self.jobs}")
            await super().arm(start_ns)

        async def events(self) -> AsyncIterator[AgentEvent]:
            while True:
                yield await reports.get()

    def report(*resting: int) -> None:
        progress = Progress(time_ns=1, counter=1, iterations=(), resting=resting)
        reports.put_nowait(progress)

    async def until(condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(5):
            while not condition():  # noqa: ASYNC110 - a played agent has no event
                await asyncio.sleep(0.001)

    plan = ring_plan(agent="a")
    first, second = plan.ranks
    second = replace(second, program=replace(second.program, job="other"))
    plans = {"a": replace(plan, ranks=(first, second))}
    agent, watcher = Following("a"), Watcher()
    running = asyncio.create_task(
        session_of(agent, watcher=watcher, plans=plans, jobs_file=path).run()
    )
    await until(lambda: "RUNNING" in watcher.told)
    assert "arm ('job',)" in agent.calls

    path.write_text("other")
    await until(lambda: agent.jobs == ("other",))
    report(1)
    await asyncio.sleep(0.05)
    assert not any(text.startswith("jobs") for text in watcher.told)
    report(0)
    await until(lambda: watcher.told[-1] == "jobs other")

    async def choose(text: str, *resting: int) -> None:
        count = len(watcher.told)
        path.write_text(text)
        await until(lambda: agent.jobs == tuple(text.split()))
        report(*resting)
        await until(lambda: len(watcher.told) > count)
        assert watcher.told[-1] == f"jobs {text.replace(' ', ', ')}"

    # The same jobs as before are announced, too.
    await choose("job other")
    await choose("other", 0)
    await choose("job", 1)

    # It may be about to be written.
    path.write_text("")
    await asyncio.sleep(0.1)
    assert agent.jobs == ("job",)

    path.write_text("none")
    with pytest.raises(RunFailed, match=r"names none, which is not a job of the run"):
        await running
