"""The agent as a gRPC server: a thin shell around ``chakram_agent.agent``."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import platform
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeAlias

import grpc

import chakram
from chakram._compiled import status as compiled_status
from chakram.control.error_details import METADATA_KEY, encode_error
from chakram.control.event_codec import encode_description, encode_event
from chakram.control.events import AgentDescription
from chakram.control.plan_codec import decode_plan
from chakram.control.protocol_messages import PROTOCOL_VERSION, pb
from chakram.control.service import (
    SERVER_OPTIONS,
    AgentServicer,
    TlsFiles,
    add_AgentServicer_to_server,
    host_clock,
    is_local,
    server_context,
)
from chakram.foundation.errors import (
    AgentError,
    ChakramError,
    ConfigError,
    EnvironmentProblem,
    InputError,
    PortInUse,
    PrivilegeError,
    UnexpectedEvent,
)
from chakram_agent.agent import Agent
from chakram_agent.dataplane.open_port import PORT_KINDS
from chakram_agent.state import TRAFFIC_LEASE_NS
from chakram_agent.tls_gate import Gate

if TYPE_CHECKING:
    from chakram_agent.agent import Session
    from chakram_agent.metrics_endpoint import AgentMetrics
    from chakram_agent.send_limits import Policy

    Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]


log = logging.getLogger(__name__)

FIRST_HEARTBEAT_S = 5.0
CLOSE_GRACE_S = 0.5
MAX_NAME = 200
_BACKLOG = 512

_CODES: tuple[tuple[type[ChakramError], grpc.StatusCode], ...] = (
    (UnexpectedEvent, grpc.StatusCode.FAILED_PRECONDITION),
    (InputError, grpc.StatusCode.INVALID_ARGUMENT),
    (PrivilegeError, grpc.StatusCode.PERMISSION_DENIED),
    (EnvironmentProblem, grpc.StatusCode.FAILED_PRECONDITION),
    (ChakramError, grpc.StatusCode.ABORTED),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """How an agent listens.

    Attributes:
        listen: ``unix:/path`` or ``host:port``; port 0 takes a free one.
        tls: Certificates; None only where nobody from outside can connect.
        insecure: Whether every local user may command it: TCP on loopback without
            certificates.
        policy: What the agent allows.
        pin: Whether each data-plane process keeps to one core.
        traffic_lease_ns: How long heartbeats may be away while there is traffic.
    """

    listen: str
    tls: TlsFiles | None
    policy: Policy
    insecure: bool = False
    pin: bool = False
    traffic_lease_ns: int = TRAFFIC_LEASE_NS


class AgentService(AgentServicer):
    """The calls of a controller."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    async def Describe(
        self, request: pb.DescribeRequest, context: Context
    ) -> pb.Description:
        """Say who the agent is."""
        return encode_description(describe(self._agent))

    async def ClockPing(
        self, request: pb.ClockPingRequest, context: Context
    ) -> pb.ClockPong:
        """Say what the clock shows."""
        received_ns = time.monotonic_ns()
        return pb.ClockPong(received_ns=received_ns, sent_ns=time.monotonic_ns())

    async def Prepare(
        self, request: pb.PrepareRequest, context: Context
    ) -> pb.PrepareReply:
        """Take a plan and open its ports."""
        async with _refusals(context):
            plan = decode_plan(request.plan)
            await self._agent.prepare(request.session, plan)
        return pb.PrepareReply()

    async def Arm(self, request: pb.ArmRequest, context: Context) -> pb.ArmReply:
        """Take the time of the start."""
        async with _refusals(context):
            self._agent.arm(request.session, request.start_ns)
        return pb.ArmReply()

    async def Abort(self, request: pb.AbortRequest, context: Context) -> pb.AbortReply:
        """End the traffic."""
        async with _refusals(context):
            await self._agent.abort(request.reason[:MAX_NAME] or "aborted")
        return pb.AbortReply()

    async def Reset(self, request: pb.ResetRequest, context: Context) -> pb.ResetReply:
        """Forget the run."""
        async with _refusals(context):
            await self._agent.reset(request.session)
        return pb.ResetReply()

    async def Watch(
        self,
        requests: AsyncIterator[pb.Heartbeat],
        context: Context,
    ) -> AsyncIterator[pb.AgentEvent]:
        """Hold a session: heartbeats in, events out."""
        async with _refusals(context):
            session = await self._begin(requests)
            reader = asyncio.create_task(
                self._read_heartbeats(requests, session), name="heartbeats"
            )
            try:
                while events := await session.take():
                    for event in events:
                        yield encode_event(event)
            finally:
                reader.cancel()
                await asyncio.gather(reader, return_exceptions=True)
                self._agent.detach(session.name)
            raise AgentError("session", session.ended or "it has ended")

    async def _begin(self, requests: AsyncIterator[pb.Heartbeat]) -> Session:
        try:
            async with asyncio.timeout(FIRST_HEARTBEAT_S):
                first = await anext(aiter(requests))
        except (TimeoutError, StopAsyncIteration):
            raise AgentError("session", "it began without a heartbeat") from None
        if not 0 < len(first.session) <= MAX_NAME:
            raise AgentError("session", "it has no name")
        return await self._agent.attach(first.session, first.controller[:MAX_NAME])

    async def _read_heartbeats(
        self, requests: AsyncIterator[pb.Heartbeat], session: Session
    ) -> None:
        try:
            async for heartbeat in requests:
                self._agent.heartbeat(heartbeat.session)
        except AgentError:
            pass  # the lease has run out; the session says so
        self._agent.detach(session.name)


@asynccontextmanager
async def _refusals(context: Context) -> AsyncIterator[None]:
    """Answer errors of ours with a status that carries them whole."""
    try:
        yield
    except ChakramError as error:
        log.info("refused a call error=%s", error)
        await context.abort(
            next(code for kind, code in _CODES if isinstance(error, kind)),
            # HTTP/2 headers hold about 8 KiB, and the whole error travels beside this.
            str(error)[:500],
            trailing_metadata=((METADATA_KEY, encode_error(error)),),
        )


def describe(agent: Agent) -> AgentDescription:
    """Return what the agent says about itself."""
    compiled = compiled_status()
    now_ns = time.monotonic_ns()
    policy = agent.policy
    cores = len(os.sched_getaffinity(0))
    return AgentDescription(
        protocol=PROTOCOL_VERSION,
        version=chakram.__version__,
        host=socket.gethostname(),
        kernel=platform.release(),
        python=platform.python_version(),
        cores=cores,
        compiled=compiled.is_compiled(),
        uncompiled_modules=tuple(
            name for name, state in compiled.modules.items() if state != "compiled"
        ),
        port_kinds=PORT_KINDS,
        allow=tuple(str(prefix) for prefix in policy.allow),
        max_rate_bps=policy.max_rate_bps,
        free_shards=max(1, cores - 1),
        phase=agent.phase_name,
        monotonic_ns=now_ns,
        receive_buffer_bytes=_largest_buffer(),
        clock=host_clock(),
        stalled_ns=agent.stalls.longest_ns(now_ns),
        ended_session=agent.ended_session,
        ended_reason=agent.ended_reason,
    )


def _largest_buffer() -> int | None:
    """Return net.core.rmem_max, which bounds who may not force."""
    try:
        return int(Path("/proc/sys/net/core/rmem_max").read_text())
    except (OSError, ValueError):
        return None


async def serve(
    options: ServeOptions,
    *,
    ready: Callable[[str], None],
    stop: asyncio.Event,
    metrics: AgentMetrics | None = None,
) -> None:
    """Listen until *stop* is set; then end all traffic and go.

    Args:
        options: Where to listen, for whom.
        ready: Called with the address once controllers can connect.
        stop: Set by a signal, or by a test.
        metrics: Where the counters go; None: to the controller alone.

    Raises:
        ConfigError: If it would listen to the world without certificates, or to all
            local users without having been told to.
        PortInUse: If another process listens there.
        EnvironmentProblem: If it cannot listen there for another reason.
    """
    _refuse_strangers(options)
    server = grpc.aio.server(options=SERVER_OPTIONS)
    with ExitStack() as stack:
        gate = None
        if options.tls is None:
            address = bind(server, options.listen)
            if address.startswith("unix:"):
                path = Path(address.removeprefix("unix:"))
                stack.callback(path.unlink, missing_ok=True)
        else:
            inner = f"{stack.enter_context(TemporaryDirectory(prefix='chakram-'))}/grpc"
            context = server_context(options.tls)
            listener = stack.enter_context(_listener(options.listen))
            address = f"{_host(options.listen)}:{listener.getsockname()[1]}"
            bind(server, f"unix:{inner}")
            gate = partial(Gate, listener, context, inner)
        try:
            async with asyncio.TaskGroup() as tasks:
                agent = Agent(
                    options.policy,
                    tasks,
                    pin=options.pin,
                    traffic_lease_ns=options.traffic_lease_ns,
                    metrics=metrics,
                )
                add_AgentServicer_to_server(AgentService(agent), server)
                await server.start()
                own = [tasks.create_task(agent.keep_time(), name="time")]
                if gate is not None:
                    own.append(tasks.create_task(gate(tasks).serve(), name="gate"))
                ready(address)
                await stop.wait()
                await agent.shut_down("the agent is shutting down")
                await server.stop(CLOSE_GRACE_S)
                for task in own:
                    task.cancel()
        finally:
            # After a failure above; ends at once where it has been stopped before.
            await server.stop(0)


def _refuse_strangers(options: ServeOptions) -> None:
    """Listen only where those can connect who may command the agent.

    Raises:
        ConfigError: If others could as well.
    """
    if options.tls is not None or options.listen.startswith("unix:"):
        return
    where = f"--listen {options.listen}"
    if not is_local(options.listen):
        raise ConfigError(
            where,
            "without certificates an agent listens on Unix sockets and loopback only",
            "give --tls-ca, --tls-cert and --tls-key (chakram certs makes them)",
        )
    if not options.insecure:
        raise ConfigError(
            where,
            "without certificates every local user could command the agent there",
            "listen on unix:/path, give --tls-ca, --tls-cert and --tls-key (chakram "
            "certs makes them), or say --insecure",
        )
    log.warning(
        "%s: there are no certificates: every local user can command this agent", where
    )


def bind(server: grpc.aio.Server, listen: str) -> str:
    """Open the listening socket; return its address, with the port that it got.

    Raises:
        PortInUse: If another process listens there.
        EnvironmentProblem: If it cannot listen there for another reason.
    """
    if listen.startswith("unix:"):
        _clear_unix_socket(listen.removeprefix("unix:"))
    try:
        # Any process that can open the socket can command the agent: the owner only.
        before = os.umask(0o177)
        try:
            port = server.add_insecure_port(listen)
        finally:
            os.umask(before)
    except RuntimeError as error:
        raise _why_not(listen) from error
    if listen.startswith("unix:"):
        return listen
    return f"{_host(listen)}:{port}"


def _host(listen: str) -> str:
    return listen.rpartition(":")[0]


def _listener(listen: str) -> socket.socket:
    """Return the socket of an address ``host:port``; ``::`` takes IPv4 as well.

    Raises:
        PortInUse: If another process listens there.
        EnvironmentProblem: If it cannot listen there for another reason.
        ConfigError: If that is no address.
    """
    host, _, port = listen.rpartition(":")
    try:
        family, _, _, _, address = socket.getaddrinfo(
            host.strip("[]"),
            int(port),
            type=socket.SOCK_STREAM,
            flags=socket.AI_PASSIVE,
        )[0]
        listener = socket.create_server(
            address[:2],
            family=family,
            backlog=_BACKLOG,
            dualstack_ipv6=family == socket.AF_INET6 and address[0] == "::",
        )
    except (OSError, ValueError, OverflowError) as error:
        raise _why_not(listen) from error
    listener.setblocking(False)
    return listener


def _clear_unix_socket(path: str) -> None:
    """Remove a socket that nobody listens on any more.

    Raises:
        PortInUse: If somebody does.
        EnvironmentProblem: If something else is there.
    """
    place = Path(path)
    if not place.exists():
        return
    if not place.is_socket():
        raise EnvironmentProblem(
            f"--listen unix:{path}", "there is a file of that name", "choose another"
        )
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(path)
        except OSError:
            with suppress(OSError):
                place.unlink()
            return
    raise PortInUse(
        f"unix:{path}", "another agent listens there", "end it, or choose another path"
    )


def _why_not(listen: str) -> ChakramError:
    """Find out why gRPC could not listen: it does not say."""
    where = f"--listen {listen}"
    if listen.startswith("unix:"):
        return EnvironmentProblem(
            where,
            "cannot listen there",
            "is the folder there, and the path shorter than 108 bytes?",
        )
    host, _, port = listen.rpartition(":")
    try:
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    except (OSError, ValueError) as error:
        return ConfigError(where, f"that is no address ({error})", "e.g. 0.0.0.0:7411")
    family, kind, protocol, _, address = found[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return PortInUse(
                    listen,
                    "another program listens there",
                    "end it, or choose another port",
                )
            if error.errno == errno.EADDRNOTAVAIL:
                return EnvironmentProblem(where, "no interface has that address")
            return EnvironmentProblem(where, f"cannot listen there ({error.strerror})")
    return EnvironmentProblem(where, "cannot listen there")
