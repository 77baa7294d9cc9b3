"""Call home: the agent connects to its controller and waits for calls."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
import ssl
import time
from collections import deque
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING

import chakram
from chakram.control.call_home.frames import read_frame, write_frame
from chakram.control.call_home.run_certificate_authority import (
    AGENT_VALID,
    CONTROLLER_HOST,
    client_context,
    new_key_and_request,
)
from chakram.control.connection_relay import (
    CHUNK_BYTES,
    Streams,
    close,
    keep_alive,
    splice,
)
from chakram.control.error_details import clipped, rebuild
from chakram.control.protobuf_messages import PROTOCOL_VERSION, pb
from chakram.foundation.errors import AgentError, ChakramError, ConfigError
from chakram.foundation.ip_addresses import socket_text
from chakram_agent.agent_clock import monotonic_ns

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from cryptography.hazmat.primitives.asymmetric import ec

    from chakram.control.call_home.token_file import TokenFile

log = logging.getLogger(__name__)

_CONNECT_TIMEOUT_S = 5.0
_ENROLL_TIMEOUT_S = 60.0
"""Longest time to reach the controller for the first time."""
_REFUSED_TIMEOUT_S = 5.0
"""Longest time to retry after failures that retries rarely fix. If the controller's
host refuses connections, the controller has ended, because it listens before it starts
agents. If a certificate is not valid, the clock of this host is wrong."""
_SHUTDOWN_TIMEOUT_S = 1.0
"""Longest time to wait for the end of a connection to a controller that hangs."""
_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 2.0
_RENEW_AFTER_S = AGENT_VALID.total_seconds() / 2
_RENEW_AGAIN_S = 60.0
"""Time after which an agent asks again for a certificate that it did not get."""

LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s %(message)s"
_LOG_EVERY_S = 0.2
_MOST_LINES = 100
_LONGEST_LINE_BYTES = 500
"""Limit on the length of a log line. A hundred such lines fit into a message."""

_LAUNCHER_VARIABLES = (
    ("SLURM_JOB_ID", "slurm job"),
    ("OMPI_COMM_WORLD_RANK", "mpirun rank"),
    ("JOB_COMPLETION_INDEX", "kubernetes index"),
    ("SSH_CONNECTION", "ssh from"),
)
"""Environment variables that identify the launcher of a process, each with the
launcher's name."""


def launcher_of_process() -> str:
    """Return a text about this process's launcher, or an empty text if unknown."""
    for variable, what in _LAUNCHER_VARIABLES:
        if value := os.environ.get(variable):
            return f"{what} {value.split()[0]}"
    return ""


def name_of_host() -> str:
    """Return the name that the launcher uses for this host."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname()


def controllers_of(token: TokenFile) -> list[str]:
    """Return the addresses of the controller, the most likely one first."""
    if not token.launcher_port:
        return list(token.controllers)
    # Slurm comes first, because its nodes may pass on the variable of an old SSH
    # connection.
    told = [
        os.environ.get("SLURM_LAUNCH_NODE_IPADDR", ""),
        os.environ.get("SSH_CONNECTION", "").partition(" ")[0],
    ]
    first = [socket_text(each, token.launcher_port) for each in told if each]
    return list(dict.fromkeys([*first, *token.controllers]))


class LogLines(logging.Handler):
    """Lines of the agent's log that the controller has not received yet."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter(LOG_FORMAT))
        self._lines: deque[str] = deque()
        self._dropped = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line, or count it as dropped if there are too many lines."""
        if len(self._lines) >= _MOST_LINES:
            self._dropped += 1
        else:
            self._lines.append(clipped(self.format(record), _LONGEST_LINE_BYTES))

    def take(self) -> str:
        """Return the lines so far and discard them."""
        # Other threads may append meanwhile.
        lines = [self._lines.popleft() for _ in range(len(self._lines))]
        if self._dropped:
            lines.append(f"{self._dropped} more lines of the log were dropped")
            self._dropped = 0
        return "\n".join(lines)


@dataclass(slots=True, eq=False)
class CallHome:
    """Connections of an agent to the controller of its run.

    Attributes:
        token: Content of the token file. If it contains no name, the agent uses the
            name of its host.
        inner: Path of the Unix socket on which the agent serves calls.
        end: Function that is called with the reason if the controller ends the agent.
        controllers: Addresses of the controller. The address that worked last is first.
    """

    token: TokenFile
    _: KW_ONLY
    inner: str
    end: Callable[[str], None]
    controllers: list[str] = field(init=False)
    _name: str = field(init=False)
    _log: LogLines = field(default_factory=LogLines)
    _renew_at_s: float = 0.0
    _key: ec.EllipticCurvePrivateKey = field(init=False)
    _context: ssl.SSLContext = field(init=False)
    _seen: Callable[[], None] = field(init=False)

    def __post_init__(self) -> None:
        self.controllers = controllers_of(self.token)
        self._name = self.token.name or name_of_host()

    async def enroll(self) -> None:
        """Get a certificate from the controller.

        Raises:
            AgentError: If the controller cannot be reached or refuses this agent.
            ConfigError: If the token file contains no certificate.
        """
        key, request = new_key_and_request()
        hello = self._hello()
        hello.enrollment.token = self.token.token
        hello.enrollment.request = request
        hello.enrollment.launcher = launcher_of_process()
        try:
            context = client_context(self.token.authority, None)
        except (ssl.SSLError, UnicodeDecodeError):
            raise ConfigError(
                "token file", "contains no certificate of a controller"
            ) from None
        begun_s = time.monotonic()
        pause_s = _PAUSE_S
        while True:
            try:
                streams, welcome = await self._connect(hello, context)
                break
            except OSError as error:
                is_final = isinstance(
                    error, ConnectionRefusedError | ssl.SSLCertVerificationError
                )
                limit_s = _REFUSED_TIMEOUT_S if is_final else _ENROLL_TIMEOUT_S
                if time.monotonic() + pause_s - begun_s > limit_s:
                    raise AgentError(
                        f"controller {', '.join(self.controllers)}".rstrip(),
                        _why_lost(error),
                        "can this host reach it? name another address with "
                        "chakram run --listen ADDRESS",
                    ) from error
            await asyncio.sleep(pause_s * random.uniform(0.5, 1))
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        await close(streams[1])
        self._name = welcome.name
        self._key = key
        self._use(welcome.certificate)

    def _use(self, certificate: bytes) -> None:
        """Use a certificate for new connections, and schedule its renewal."""
        pair = certificate, self._key
        self._context = client_context(self.token.authority, pair)
        self._renew_at_s = time.monotonic() + _RENEW_AFTER_S

    async def stay(self, seen: Callable[[], None]) -> None:
        """Keep the connections to the controller open until canceled.

        Args:
            seen: Function that is called every second while the controller is
                connected.
        """
        self._seen = seen
        logging.getLogger().addHandler(self._log)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._again(self._commands), name="calls from home")
                tasks.create_task(self._again(self._control), name="control from home")
        finally:
            logging.getLogger().removeHandler(self._log)

    async def _again(self, use: Callable[[], Awaitable[None]]) -> None:
        """Open a new connection whenever the previous connection has ended."""
        pause_s = _PAUSE_S
        while True:
            begun_s = time.monotonic()
            try:
                await use()
            except (ChakramError, OSError, TimeoutError) as error:
                log.info("connection to the controller ended error=%s", error)
            if time.monotonic() - begun_s > _CONNECT_TIMEOUT_S:
                pause_s = _PAUSE_S
            await asyncio.sleep(pause_s * random.uniform(0.5, 1))
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    async def _commands(self) -> None:
        """Wait for calls on one connection, and pass them to the agent."""
        hello = self._hello()
        hello.commands = True
        (reader, writer), _ = await self._connect(hello, self._context)
        try:
            # Connect to the agent only when a call arrives: gRPC drops idle
            # connections.
            first = await reader.read(CHUNK_BYTES)
            if first:
                there, back = await asyncio.open_unix_connection(
                    self.inner, limit=CHUNK_BYTES
                )
                back.write(first)
                await splice((reader, writer), (there, back))
        finally:
            await close(writer)

    async def _control(self) -> None:
        """Answer pings, renew the certificate, and end the agent on request."""
        hello = self._hello()
        hello.control = True
        (reader, writer), _ = await self._connect(hello, self._context)
        tasks = [
            asyncio.create_task(self._ask_for_renewal(writer), name="renewal"),
            asyncio.create_task(self._tell_log(writer), name="log home"),
            asyncio.create_task(self._see(), name="lease"),
        ]
        try:
            while order := await read_frame(reader, pb.Control, where="controller"):
                received_ns = monotonic_ns()
                if order.HasField("ping"):
                    pong = pb.Pong(received_ns=received_ns, sent_ns=monotonic_ns())
                    write_frame(writer, pb.ControlReply(pong=pong))
                elif order.HasField("certificate"):
                    self._use(order.certificate)
                elif order.HasField("end"):
                    # Keep the connection open for the last lines of the log.
                    self.end(order.end)
        finally:
            self._send_log(writer)
            writer.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _ask_for_renewal(self, writer: asyncio.StreamWriter) -> None:
        # Request a renewal on this connection even if it was due on an earlier one.
        while True:
            await asyncio.sleep(max(0, self._renew_at_s - time.monotonic()))
            self._key, request = new_key_and_request()
            write_frame(writer, pb.ControlReply(request=request))
            self._renew_at_s = time.monotonic() + _RENEW_AGAIN_S

    async def _tell_log(self, writer: asyncio.StreamWriter) -> None:
        while True:
            await asyncio.sleep(_LOG_EVERY_S)
            self._send_log(writer)

    def _send_log(self, writer: asyncio.StreamWriter) -> None:
        if text := self._log.take():
            write_frame(writer, pb.ControlReply(log=text))

    async def _see(self) -> None:
        while True:
            self._seen()
            await asyncio.sleep(1)

    def _hello(self) -> pb.Hello:
        return pb.Hello(
            protocol=PROTOCOL_VERSION, version=chakram.__version__, name=self._name
        )

    async def _connect(
        self, hello: pb.Hello, context: ssl.SSLContext
    ) -> tuple[Streams, pb.Welcome]:
        """Connect to the controller at one of its addresses, and send *hello*.

        Raises:
            ChakramError: If the controller refuses.
            OSError: If the controller cannot be reached at any address. This method
                raises the most informative of the errors.
        """
        failures: list[OSError] = []
        for controller in tuple(self.controllers):
            host, _, port = controller.rpartition(":")
            try:
                async with asyncio.timeout(_CONNECT_TIMEOUT_S):
                    streams = await asyncio.open_connection(
                        host.strip("[]"),
                        int(port),
                        ssl=context,
                        server_hostname=CONTROLLER_HOST,
                        ssl_shutdown_timeout=_SHUTDOWN_TIMEOUT_S,
                        limit=CHUNK_BYTES,
                    )
                    try:
                        welcome = await self._greet(hello, streams, controller)
                    except BaseException:
                        await close(streams[1])
                        raise
            except (OSError, TimeoutError) as error:
                failures.append(error)
                continue
            # Later connections use the address that has worked.
            self.controllers.remove(controller)
            self.controllers.insert(0, controller)
            return streams, welcome
        if not failures:
            raise ConnectionRefusedError("its address is unknown")
        raise min(failures, key=_rank_of_failure)

    async def _greet(
        self, hello: pb.Hello, streams: Streams, controller: str
    ) -> pb.Welcome:
        reader, writer = streams
        keep_alive(writer)
        write_frame(writer, hello)
        where = f"controller {controller}"
        welcome = await read_frame(reader, pb.Welcome, where=where)
        if welcome is None:
            raise ConnectionResetError("it has closed the connection")
        if welcome.HasField("refusal"):
            raise rebuild(welcome.refusal, where=where)
        return welcome


def _rank_of_failure(error: OSError) -> int:
    """Return the rank of a failure. The most informative failure has the lowest rank.

    An invalid certificate explains failures at other addresses, too. A controller may
    have addresses that lead nowhere, or to another host. A refused connection is
    therefore the reason only if there is no other failure.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return 0
    return 2 if isinstance(error, ConnectionRefusedError) else 1


def _why_lost(error: OSError) -> str:
    """Return why the controller cannot be reached, as a clause."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"does not have the certificate of this run ({error.verify_message}); is "
            "the clock of this host right?"
        )
    if isinstance(error, TimeoutError):
        return f"does not answer within {_CONNECT_TIMEOUT_S:g} s"
    return f"cannot be reached ({error.strerror or error})"
