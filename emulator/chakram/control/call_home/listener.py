"""The controller's side of call home: agents arrive, enroll, and wait for calls."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self
from weakref import WeakSet

import chakram
from chakram.control.call_home.frames import read_frame, write_frame
from chakram.control.call_home.run_certificate_authority import RunAuthority, agent_name
from chakram.control.clock_pings import PingTimes
from chakram.control.connection_eviction import MOST_WAITING
from chakram.control.connection_relay import (
    CHUNK_BYTES,
    Streams,
    close,
    keep_alive,
    splice,
)
from chakram.control.error_details import error_message
from chakram.control.protobuf_messages import PROTOCOL_VERSION, pb
from chakram.control.tls_acceptor import TlsAcceptor, Visit
from chakram.foundation.errors import AgentError, ChakramError, EnvironmentProblem
from chakram.foundation.ip_addresses import socket_text
from chakram.foundation.open_file_limit import allow_descriptors

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

    from chakram.control.call_home.enrollment import Enrollment

log = logging.getLogger(__name__)

_HELLO_TIMEOUT_S = 5.0
_COMMANDS_TIMEOUT_S = 5.0
"""Longest time to wait for a connection of an agent that a call can use."""
_PING_TIMEOUT_S = 5.0
_END_TIMEOUT_S = 1.0
_BACKLOG = 512
_LONGEST_TEXT = 253
"""Maximum length of an agent's name and of its version, as for host names."""
_MOST_OTHER_REFUSALS = 64
"""Limit on refusals to remember, in addition to one per expected agent."""
_CONNECTIONS_OF_AGENT = 3
"""Number of connections that an agent may open at the same time: for enrollment, for
calls, and for control."""
_DESCRIPTORS_OF_AGENT = 16
"""Limit on descriptors per agent. An agent needs two connections, three sockets for
calls, and the pipes of its launcher. Each of these may briefly exist twice."""


@dataclass(slots=True, eq=False)
class CalledAgent:
    """An expected agent, which may already have connected.

    Attributes:
        name: Name of the agent's host.
        target: Address to which ``AgentClient`` sends the calls for the agent.
        version: Version of Chakram on the agent's host. Empty until the agent has
            connected.
        launcher: Launcher of the agent, as reported by the agent.
        log: Function that is called with the agent's name and lines of its log.
        commands: Connections from the agent that no call uses yet.
    """

    name: str
    target: str
    log: Callable[[str, str], None]
    version: str = ""
    launcher: str = ""
    commands: asyncio.Queue[Streams] = field(default_factory=asyncio.Queue)
    _control: asyncio.StreamWriter | None = None
    _pongs: asyncio.Queue[tuple[pb.Pong, int]] = field(default_factory=asyncio.Queue)
    _pinging: asyncio.Lock = field(default_factory=asyncio.Lock)
    _unanswered: int = 0

    @property
    def is_here(self) -> bool:
        """Whether the agent is connected and waits for calls."""
        return self._control is not None

    async def ping(self) -> PingTimes:
        """Exchange one ping with the agent, independent of its calls.

        Raises:
            AgentError: If the agent does not answer.
        """
        async with self._pinging:
            while not self._pongs.empty():
                self._pongs.get_nowait()
            if self._control is None:
                raise AgentError(f"agent {self.name}", "the connection was lost")
            sent_ns = time.monotonic_ns()
            write_frame(self._control, pb.Control(ping=True))
            self._unanswered += 1
            try:
                async with asyncio.timeout(_PING_TIMEOUT_S):
                    pong, answered_ns = await self._pongs.get()
            except TimeoutError:
                raise AgentError(
                    f"agent {self.name}",
                    f"did not answer a ping within {_PING_TIMEOUT_S:g} s",
                    "is its host overloaded, or the path to it slow?",
                ) from None
        return PingTimes(
            sent_ns=sent_ns,
            remote_received_ns=pong.received_ns,
            remote_sent_ns=pong.sent_ns,
            answered_ns=answered_ns,
        )

    async def end(self, reason: str) -> None:
        """Ask the agent to end itself."""
        if self._control is None:
            return
        with suppress(OSError, TimeoutError):
            write_frame(self._control, pb.Control(end=reason))
            async with asyncio.timeout(_END_TIMEOUT_S):
                await self._control.drain()

    async def carry(self, caller: Streams) -> None:
        """Forward a connection of ``AgentClient`` over a connection of the agent."""
        try:
            async with asyncio.timeout(_COMMANDS_TIMEOUT_S):
                while True:
                    called = await self.commands.get()
                    reader = called[0]
                    # A connection that was reset has an exception instead of an end.
                    if not reader.at_eof() and reader.exception() is None:
                        break
                    await close(called[1])
        except TimeoutError:
            log.info("no connection of the agent name=%s", self.name)
            await close(caller[1])
            return
        await splice(caller, called)

    async def control(self, streams: Streams, authority: RunAuthority) -> None:
        """Handle the agent's control connection until it ends."""
        reader, writer = streams
        before, self._control = self._control, writer
        self._unanswered = 0
        if before is not None:
            await close(before)
        where = f"agent {self.name}"
        try:
            while reply := await read_frame(reader, pb.ControlReply, where=where):
                if reply.HasField("pong"):
                    self._take_pong(writer, reply.pong)
                elif reply.HasField("request"):
                    renewed = authority.sign_request(self.name, reply.request)
                    write_frame(writer, pb.Control(certificate=renewed))
                elif reply.HasField("log"):
                    self.log(self.name, reply.log)
        finally:
            if self._control is writer:
                self._control = None

    def _take_pong(self, writer: asyncio.StreamWriter, pong: pb.Pong) -> None:
        """Pass on the answer to the last ping. Ignore late answers to earlier pings."""
        answered_ns = time.monotonic_ns()
        if self._control is not writer or not self._unanswered:
            return
        self._unanswered -= 1
        if not self._unanswered:
            self._pongs.put_nowait((pong, answered_ns))


class CallHomeListener:
    """TCP listener for the agents of one run.

    Use the listener as an asynchronous context manager. Its exit closes all
    connections.

    Args:
        folder: Folder for the Unix sockets on which ``AgentClient`` calls agents. No
            other user may have access to it.
        enrollment: Object that decides which agents may enroll.
        authority: Authority that signs the agents' certificates.
        log: Function that is called with the name of an agent and lines of its log.

    Attributes:
        agents: The expected agents, by name.
        refusals: The last refusal of each source address, oldest first. Their number
            has a limit.
    """

    def __init__(
        self,
        folder: Path,
        enrollment: Enrollment,
        authority: RunAuthority,
        log: Callable[[str, str], None],
    ) -> None:
        self.enrollment = enrollment
        self._authority = authority
        self.agents = {
            name: CalledAgent(name, f"unix:{folder}/{number}", log)
            for number, name in enumerate(enrollment.names)
        }
        self.refusals: dict[str, ChakramError] = {}
        self._changed = asyncio.Event()
        self._stack = AsyncExitStack()
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: WeakSet[asyncio.StreamWriter] = WeakSet()

    async def listen(self, host: str, port: int) -> int:
        """Start listening, and return the port.

        Args:
            host: Address to listen on. If empty, all addresses.
            port: TCP port. If 0, any free port.

        Raises:
            EnvironmentProblem: If the controller cannot listen there.
        """
        allow_descriptors(MOST_WAITING + _DESCRIPTORS_OF_AGENT * len(self.agents))
        context = self._authority.server_context()
        is_dual = host in ("", "::") and socket.has_dualstack_ipv6()
        address = host or ("::" if is_dual else "0.0.0.0")
        try:
            listener = socket.create_server(
                (address, port),
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                backlog=_BACKLOG,
                dualstack_ipv6=is_dual,
            )
        except OSError as error:
            raise EnvironmentProblem(
                f"--listen {socket_text(address, port)}",
                f"cannot be used ({error.strerror})",
                "give an address of this host, e.g. --listen 192.0.2.10",
            ) from error
        listener.setblocking(False)
        self._stack.callback(listener.close)
        # All agents may have the same source address, such as that of a gateway.
        most = MOST_WAITING + _CONNECTIONS_OF_AGENT * len(self.agents)
        acceptor = TlsAcceptor(
            listener,
            context,
            self._handle,
            self._spawn,
            timeout_s=_HELLO_TIMEOUT_S,
            most=most,
            most_per_source=most,
        )
        accepting = asyncio.create_task(acceptor.serve(), name="call home")
        self._stack.push_async_callback(_end, accepting)
        for agent in self.agents.values():
            inner = await asyncio.start_unix_server(
                lambda *streams, agent=agent: self._carry(agent, streams),
                agent.target.removeprefix("unix:"),
                limit=CHUNK_BYTES,
            )
            self._stack.callback(inner.close)
        return int(listener.getsockname()[1])

    def _carry(self, agent: CalledAgent, streams: Streams) -> None:
        """Forward a call in a task that ends with the listener."""
        self._writers.add(streams[1])
        self._spawn(agent.carry(streams), "call")

    def _spawn(self, work: Coroutine[None, None, None], name: str) -> None:
        """Run a task that ends with the listener."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def wait(self) -> None:
        """Wait until an agent has arrived, left or been refused.

        Raises:
            EnrollmentStopped: If one name was claimed twice.
        """
        await self._changed.wait()
        self._changed.clear()
        if self.enrollment.stopped is not None:
            raise self.enrollment.stopped

    def missing(self) -> list[str]:
        """Return the names of the agents that are not connected."""
        return [name for name, agent in self.agents.items() if not agent.is_here]

    async def end_agents(self, reason: str) -> None:
        """Ask all agents to end themselves."""
        await asyncio.gather(*(each.end(reason) for each in self.agents.values()))

    async def _handle(self, visit: Visit) -> None:
        streams = reader, writer = visit.streams
        self._writers.add(writer)
        source = socket_text(*visit.address)
        keeps = False
        try:
            keep_alive(writer)
            async with asyncio.timeout(_HELLO_TIMEOUT_S):
                hello = await read_frame(reader, pb.Hello, where=source)
            if hello is None:
                return
            try:
                agent, welcome = self._answer(hello, writer, source)
            except ChakramError as error:
                log.info("refused an agent error=%s", error)
                self._note_refusal(visit.address[0], error)
                write_frame(writer, pb.Welcome(refusal=error_message(error)))
                await writer.drain()
                self._changed.set()
                return
            visit.trust()
            write_frame(writer, welcome)
            await writer.drain()
            if agent is None:
                return
            agent.version = hello.version
            if hello.HasField("commands"):
                agent.commands.put_nowait(streams)
                keeps = True
            elif hello.HasField("control"):
                self._changed.set()
                await agent.control(streams, self._authority)
        except (ChakramError, OSError, TimeoutError) as error:
            log.info("connection ended source=%s error=%s", source, error)
        finally:
            self._changed.set()
            if not keeps:
                await close(writer)

    def _note_refusal(self, address: str, error: ChakramError) -> None:
        """Keep the last refusal of an address. Discard old refusals beyond a limit."""
        self.refusals.pop(address, None)
        self.refusals[address] = error
        if len(self.refusals) > len(self.agents) + _MOST_OTHER_REFUSALS:
            del self.refusals[next(iter(self.refusals))]

    def _answer(
        self, hello: pb.Hello, writer: asyncio.StreamWriter, source: str
    ) -> tuple[CalledAgent | None, pb.Welcome]:
        """Return the agent of a connection, and the answer to its greeting.

        Raises:
            ChakramError: If the agent must not enroll or connect.
        """
        name = hello.name
        # Unknown clients must not fill the memory with errors that contain these texts.
        if max(len(name), len(hello.version)) > _LONGEST_TEXT:
            raise AgentError(f"agent at {source}", "its name or version is too long")
        if hello.protocol != PROTOCOL_VERSION or hello.version != chakram.__version__:
            raise AgentError(
                f"agent {name!r} at {source}",
                f"has version {hello.version!r} (protocol {hello.protocol}), but the "
                f"controller has {chakram.__version__} (protocol {PROTOCOL_VERSION})",
                "install the same version on both hosts",
            )
        if hello.HasField("enrollment"):
            request = hello.enrollment.request
            self._authority.check_request(name, request)
            name = self.enrollment.enroll(
                name,
                hello.enrollment.token,
                request=request,
                source=source,
                now_ns=time.monotonic_ns(),
            )
            certificate = self._authority.sign_request(name, request)
            self.agents[name].launcher = hello.enrollment.launcher
            return None, pb.Welcome(certificate=certificate, name=name)
        certified = agent_name(writer.get_extra_info("ssl_object"))
        if certified is None or certified != name or name not in self.agents:
            raise AgentError(
                f"agent {name!r} at {source}", "has no certificate of this run"
            )
        return self.agents[name], pb.Welcome()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        # Some tasks may have been canceled before they had begun.
        await asyncio.gather(*map(close, self._writers), return_exceptions=True)


async def _end(task: asyncio.Task[None]) -> None:
    """Cancel a task, and wait for its end."""
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
