"""The gRPC server of the agent, which passes calls to ``chakram_agent.agent``."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import platform
import socket
import stat
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import ExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import grpc

import chakram
from chakram._compiled import status as compiled_status
from chakram.control import grpc_service
from chakram.control.error_details import METADATA_KEY, clipped, encode_error
from chakram.control.event_codec import encode_description, encode_event, encode_ports
from chakram.control.events import AgentDescription
from chakram.control.plan_codec import decode_plan
from chakram.control.protobuf_messages import PROTOCOL_VERSION, pb
from chakram.control.queue_pair_codec import decode_request, encode_reply
from chakram.control.time_daemons import time_source, wall_ahead_ns
from chakram.control.wall_clock_sync import TimeSource
from chakram.fabric.inventory.reported_interfaces import HostPorts
from chakram.foundation import errors
from chakram.foundation.socket_folder import socket_folder
from chakram_agent.agent import Agent, Session
from chakram_agent.agent_clock import clock_name, monotonic_ns
from chakram_agent.serve_options import ServeOptions
from chakram_agent.shard_handle import ForkServers
from chakram_agent.tls_gate import Gate

if TYPE_CHECKING:
    from chakram.control.call_home.token_file import TokenFile
    from chakram_agent.call_home import CallHome
    from chakram_agent.fork_server import ForkServer
    from chakram_agent.metrics_endpoint import AgentMetrics

    Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]


log = logging.getLogger(__name__)

FIRST_HEARTBEAT_S = 5.0
CLOSE_GRACE_S = 0.5
MAX_NAME = 200
_BACKLOG = 512
_HINT_OF_PATHS = (
    "check that the folder exists and that the path is shorter than 108 bytes"
)

_CODES: tuple[tuple[type[errors.ChakramError], grpc.StatusCode], ...] = (
    (errors.UnexpectedEvent, grpc.StatusCode.FAILED_PRECONDITION),
    (errors.InputError, grpc.StatusCode.INVALID_ARGUMENT),
    (errors.PrivilegeError, grpc.StatusCode.PERMISSION_DENIED),
    (errors.EnvironmentProblem, grpc.StatusCode.FAILED_PRECONDITION),
    (errors.ChakramError, grpc.StatusCode.ABORTED),
)


class AgentService:
    """Handler of the gRPC calls from a controller."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    async def Describe(
        self, request: pb.DescribeRequest, context: Context
    ) -> pb.Description:
        """Return a description of the agent."""
        self._agent.saw_controller()
        return encode_description(describe(self._agent, await time_source()))

    async def ListPorts(
        self, request: pb.ListPortsRequest, context: Context
    ) -> pb.HostPorts:
        """Return the network interfaces of the host."""
        self._agent.saw_controller()
        # Import on demand, because the module loads a netlink library.
        from chakram_agent.host_ports import host_ports

        async with _refusals(context):
            ports = await asyncio.to_thread(host_ports)
        return encode_ports(HostPorts(ports=ports))

    async def ClockPing(
        self, request: pb.ClockPingRequest, context: Context
    ) -> pb.ClockPong:
        """Return the times at which the ping arrived and the reply left."""
        received_ns = monotonic_ns()
        self._agent.saw_controller()
        return pb.ClockPong(received_ns=received_ns, sent_ns=monotonic_ns())

    async def Prepare(
        self, request: pb.PrepareRequest, context: Context
    ) -> pb.PrepareReply:
        """Accept a plan and open its ports."""
        async with _refusals(context):
            plan = decode_plan(request.plan)
            bindings = await self._agent.prepare(request.session, plan)
        return encode_reply(bindings)

    async def Connect(
        self, request: pb.ConnectRequest, context: Context
    ) -> pb.ConnectReply:
        """Connect the queue pairs that have an end on an RDMA NIC."""
        async with _refusals(context):
            await self._agent.connect(request.session, decode_request(request))
        return pb.ConnectReply()

    async def Arm(self, request: pb.ArmRequest, context: Context) -> pb.ArmReply:
        """Accept the start time."""
        async with _refusals(context):
            self._agent.arm(request.session, request.start_ns, request.jobs)
        return pb.ArmReply()

    async def Abort(self, request: pb.AbortRequest, context: Context) -> pb.AbortReply:
        """End the traffic."""
        async with _refusals(context):
            await self._agent.abort(request.reason[:MAX_NAME] or "aborted")
        return pb.AbortReply()

    async def Reset(self, request: pb.ResetRequest, context: Context) -> pb.ResetReply:
        """Discard the run."""
        async with _refusals(context):
            await self._agent.reset(request.session)
        return pb.ResetReply()

    async def Watch(
        self,
        requests: AsyncIterator[pb.Heartbeat],
        context: Context,
    ) -> AsyncIterator[pb.AgentEvent]:
        """Run a session, which receives heartbeats and sends events."""
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
            raise errors.AgentError("session", session.ended or "it has ended")

    async def _begin(self, requests: AsyncIterator[pb.Heartbeat]) -> Session:
        try:
            async with asyncio.timeout(FIRST_HEARTBEAT_S):
                first = await anext(aiter(requests))
        except (TimeoutError, StopAsyncIteration):
            raise errors.AgentError(
                "session", "it started without a heartbeat"
            ) from None
        if not 0 < len(first.session) <= MAX_NAME:
            raise errors.AgentError("session", "it has no name")
        return await self._agent.attach(first.session, first.controller[:MAX_NAME])

    async def _read_heartbeats(
        self, requests: AsyncIterator[pb.Heartbeat], session: Session
    ) -> None:
        try:
            async for heartbeat in requests:
                self._agent.heartbeat(heartbeat.session, heartbeat.jobs)
        except errors.AgentError:
            pass  # the lease has lapsed, and the end of the session reports this
        self._agent.detach(session.name)


@asynccontextmanager
async def _refusals(context: Context) -> AsyncIterator[None]:
    """Convert a Chakram error to a gRPC status whose metadata contain the error."""
    try:
        yield
    except errors.ChakramError as error:
        log.info("refused a call error=%s", error)
        await context.abort(
            next(code for kind, code in _CODES if isinstance(error, kind)),
            # Shorten the text, because HTTP/2 headers have a limit of about 8 KiB, and
            # gRPC encodes each non-ASCII byte as three bytes. The metadata contain the
            # whole error.
            clipped(str(error), 300),
            trailing_metadata=((METADATA_KEY, encode_error(error)),),
        )


def describe(
    agent: Agent, synchronized_by: TimeSource | None = None
) -> AgentDescription:
    """Return the description of the agent."""
    cpus = os.sched_getaffinity(0)
    return AgentDescription(
        protocol=PROTOCOL_VERSION,
        version=chakram.__version__,
        host=socket.gethostname(),
        kernel=platform.release(),
        python=platform.python_version(),
        cores=len(cpus),
        compiled=compiled_status().is_compiled(),
        max_rate_bps=agent.policy.max_rate_bps,
        phase=agent.phase_name,
        clock=clock_name(),
        stalled_ns=agent.stalls.longest_ns(monotonic_ns()),
        ended_session=agent.ended_session,
        ended_reason=agent.ended_reason,
        bundle=bundle_digest(Path(chakram.__file__).parents[2]),
        numa_nodes=numa_nodes(cpus),
        wall_ahead_ns=wall_ahead_ns(monotonic_ns),
        time_source=synchronized_by,
    )


def numa_nodes(
    cpus: Collection[int], folder: Path = Path("/sys/devices/system/cpu")
) -> tuple[int, ...]:
    """Return the numbers of the NUMA nodes that these CPUs belong to."""
    links = (link for cpu in cpus for link in folder.glob(f"cpu{cpu}/node[0-9]*"))
    return tuple(sorted({int(link.name.removeprefix("node")) for link in links}))


def bundle_digest(folder: Path) -> str:
    """Return the digest of the agent bundle in a folder, or an empty text if none."""
    try:
        digest = json.loads((folder / "bundle.json").read_text())["digest"]
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    return str(digest)


async def serve(
    options: ServeOptions,
    *,
    ready: Callable[[str], None],
    stop: asyncio.Event,
    metrics: AgentMetrics | None = None,
    fork_server: ForkServer | None = None,
) -> None:
    """Listen until *stop* is set. Then end all traffic and return.

    The agent sets *stop* itself if it has no controller for too long.

    Args:
        options: Listen address, security and limits of the agent.
        ready: Function that gets the address as soon as controllers can connect. If the
            agent calls its controller, this is the address of the controller.
        stop: Event that a signal or a test sets.
        metrics: Metrics endpoint that also gets the counters. May be None.
        fork_server: Process that starts the shards. It ends with the agent. If None,
            the agent starts one as a new interpreter for the first shard.

    Raises:
        ConfigError: If remote hosts could connect without certificates. Also if local
            users could do so and ``insecure`` is not set.
        PortInUse: If another process listens on the address.
        EnvironmentProblem: If the agent cannot listen there for another reason.
        AgentError: If the controller cannot be reached or refuses the agent.
    """
    _check_listen_address(options)
    server = grpc.aio.server(options=grpc_service.SERVER_OPTIONS)
    with ExitStack() as stack:
        servers = ForkServers(fork_server)
        stack.callback(servers.close)
        gate = home = None
        if options.home is not None:
            inner = f"{stack.enter_context(socket_folder())}/grpc"
            bind(server, f"unix:{inner}")
            home = await _at_home(options.home, inner, stop)
            if home is None:
                return
            address = home.controllers[0]
        elif options.tls is None:
            address = bind(server, options.listen)
            if address.startswith("unix:"):
                path = Path(address.removeprefix("unix:"))
                stack.callback(path.unlink, missing_ok=True)
        else:
            inner = f"{stack.enter_context(socket_folder())}/grpc"
            context = grpc_service.server_context(options.tls)
            listener = stack.enter_context(_listener(options.listen))
            address = f"{_host(options.listen)}:{listener.getsockname()[1]}"
            bind(server, f"unix:{inner}")
            gate = partial(Gate, listener, context, inner)
        try:
            async with asyncio.TaskGroup() as tasks:
                agent = Agent(
                    options.policy,
                    tasks,
                    servers,
                    pin=options.pin,
                    traffic_lease_ns=options.traffic_lease_ns,
                    idle_lease_ns=options.idle_lease_ns,
                    abandoned=stop,
                    metrics=metrics,
                )
                grpc_service.serve_agent(AgentService(agent), server)
                await server.start()
                own = [tasks.create_task(agent.keep_time(), name="time")]
                if gate is not None:
                    own.append(tasks.create_task(gate(tasks).serve(), name="gate"))
                if home is not None:
                    own.append(
                        tasks.create_task(home.stay(agent.saw_controller), name="home")
                    )
                ready(address)
                await stop.wait()
                await agent.shut_down("the agent is shutting down")
                await server.stop(CLOSE_GRACE_S)
                for task in own:
                    task.cancel()
        finally:
            # Stop the server after a failure above. If the server has already stopped,
            # the call returns at once.
            await server.stop(0)


async def _at_home(
    token: TokenFile, inner: str, stop: asyncio.Event
) -> CallHome | None:
    """Return connections to the controller, or None if *stop* is set first.

    Raises:
        AgentError: If the controller cannot be reached or refuses the agent.
    """
    # Import on demand, because only a launched agent makes keys.
    from chakram_agent.call_home import CallHome

    def end(reason: str) -> None:
        log.info("the controller ends this agent reason=%s", reason)
        stop.set()

    home = CallHome(token, inner=inner, end=end)
    enrolling = asyncio.create_task(home.enroll(), name="enroll")
    stopping = asyncio.create_task(stop.wait(), name="stop")
    await asyncio.wait((enrolling, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not enrolling.done():
        enrolling.cancel()
        return None
    enrolling.result()
    return home


def _check_listen_address(options: ServeOptions) -> None:
    """Refuse a listen address that unauthorized clients could connect to.

    Raises:
        ConfigError: If *options* allow unauthorized clients to connect.
    """
    if options.tls is not None or options.home is not None:
        return
    if options.listen.startswith("unix:"):
        return
    where = f"--listen {options.listen}"
    if not grpc_service.is_local(options.listen):
        raise errors.ConfigError(
            where,
            "without certificates, an agent listens only on Unix sockets and loopback "
            "addresses",
            "give --tls-ca, --tls-cert and --tls-key (create the files with chakram "
            "certs)",
        )
    if not options.insecure:
        raise errors.ConfigError(
            where,
            "without certificates, every local user could control the agent at this "
            "address",
            "listen on unix:/path, give --tls-ca, --tls-cert and --tls-key (create the "
            "files with chakram certs), or give --insecure",
        )
    log.warning("%s: no certificates: every local user can control this agent", where)


def bind(server: grpc.aio.Server, listen: str) -> str:
    """Open the listening socket and return its address with the actual port.

    Raises:
        PortInUse: If another process listens on the address.
        EnvironmentProblem: If the agent cannot listen there for another reason.
    """
    if listen.startswith("unix:"):
        _clear_unix_socket(listen.removeprefix("unix:"))
    try:
        # Allow only the owner to open the socket, because a process that can open it
        # can command the agent.
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
    """Return a socket that listens on ``host:port``. Host ``::`` also accepts IPv4.

    Raises:
        PortInUse: If another process listens on the address.
        EnvironmentProblem: If the agent cannot listen there for another reason.
        ConfigError: If *listen* is not a valid address.
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
    """Remove a socket file that no process listens on.

    Raises:
        PortInUse: If a process listens on the socket.
        EnvironmentProblem: If the path is not a socket, or cannot be used.
    """
    where = f"--listen unix:{path}"
    place = Path(path)
    try:
        is_socket = stat.S_ISSOCK(place.stat().st_mode)
    except FileNotFoundError:
        return
    except OSError as error:
        raise errors.EnvironmentProblem(
            where, f"cannot listen there ({error.strerror})", _HINT_OF_PATHS
        ) from error
    if not is_socket:
        raise errors.EnvironmentProblem(
            where,
            "a file with that name exists",
            "choose another path",
        )
    with socket.socket(socket.AF_UNIX) as probe:
        # The process may be too busy to accept connections, or belong to another user.
        probe.setblocking(False)
        number = probe.connect_ex(path)
    if number == errno.ECONNREFUSED:
        with suppress(OSError):
            place.unlink()
        return
    raise errors.PortInUse(
        f"unix:{path}", "another agent listens there", "end it, or choose another path"
    )


def _why_not(listen: str) -> errors.ChakramError:
    """Return an error that explains why the agent cannot listen, which gRPC omits."""
    where = f"--listen {listen}"
    if listen.startswith("unix:"):
        return errors.EnvironmentProblem(where, "cannot listen there", _HINT_OF_PATHS)
    host, _, port = listen.rpartition(":")
    try:
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    except (OSError, ValueError) as error:
        return errors.ConfigError(
            where, f"that is not a valid address ({error})", "e.g. 0.0.0.0:7411"
        )
    family, kind, protocol, _, address = found[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return errors.PortInUse(
                    listen,
                    "another program listens there",
                    "end it, or choose another port",
                )
            if error.errno == errno.EADDRNOTAVAIL:
                return errors.EnvironmentProblem(where, "no interface has that address")
            return errors.EnvironmentProblem(
                where, f"cannot listen there ({error.strerror})"
            )
    return errors.EnvironmentProblem(where, "cannot listen there")
