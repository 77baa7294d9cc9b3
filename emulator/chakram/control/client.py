"""The controller's client for one agent."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import KW_ONLY, dataclass, field
from typing import Self, TypeVar, cast

import grpc
from grpc.aio import AioRpcError, StreamStreamCall, insecure_channel, secure_channel

from chakram.control import grpc_service
from chakram.control.call_errors import explain, may_pass
from chakram.control.clock_name import host_clock
from chakram.control.clock_pings import PingTimes
from chakram.control.error_details import METADATA_KEY, decode_error
from chakram.control.event_codec import decode_description, decode_event, decode_ports
from chakram.control.event_loop_stalls import StallMeter, explain_loss
from chakram.control.events import (
    AgentDescription,
    AgentEvent,
    Failed,
    PhaseChanged,
)
from chakram.control.plan_codec import encode_plan
from chakram.control.protobuf_messages import MAX_MESSAGE_BYTES, PROTOCOL_VERSION, pb
from chakram.control.queue_pair_codec import decode_reply, encode_request
from chakram.control.tls_files import TlsFiles
from chakram.fabric.inventory.reported_interfaces import HostPort
from chakram.foundation.errors import (
    AgentError,
    ChakramError,
    ControllerStalled,
    PlanError,
)
from chakram.foundation.units import about_size, format_size
from chakram.plan.nic_queue_pairs import Bindings, Peers
from chakram.plan.plan import AgentPlan

_T = TypeVar("_T")

CONNECT_TIMEOUT_S = 5.0
CALL_TIMEOUT_S = 5.0
PREPARE_TIMEOUT_S = 180.0
"""Longest time to prepare a plan.

An agent with 64 ranks and 64 namespaces needs about a second. Slow hosts need more, and
so do RDMA NICs with thousands of queue pairs.
"""
LAST_ROWS_TIMEOUT_S = 30.0
"""Longest time to read the remaining records when a run ends."""
QUIET_S = 2.0
"""Time without messages after which the client checks whether the agent answers."""
CLOSE_TIMEOUT_S = 2.0
SKIP_TIMEOUT_S = 1.0
"""Longest time to wait for unread events. An agent that refused a plan sends none."""


@dataclass(slots=True, eq=False)
class AgentClient:
    """A connection to one agent, created by ``connect``.

    A session begins with ``attach``, or with the first call that needs a session. After
    ``close`` ends the session, the agent ends its traffic and discards the plan. During
    the session, a task sends heartbeats that renew the agent's lease. The event loop
    must therefore not block for more than a second while traffic runs.

    Attributes:
        channel: Channel to the agent.
        name: Name of the agent in the plan.
        target: ``unix:/path`` or ``host:port``.
        tls: Whether the channel uses certificates.
        ping: Function that exchanges a ping without a gRPC call. If None, use a call.
        place: Location of the agent for messages. If None, use *target*.
        description: Description of the agent at the time of the connection.
        jobs: Jobs that may begin iterations. If empty, all jobs may. Heartbeats carry
            this list.
    """

    channel: grpc.aio.Channel
    _: KW_ONLY
    name: str
    target: str
    tls: bool
    ping: Callable[[], Awaitable[PingTimes]] | None = None
    place: str | None = None
    description: AgentDescription = field(init=False)
    jobs: tuple[str, ...] = ()
    session: str = field(default_factory=lambda: secrets.token_hex(8))
    _stub: grpc_service.AgentStub = field(init=False)
    _watch: StreamStreamCall[pb.Heartbeat, pb.AgentEvent] | None = None
    _heartbeats: asyncio.Task[None] | None = None
    _first: list[AgentEvent] = field(default_factory=list)
    # Pending read. If a reader is canceled, the next reader continues the read.
    _read: asyncio.Task[object] | None = None
    _told_phase: str = ""
    # Number of messages received in the session.
    _heard: int = 0
    _closed: bool = False
    _stalls: StallMeter = field(init=False)
    _attaching: asyncio.Lock = field(default_factory=asyncio.Lock)
    _reading: bool = False
    # Set if ``events`` has received everything about the last run.
    _run_reported: asyncio.Event = field(default_factory=asyncio.Event)
    # Set if the agent has reported that it discarded the run.
    _idle_reported: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._stub = grpc_service.AgentStub(self.channel)
        self._run_reported.set()

    @classmethod
    async def connect(
        cls,
        target: str,
        *,
        name: str,
        tls: TlsFiles | None = None,
        timeout_s: float = CONNECT_TIMEOUT_S,
        ping: Callable[[], Awaitable[PingTimes]] | None = None,
        place: str | None = None,
    ) -> Self:
        """Connect to the agent that listens at *target*.

        The client retries for up to *timeout_s*, because the agent may be starting.

        Args:
            target: ``unix:/path`` or ``host:port``.
            name: Name of the agent in the plan.
            tls: Certificates. None for an agent on this machine.
            timeout_s: Longest time to wait for the agent.
            ping: Function that exchanges a ping without a gRPC call. If None, use a
                call.
            place: Location of the agent for messages. If None, use *target*.

        Raises:
            AgentError: If the agent cannot be reached, rejects the controller's
                certificate, has an invalid certificate, or uses another protocol
                version.
            ConfigError: If a certificate file cannot be read or is not valid.
        """
        if tls is None:
            if not grpc_service.is_local(target):
                raise AgentError(
                    f"agent {name} ({target})",
                    "an agent on another host requires certificates",
                    "create them with `chakram certs` and name them in fabric.tls",
                )
            channel = insecure_channel(target, options=grpc_service.CHANNEL_OPTIONS)
        else:
            channel = secure_channel(
                target,
                grpc_service.channel_credentials(tls),
                options=grpc_service.CHANNEL_OPTIONS,
            )
        is_tls = tls is not None
        client = cls(
            channel, name=name, target=target, tls=is_tls, ping=ping, place=place
        )
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
                f"it uses protocol version {description.protocol} (chakram "
                f"{description.version}), but the controller uses version "
                f"{PROTOCOL_VERSION}",
                "install the same version of chakram on both sides",
            )
        return description

    @property
    def where(self) -> str:
        """Name and address of the agent, for error messages."""
        return f"agent {self.name} ({self.place or self.target})"

    async def describe(self) -> AgentDescription:
        """Return the current description of the agent."""
        message = await self._call(self._stub.Describe, pb.DescribeRequest())
        return decode_description(message)

    async def list_ports(self) -> tuple[HostPort, ...]:
        """Return the network interfaces of the agent's host."""
        message = await self._call(self._stub.ListPorts, pb.ListPortsRequest())
        return decode_ports(message).ports

    async def attach(self, *, controller: str = "") -> None:
        """Begin the session. The agent now requires heartbeats from this client.

        Args:
            controller: Name of this controller. The agent reports the name to other
                controllers that try to attach.

        Raises:
            AgentError: If another controller has a session, or the agent cannot be
                reached.
        """
        async with self._attaching:
            if self._watch is None:
                await self._attach(controller)

    async def _attach(self, controller: str) -> None:
        call = self._stub.Watch()  # type: ignore[call-arg] # the stub wants an iterator
        try:
            async with self._errors(), asyncio.timeout(CALL_TIMEOUT_S):
                await call.write(self._heartbeat(controller))
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
        while not call.done():
            await asyncio.sleep(grpc_service.HEARTBEAT_INTERVAL_NS / 1e9)
            self._stalls.alive(time.monotonic_ns())
            try:
                await call.write(self._heartbeat(controller))
            except (AioRpcError, asyncio.InvalidStateError):
                return  # ``events`` raises an error with the reason

    def _heartbeat(self, controller: str) -> pb.Heartbeat:
        who = {"session": self.session, "controller": controller}
        return pb.Heartbeat(**who, jobs=self.jobs)

    async def events(self) -> AsyncGenerator[AgentEvent]:
        """Yield the agent's events until the session ends. Attach if necessary.

        Raises:
            AgentError: If the connection to the agent is lost. The class is
                ``ControllerStalled`` if a stall of the controller is the reason.
            PeerError: If a message is not a valid event.
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
                        return  # ``close`` ended the session
                    raise await self._explained(error) from error
                if not isinstance(message, pb.AgentEvent):
                    break
                event = decode_event(message, where=self.where)
                if event is not None:
                    yield event
                    self._note(event)
        finally:
            self._reading = False
            self._run_reported.set()
            self._idle_reported.set()
        if not self._closed:
            raise AgentError(
                self.where,
                "it has ended the session",
                "was it stopped? see the agent's log",
            )

    async def _explained(self, error: AgentError) -> AgentError:
        """Return an error that explains a lost session, or *error* as the default."""
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
            heartbeat_ns=grpc_service.HEARTBEAT_INTERVAL_NS,
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
        """Return the next message. Canceling the wait does not cancel the session."""
        if self._read is None:
            self._read = asyncio.create_task(_read(call), name=f"read-{self.name}")
        message = await asyncio.shield(self._read)
        self._read = None
        return message

    def _note(self, event: AgentEvent) -> None:
        match event:
            case PhaseChanged(phase=phase):
                self._told_phase = phase
                self._idle_reported.clear()
                if phase == "PREPARING":
                    self._run_reported.clear()
                elif phase == "IDLE":
                    self._idle_reported.set()
                    self._run_reported.set()
            case Failed():
                # ``Finished`` is not the end, because background jobs and samples still
                # send records.
                self._run_reported.set()

    async def prepare(self, plan: AgentPlan) -> Bindings:
        """Send the agent its plan and wait until it has opened all ports.

        Returns:
            The agent's ends of the queue pairs on RDMA NICs.

        Raises:
            PlanError: If the plan is invalid, or too long for a message.
            AgentError: If the agent cannot be reached or is busy.
            ChakramError: If the agent refuses the plan for another reason.
        """
        await self.attach()
        request = pb.PrepareRequest(session=self.session, plan=encode_plan(plan))
        length = request.ByteSize()
        if length > MAX_MESSAGE_BYTES:
            raise PlanError(
                f"plan {plan.run_id}: agent {plan.agent}",
                f"it takes {about_size(length)}, but a message has at most "
                f"{format_size(MAX_MESSAGE_BYTES)}",
                "spread the ranks over more agents",
            )
        reply = await self._call(
            self._stub.Prepare, request, timeout_s=PREPARE_TIMEOUT_S
        )
        return decode_reply(reply, where=self.where)

    async def connect_queue_pairs(self, peers: Peers) -> None:
        """Connect the queue pairs that have an end on an RDMA NIC.

        Raises:
            AgentError: If the agent cannot be reached.
            ChakramError: If a queue pair cannot be connected.
        """
        request = encode_request(peers)
        request.session = self.session
        await self._call(self._stub.Connect, request, timeout_s=PREPARE_TIMEOUT_S)

    async def arm(self, start_ns: int) -> None:
        """Schedule the start of all ranks at *start_ns* on the agent's clock.

        Raises:
            AgentError: If *start_ns* is out of range, or the agent cannot be reached.
        """
        request = pb.ArmRequest(session=self.session, start_ns=start_ns)
        request.jobs.extend(self.jobs)
        await self._call(self._stub.Arm, request)

    async def abort(self, reason: str) -> None:
        """End the run and wait until the agent's traffic has ended.

        If another task is reading the events, the call also waits until that task has
        all records of the run. No session is necessary. If no run is active, the call
        does nothing.

        Raises:
            AgentError: If the agent does not answer, or reading the records takes too
                long.
        """
        await self._call(self._stub.Abort, pb.AbortRequest(reason=reason))
        if self._reading:
            await self._read_rest(self._run_reported)

    async def reset(self) -> None:
        """Discard the run and wait until the agent is ready for the next plan.

        If another task is reading the events, the call also waits until that task has
        all records of the run. Otherwise, it discards unread events of the run.

        Raises:
            AgentError: If the connection is lost, or reading the records takes too
                long.
            UnexpectedEvent: If a run is active. Abort the run first.
        """
        await self._call(self._stub.Reset, pb.ResetRequest(session=self.session))
        if self._reading:
            await self._read_rest(self._idle_reported)
            if self._told_phase != "IDLE":
                raise AgentError(self.where, "the connection was lost")
        elif self._watch is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(SKIP_TIMEOUT_S):
                    await self._skip_told()

    async def _read_rest(self, is_reported: asyncio.Event) -> None:
        """Wait until ``events`` has received everything about the run."""
        try:
            async with asyncio.timeout(LAST_ROWS_TIMEOUT_S):
                while not is_reported.is_set():
                    await self._hear_or_ask(is_reported)
        except TimeoutError:
            raise AgentError(
                self.where,
                f"its records could not be read within {LAST_ROWS_TIMEOUT_S:g} s",
                "is the controller's host busy, or the path to the agent slow?",
            ) from None

    async def _hear_or_ask(self, is_reported: asyncio.Event) -> None:
        """Wait for more messages, and check the agent if there are none.

        The client tolerates a slow agent or connection, but not an agent that hangs.

        Raises:
            AgentError: If no message arrives and the agent does not answer a ping.
        """
        heard = self._heard
        with suppress(TimeoutError):
            async with asyncio.timeout(QUIET_S):
                await is_reported.wait()
        if is_reported.is_set() or self._heard > heard:
            return
        try:
            await self._call(self._stub.ClockPing, pb.ClockPingRequest())
        except AgentError:
            if self._heard == heard:
                raise

    async def _skip_told(self) -> None:
        """Read and discard all events up to the end of the run."""
        was_busy = self._told_phase not in ("", "IDLE")
        async with aclosing(self.events()) as events:
            async for event in events:
                if isinstance(event, PhaseChanged):
                    if event.phase == "IDLE" and was_busy:
                        self._note(event)
                        return
                    was_busy = was_busy or event.phase != "IDLE"

    @property
    def shares_clock(self) -> bool:
        """Whether the agent reads the same clock as the controller."""
        return bool(self.description.clock) and (self.description.clock == host_clock())

    async def send_pings(self, count: int = 8) -> list[PingTimes]:
        """Exchange a few pings with the agent, one after the other.

        Raises:
            AgentError: If the agent does not answer, or if its clock jumps between the
                arrival of a ping and the answer.
        """
        ping = self.ping or self._ping_by_call
        pings = [await ping() for _ in range(count)]
        shortest_ns = min(each.round_trip_ns for each in pings)
        if shortest_ns < 0:
            raise AgentError(
                self.where,
                f"its clock is not usable: a round trip took {shortest_ns} ns",
                "was its host suspended, or its clock set?",
            )
        return pings

    async def _ping_by_call(self) -> PingTimes:
        sent_ns = time.monotonic_ns()
        pong = await self._call(self._stub.ClockPing, pb.ClockPingRequest())
        return PingTimes(
            sent_ns=sent_ns,
            remote_received_ns=pong.received_ns,
            remote_sent_ns=pong.sent_ns,
            answered_ns=time.monotonic_ns(),
        )

    async def close(self) -> None:
        """End the session and the connection. Later calls have no effect."""
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
        # A busy host may need longer, but nothing depends on this connection.
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self.channel.close(None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
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
        """Convert exceptions of gRPC to Chakram errors."""
        try:
            yield
        except AioRpcError as error:
            raise self._translated(error) from error
        except asyncio.InvalidStateError as error:
            # grpc.aio raises this for a write to a call that has just ended.
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
                "it has ended, or its host is unreachable; see the agent's log",
            )
        found, hint = explain(error, target=self.target, tls=self.tls)
        return AgentError(self.where, found, hint)


async def _read(call: StreamStreamCall[pb.Heartbeat, pb.AgentEvent]) -> object:
    return await call.read()
