"""The controller's side of a conversation with one agent."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar, cast

import grpc
from grpc.aio import AioRpcError, StreamStreamCall, insecure_channel, secure_channel

from chakram.control.call_errors import explain, may_pass
from chakram.control.clock import (
    ClockOffset,
    PingTimes,
    StallMeter,
    estimate_offset,
    explain_loss,
)
from chakram.control.error_details import METADATA_KEY, decode_error
from chakram.control.event_codec import decode_description, decode_event
from chakram.control.events import (
    AgentDescription,
    AgentEvent,
    Failed,
    Finished,
    PhaseChanged,
)
from chakram.control.plan_codec import encode_plan
from chakram.control.protocol_messages import MAX_MESSAGE_BYTES, PROTOCOL_VERSION, pb
from chakram.control.service import (
    CHANNEL_OPTIONS,
    HEARTBEAT_INTERVAL_NS,
    TlsFiles,
    agent_stub,
    channel_credentials,
    host_clock,
    is_local,
)
from chakram.foundation.errors import (
    AgentError,
    ChakramError,
    ControllerStalled,
    PlanError,
)
from chakram.foundation.units import about_size, format_size

if TYPE_CHECKING:
    from chakram.plan.plan import AgentPlan


_T = TypeVar("_T")

CONNECT_TIMEOUT_S = 5.0
CALL_TIMEOUT_S = 5.0
PREPARE_TIMEOUT_S = 60.0
"""An agent of 64 ranks and 64 namespaces starts in a second; hosts may be slow."""
LAST_ROWS_TIMEOUT_S = 30.0
"""Records may lie unread when a run ends: so long may it take to read them."""
QUIET_S = 2.0
"""An agent that has told nothing for so long then is asked whether it still answers."""
CLOSE_TIMEOUT_S = 2.0
SKIP_TIMEOUT_S = 1.0
"""An agent that refused a plan has nothing to tell of it."""


class AgentClient:
    """A connection to one agent; ``connect`` makes it.

    A session begins with ``attach``, or with the first call that needs one, and ends
    with ``close``: then the agent ends its traffic and forgets the plan.  While it
    lasts a task keeps the agent's lease alive, so the event loop must not be blocked
    for more than a second while traffic runs.

    Attributes:
        name: Of the agent in the plan.
        target: ``unix:/path`` or ``host:port``.
        description: What the agent said about itself when the connection was made.
    """

    def __init__(
        self, channel: grpc.aio.Channel, *, name: str, target: str, tls: bool
    ) -> None:
        self.name = name
        self.target = target
        self.description: AgentDescription
        self.session = secrets.token_hex(8)
        self._channel = channel
        self._stub = agent_stub(channel)
        self._tls = tls
        self._watch: StreamStreamCall[pb.Heartbeat, pb.AgentEvent] | None = None
        self._heartbeats: asyncio.Task[None] | None = None
        self._first: list[AgentEvent] = []
        # What is being read: whoever stops waiting for it leaves it to the next one.
        self._read: asyncio.Task[object] | None = None
        self._told_phase = ""
        # Messages of the session so far.
        self._heard = 0
        self._closed = False
        self._stalls = StallMeter(time.monotonic_ns())
        self._attaching = asyncio.Lock()
        self._reading = False
        # Whether whoever reads the events has got all that the last run tells.
        self._all_told = asyncio.Event()
        self._all_told.set()
        # And whether the agent has told that it has forgotten the run.
        self._told_idle = asyncio.Event()

    @classmethod
    async def connect(
        cls,
        target: str,
        *,
        name: str,
        tls: TlsFiles | None = None,
        timeout_s: float = CONNECT_TIMEOUT_S,
    ) -> Self:
        """Return a connection to the agent that listens at *target*.

        It is tried again until *timeout_s* is over: an agent may be about to start.

        Raises:
            AgentError: If it cannot be reached, refuses our certificate or shows a
                wrong one, or speaks another protocol.
            ConfigError: If a certificate cannot be read.
        """
        if tls is None:
            if not is_local(target):
                raise AgentError(
                    f"agent {name} ({target})",
                    "another host is controlled with certificates only",
                    "make them with `chakram certs` and name them in fabric.tls",
                )
            channel = insecure_channel(target, options=CHANNEL_OPTIONS)
        else:
            channel = secure_channel(
                target, channel_credentials(tls), options=CHANNEL_OPTIONS
            )
        client = cls(channel, name=name, target=target, tls=tls is not None)
        try:
            client.description = await client._first_answer(timeout_s)
        except BaseException:
            await client.close()
            raise
        return client

    async def _first_answer(self, timeout_s: float) -> AgentDescription:
        deadline_s = time.monotonic() + timeout_s
        while True:
            try:
                description = await self.describe()
                break
            except AgentError as error:
                again = isinstance(error.__cause__, AioRpcError) and may_pass(
                    error.__cause__
                )
                if not again or time.monotonic() + 0.1 > deadline_s:
                    raise
            await asyncio.sleep(0.05)
        if description.protocol != PROTOCOL_VERSION:
            raise AgentError(
                self.where,
                f"it speaks version {description.protocol} of the protocol "
                f"(chakram {description.version}), we speak {PROTOCOL_VERSION}",
                "install the same version of chakram on both sides",
            )
        return description

    @property
    def where(self) -> str:
        """Name and address, for errors."""
        return f"agent {self.name} ({self.target})"

    async def describe(self) -> AgentDescription:
        """Return what the agent says about itself now."""
        message = await self._call(self._stub.Describe, pb.DescribeRequest())
        return decode_description(message)

    async def attach(self, *, controller: str = "") -> None:
        """Begin the session: from now on the agent is ours, and lives on our lease.

        Args:
            controller: Who we are, for others that find the agent taken.

        Raises:
            AgentError: If another controller has it, or it cannot be reached.
        """
        async with self._attaching:
            if self._watch is None:
                await self._attach(controller)

    async def _attach(self, controller: str) -> None:
        call = self._stub.Watch()  # type: ignore[call-arg] # the stub wants an iterator
        try:
            async with self._errors(), asyncio.timeout(CALL_TIMEOUT_S):
                await call.write(self._heartbeat(0, controller))
                first = await call.read()
        except TimeoutError:
            call.cancel()
            raise AgentError(
                self.where, f"it did not answer within {CALL_TIMEOUT_S:g} s"
            ) from None
        except BaseException:
            call.cancel()
            raise
        if isinstance(first, pb.AgentEvent):
            event = decode_event(first, where=self.where)
            self._first = [] if event is None else [event]
        self._watch = call
        self._stalls = StallMeter(time.monotonic_ns())
        self._heartbeats = asyncio.create_task(
            self._keep_alive(call, controller), name=f"heartbeats-{self.name}"
        )

    async def _keep_alive(
        self, call: StreamStreamCall[pb.Heartbeat, pb.AgentEvent], controller: str
    ) -> None:
        sequence = 0
        while not call.done():
            await asyncio.sleep(HEARTBEAT_INTERVAL_NS / 1e9)
            self._stalls.alive(time.monotonic_ns())
            sequence += 1
            try:
                await call.write(self._heartbeat(sequence, controller))
            except (AioRpcError, asyncio.InvalidStateError):
                return  # whoever reads the events is told why the stream has ended

    def _heartbeat(self, sequence: int, controller: str) -> pb.Heartbeat:
        return pb.Heartbeat(
            session=self.session, controller=controller, sequence=sequence
        )

    async def events(self) -> AsyncGenerator[AgentEvent]:
        """Yield what the agent tells until the session ends; attach if necessary.

        Raises:
            AgentError: If the connection to the agent is lost; ``ControllerStalled`` if
                our own stall is the reason.
            PeerError: If it sends what is no event.
        """
        await self.attach()
        call = self._watch
        if call is None:
            return
        while self._first:
            yield self._first.pop(0)
        self._reading = True
        try:
            while True:
                try:
                    async with self._errors():
                        message = await self._read_next(call)
                        self._heard += 1
                except AgentError as error:
                    if self._closed:
                        return  # we have ended it ourselves
                    raise await self._explained(error) from error
                if not isinstance(message, pb.AgentEvent):
                    break
                event = decode_event(message, where=self.where)
                if event is not None:
                    yield event
                    self._note(event)
        finally:
            self._reading = False
            self._all_told.set()
            self._told_idle.set()
        if not self._closed:
            raise AgentError(
                self.where,
                "it has ended the session",
                "was it stopped? see its own log",
            )

    async def _explained(self, error: AgentError) -> AgentError:
        """Return why the session was lost, from the records of both sides."""
        stalled_ns = self._stalls.longest_ns(time.monotonic_ns())
        agent_stalled_ns, reason = 0, ""
        with suppress(ChakramError):
            agent = await self.describe()
            agent_stalled_ns = agent.stalled_ns
            if agent.ended_session == self.session:
                reason = agent.ended_reason
        explained = explain_loss(
            agent=self.name,
            controller_stalled_ns=stalled_ns,
            agent_stalled_ns=agent_stalled_ns,
            reason=reason,
            heartbeat_ns=HEARTBEAT_INTERVAL_NS,
        )
        if explained is None:
            return error
        found, hint, is_controller = explained
        return (ControllerStalled if is_controller else AgentError)(
            self.where, found, hint
        )

    async def _read_next(
        self, call: StreamStreamCall[pb.Heartbeat, pb.AgentEvent]
    ) -> object:
        """Return the next message; a cancelled wait must not cancel the session."""
        if self._read is None:
            self._read = asyncio.create_task(_read(call), name=f"read-{self.name}")
        message = await asyncio.shield(self._read)
        self._read = None
        return message

    def _note(self, event: AgentEvent) -> None:
        match event:
            case PhaseChanged(phase=phase):
                self._told_phase = phase
                self._told_idle.clear()
                if phase == "PREPARING":
                    self._all_told.clear()
                elif phase == "IDLE":
                    self._told_idle.set()
                    self._all_told.set()
            case Finished() | Failed():
                self._all_told.set()

    async def prepare(self, plan: AgentPlan) -> None:
        """Give the agent its plan; it has opened all ports when this returns.

        Raises:
            PlanError: If the plan is wrong, or too long for a message.
            AgentError: If the agent cannot be reached or is busy.
            ChakramError: Whatever the agent refuses it with.
        """
        await self.attach()
        request = pb.PrepareRequest(session=self.session, plan=encode_plan(plan))
        length = request.ByteSize()
        if length > MAX_MESSAGE_BYTES:
            raise PlanError(
                f"plan {plan.run_id}: agent {plan.agent}",
                f"it takes {about_size(length)}, a message has at most "
                f"{format_size(MAX_MESSAGE_BYTES)}",
                "spread the ranks over more agents",
            )
        await self._call(self._stub.Prepare, request, timeout_s=PREPARE_TIMEOUT_S)

    async def arm(self, start_ns: int) -> None:
        """Let all ranks start at *start_ns* of the agent's clock.

        Raises:
            AgentError: If it is too late for that, or the agent cannot be reached.
        """
        request = pb.ArmRequest(session=self.session, start_ns=start_ns)
        await self._call(self._stub.Arm, request)

    async def abort(self, reason: str) -> None:
        """End the run; the agent's traffic has ended when this returns.

        If somebody reads the events, all records of the run have been read as well.
        It needs no session, and it is no error if nothing runs.
        """
        await self._call(self._stub.Abort, pb.AbortRequest(reason=reason))
        if self._reading:
            with suppress(TimeoutError):
                async with asyncio.timeout(CALL_TIMEOUT_S):
                    await self._all_told.wait()

    async def reset(self) -> None:
        """Let the agent forget the run: ready for the next plan when this returns.

        If somebody reads the events, all records of the run have been read as well;
        else what it has told of the run and nobody has read, nobody will.

        Raises:
            AgentError: If the agent is lost, or there is more to read than time.
            UnexpectedEvent: If a run is under way; it has to be aborted first.
        """
        await self._call(self._stub.Reset, pb.ResetRequest(session=self.session))
        if self._reading:
            await self._read_rest()
        elif self._watch is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(SKIP_TIMEOUT_S):
                    await self._skip_told()

    async def _read_rest(self) -> None:
        """Wait until whoever reads the events has read all of the run."""
        try:
            async with asyncio.timeout(LAST_ROWS_TIMEOUT_S):
                while not self._told_idle.is_set():
                    await self._hear_or_ask()
        except TimeoutError:
            raise AgentError(
                self.where,
                f"its records could not be read within {LAST_ROWS_TIMEOUT_S:g} s",
                "is the controller's host busy, or the way to the agent slow?",
            ) from None
        if self._told_phase != "IDLE":
            raise AgentError(self.where, "the connection was lost")

    async def _hear_or_ask(self) -> None:
        """Wait for more of what the agent tells; make sure that it is still there.

        A slow agent, or a slow way to it, is waited for; one that is frozen is not.

        Raises:
            AgentError: If it has told nothing and does not answer either.
        """
        heard = self._heard
        with suppress(TimeoutError):
            async with asyncio.timeout(QUIET_S):
                await self._told_idle.wait()
        if self._told_idle.is_set() or self._heard > heard:
            return
        try:
            await self._call(self._stub.ClockPing, pb.ClockPingRequest())
        except AgentError:
            if self._heard == heard:
                raise

    async def _skip_told(self) -> None:
        """Read all that the agent has told up to the end of its run."""
        was_busy = self._told_phase not in ("", "IDLE")
        async with aclosing(self.events()) as events:
            async for event in events:
                if isinstance(event, PhaseChanged):
                    if event.phase == "IDLE" and was_busy:
                        self._note(event)
                        return
                    was_busy = was_busy or event.phase != "IDLE"

    async def measure_clock(self, *, pings: int = 8) -> ClockOffset:
        """Return what the agent's monotonic clock shows more than ours."""
        if self.description.clock and self.description.clock == host_clock():
            return ClockOffset(offset_ns=0, uncertainty_ns=0)
        times = []
        for _ in range(pings):
            sent_ns = time.monotonic_ns()
            pong = await self._call(self._stub.ClockPing, pb.ClockPingRequest())
            times.append(
                PingTimes(
                    sent_ns=sent_ns,
                    remote_received_ns=pong.received_ns,
                    remote_sent_ns=pong.sent_ns,
                    answered_ns=time.monotonic_ns(),
                )
            )
        return estimate_offset(times)

    async def close(self) -> None:
        """End the session and the connection; may be called again."""
        if self._closed:
            return
        self._closed = True
        if self._heartbeats is not None:
            self._heartbeats.cancel()
            await asyncio.gather(self._heartbeats, return_exceptions=True)
        if self._watch is not None:
            self._watch.cancel()
        if self._read is not None:
            self._read.cancel()
            await asyncio.gather(self._read, return_exceptions=True)
        async with asyncio.timeout(CLOSE_TIMEOUT_S):
            await self._channel.close(None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def _call(
        self,
        call: Callable[..., Awaitable[_T]],
        request: object,
        *,
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> _T:
        async with self._errors():
            return await call(request, timeout=timeout_s)

    @asynccontextmanager
    async def _errors(self) -> AsyncIterator[None]:
        """Turn what gRPC raises into errors of ours."""
        try:
            yield
        except AioRpcError as error:
            raise self._translated(error) from error
        except asyncio.InvalidStateError as error:
            # What grpc.aio raises for a write to a call that has just ended.
            raise AgentError(self.where, "it has ended the session") from error

    def _translated(self, error: AioRpcError) -> ChakramError:
        trailing = cast(
            "tuple[tuple[str, str | bytes], ...]", error.trailing_metadata() or ()
        )
        for key, value in trailing:
            if key == METADATA_KEY and isinstance(value, bytes):
                return decode_error(value, where=self.where)
        if self._watch is not None and error.code() is grpc.StatusCode.UNAVAILABLE:
            return AgentError(
                self.where,
                "the connection was lost",
                "it has ended, or its host cannot be reached any more; see its own log",
            )
        found, hint = explain(error, target=self.target, tls=self._tls)
        return AgentError(self.where, found, hint)


async def _read(call: StreamStreamCall[pb.Heartbeat, pb.AgentEvent]) -> object:
    return await call.read()
