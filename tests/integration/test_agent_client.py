"""The controller's client with agents that misbehave."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from chakram.control import client as client_module
from chakram.control.client import AgentClient
from chakram.control.error_details import METADATA_KEY
from chakram.control.grpc_service import serve_agent
from chakram.control.protobuf_messages import PROTOCOL_VERSION, pb
from chakram.execution.clock_watch import clock_of
from chakram.foundation.errors import AgentError, PeerError, PlanError
from chakram_agent import grpc_server
from chakram_agent.grpc_server import AgentService
from tests.plans import ring_plan

pytestmark = pytest.mark.asyncio


class FakeAgent(AgentService):
    """Answers as a test wants it to."""

    def __init__(self) -> None:
        """Have no agent, except for calls that renew its lease."""
        agent: Any = SimpleNamespace(saw_controller=lambda: None)
        super().__init__(agent)

    protocol = PROTOCOL_VERSION
    watch: Callable[[], list[pb.AgentEvent]] = list

    ended_session = ""

    async def Describe(self, request: Any, context: Any) -> pb.Description:
        return pb.Description(
            protocol=self.protocol,
            version="9.9",
            ended_session=self.ended_session,
            ended_reason="no heartbeat from the controller for 1.5 s",
        )

    async def Watch(self, requests: Any, context: Any) -> AsyncIterator[pb.AgentEvent]:
        await anext(aiter(requests))
        for event in type(self).watch():
            yield event

    async def Abort(self, request: Any, context: Any) -> pb.AbortReply:
        await context.abort(
            grpc.StatusCode.INTERNAL,
            "broken",
            trailing_metadata=((METADATA_KEY, b"\xff"),),
        )
        return pb.AbortReply()

    async def Arm(self, request: Any, context: Any) -> pb.ArmReply:
        await context.abort(grpc.StatusCode.UNKNOWN, "a fault of the agent")
        return pb.ArmReply()

    async def Reset(self, request: Any, context: Any) -> pb.ResetReply:
        await asyncio.Event().wait()
        return pb.ResetReply()


@asynccontextmanager
async def talking_to(fake: FakeAgent, folder: Path) -> AsyncIterator[AgentClient]:
    server = grpc.aio.server()
    serve_agent(fake, server)
    target = f"unix:{folder}/a"
    server.add_insecure_port(target)
    await server.start()
    try:
        async with await AgentClient.connect(target, name="a") as client:
            yield client
    finally:
        await server.stop(0)


async def test_an_agent_of_another_protocol_is_refused(tmp_path: Path) -> None:
    fake = FakeAgent()
    fake.protocol = 99
    with pytest.raises(AgentError, match=r"uses protocol version 99 \(chakram 9\.9\)"):
        async with talking_to(fake, tmp_path):
            pass


async def test_agent_that_ends_the_session_counts_as_lost(tmp_path: Path) -> None:
    async with talking_to(FakeAgent(), tmp_path) as client:
        with pytest.raises(AgentError, match="it has ended the session"):
            async for _ in client.events():
                pass


async def test_broken_session_blames_the_network_if_both_sides_ran(
    tmp_path: Path,
) -> None:
    class Broken(FakeAgent):
        async def Watch(
            self, requests: Any, context: Any
        ) -> AsyncIterator[pb.AgentEvent]:
            self.ended_session = (await anext(aiter(requests))).session
            yield pb.AgentEvent(phase_changed=pb.PhaseChanged(phase="IDLE"))
            await context.abort(grpc.StatusCode.INTERNAL, "")

    async with talking_to(Broken(), tmp_path) as client:
        with pytest.raises(
            AgentError, match=r"the controller did not stall.*the network between them"
        ):
            async for _ in client.events():
                pass


async def test_events_that_contradict_themselves_are_refused(tmp_path: Path) -> None:
    class Confused(FakeAgent):
        @staticmethod
        def watch() -> list[pb.AgentEvent]:
            first = pb.AgentEvent(phase_changed=pb.PhaseChanged(phase="IDLE"))
            return [first, pb.AgentEvent(records=pb.Records(flows=b"x"))]

    async with talking_to(Confused(), tmp_path) as client:
        with pytest.raises(PeerError, match="1 bytes are not rows"):
            async for _ in client.events():
                pass


async def test_unreadable_error_details_are_reported_as_an_error(
    tmp_path: Path,
) -> None:
    async with talking_to(FakeAgent(), tmp_path) as client:
        with pytest.raises(PeerError, match="are not a valid ErrorDetail"):
            await client.abort("enough")


@pytest.mark.parametrize("text", ["x", "\u00fc", "\u20ac"])
async def test_long_errors_of_an_agent_arrive(tmp_path: Path, text: str) -> None:
    class Refusing(FakeAgent):
        async def Arm(self, request: Any, context: Any) -> pb.ArmReply:
            async with grpc_server._refusals(context):
                raise PlanError(text * 5_000, text * 5_000, text * 5_000)

    async with talking_to(Refusing(), tmp_path) as client:
        with pytest.raises(PlanError) as raised:
            await client.arm(0)
    assert raised.value.found.startswith(text * 400)


async def test_internal_error_of_the_agent_is_reported(tmp_path: Path) -> None:
    async with talking_to(FakeAgent(), tmp_path) as client:
        with pytest.raises(AgentError, match="the call failed: UNKNOWN"):
            await client.arm(0)


async def test_silent_agent_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with talking_to(FakeAgent(), tmp_path) as client:
        monkeypatch.setattr(client_module, "CALL_TIMEOUT_S", 0.05)
        with pytest.raises(AgentError, match="it does not answer in time"):
            await client.reset()


class AgentWhoseClockJumps(FakeAgent):
    async def ClockPing(self, request: Any, context: Any) -> pb.ClockPong:
        return pb.ClockPong(received_ns=1, sent_ns=10**12)


async def test_pings_of_an_agent_whose_clock_jumps_are_refused(tmp_path: Path) -> None:
    async with talking_to(AgentWhoseClockJumps(), tmp_path) as client:
        with pytest.raises(AgentError, match="its clock is not usable"):
            await clock_of(client)


async def test_slow_end_of_a_connection_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "CLOSE_TIMEOUT_S", 0.05)
    async with talking_to(FakeAgent(), tmp_path) as client:
        close = client.channel.close

        async def close_slowly(grace: float | None = None) -> None:
            await close(grace)
            await asyncio.sleep(5)

        monkeypatch.setattr(client.channel, "close", close_slowly)


async def test_too_long_plan_is_not_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Quiet(FakeAgent):
        @staticmethod
        def watch() -> list[pb.AgentEvent]:
            return [pb.AgentEvent(phase_changed=pb.PhaseChanged(phase="IDLE"))]

    monkeypatch.setattr(client_module, "MAX_MESSAGE_BYTES", 100)
    async with talking_to(Quiet(), tmp_path) as client:
        with pytest.raises(PlanError, match="spread the ranks over more agents"):
            await client.prepare(ring_plan())


class FinishedAgent(FakeAgent):
    """Has finished its work, and has further records when it is aborted."""

    def __init__(self, *, reports_end: bool) -> None:
        super().__init__()
        self._reports_end = reports_end
        self._is_aborted = asyncio.Event()

    async def Watch(self, requests: Any, context: Any) -> AsyncIterator[pb.AgentEvent]:
        await anext(aiter(requests))
        for phase in ("IDLE", "PREPARING"):
            yield pb.AgentEvent(phase_changed=pb.PhaseChanged(phase=phase))
        yield pb.AgentEvent(finished=pb.Finished())
        await self._is_aborted.wait()
        await asyncio.sleep(0.05)
        yield pb.AgentEvent(records=pb.Records())
        if self._reports_end:
            yield pb.AgentEvent(failed=pb.Failed(reason="enough"))
        await asyncio.Event().wait()

    async def Abort(self, request: Any, context: Any) -> pb.AbortReply:
        self._is_aborted.set()
        return pb.AbortReply()

    async def ClockPing(self, request: Any, context: Any) -> pb.ClockPong:
        return pb.ClockPong()


async def heard_by_an_abort(client: AgentClient) -> list[str]:
    """Abort an agent that has finished, and return its events until then."""
    heard: list[str] = []
    has_finished = asyncio.Event()

    async def follow() -> None:
        async for event in client.events():
            heard.append(type(event).__name__)
            if heard[-1] == "Finished":
                has_finished.set()

    following = asyncio.create_task(follow(), name="follow")
    try:
        await has_finished.wait()
        await client.abort("enough")
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
    return heard


async def test_an_abort_waits_for_records_after_the_end_of_the_work(
    tmp_path: Path,
) -> None:
    async with talking_to(FinishedAgent(reports_end=True), tmp_path) as client:
        heard = await heard_by_an_abort(client)
    assert heard[-3:] == ["Finished", "RecordBatch", "Failed"]


async def test_an_abort_reports_records_that_do_not_arrive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "QUIET_S", 0.05)
    monkeypatch.setattr(client_module, "LAST_ROWS_TIMEOUT_S", 0.2)
    async with talking_to(FinishedAgent(reports_end=False), tmp_path) as client:
        with pytest.raises(AgentError, match="its records could not be read within"):
            await heard_by_an_abort(client)


class SlowToEnd(FakeAgent):
    """Forgets a run at once, and tells its end after some pings, or never."""

    def __init__(self, *, pings: int | None) -> None:
        self.pings = 0
        self._awaited = pings
        self._is_asked = asyncio.Event()

    async def Watch(self, requests: Any, context: Any) -> AsyncIterator[pb.AgentEvent]:
        await anext(aiter(requests))
        yield pb.AgentEvent(phase_changed=pb.PhaseChanged(phase="PREPARING"))
        await self._is_asked.wait()
        yield pb.AgentEvent(phase_changed=pb.PhaseChanged(phase="IDLE"))
        await asyncio.Event().wait()

    async def Reset(self, request: Any, context: Any) -> pb.ResetReply:
        return pb.ResetReply()

    async def ClockPing(self, request: Any, context: Any) -> pb.ClockPong:
        self.pings += 1
        if self._awaited is None:
            await asyncio.Event().wait()
        if self.pings == self._awaited:
            self._is_asked.set()
        return pb.ClockPong()


async def reset_while_read(client: AgentClient) -> None:
    """Reset the agent while a client reads its events."""

    async def follow() -> None:
        async for _ in client.events():
            has_begun.set()

    has_begun = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        following = group.create_task(follow(), name="follow")
        await has_begun.wait()
        try:
            await client.reset()
        finally:
            following.cancel()


async def test_controller_limits_its_wait_for_a_frozen_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frozen = SlowToEnd(pings=None)
    async with talking_to(frozen, tmp_path) as client:
        monkeypatch.setattr(client_module, "CALL_TIMEOUT_S", 0.5)
        monkeypatch.setattr(client_module, "QUIET_S", 0.05)
        with pytest.RaisesGroup(
            pytest.RaisesExc(AgentError, match="does not answer in time")
        ):
            await reset_while_read(client)
    assert frozen.pings == 1


async def test_controller_waits_for_a_slow_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = SlowToEnd(pings=2)
    async with talking_to(slow, tmp_path) as client:
        monkeypatch.setattr(client_module, "QUIET_S", 0.05)
        await reset_while_read(client)
    assert slow.pings >= 2
