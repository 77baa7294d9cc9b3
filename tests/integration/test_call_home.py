"""Agents that call their controller: what it lets in, and what it refuses."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
import socket
import ssl
import struct
import time
from contextlib import ExitStack, asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

import chakram
from chakram.control.call_home import listener
from chakram.control.call_home.enrollment import Enrollment, host_token, job_token
from chakram.control.call_home.frames import (
    MAX_FRAME_BYTES,
    read_frame,
    write_frame,
)
from chakram.control.call_home.listener import CallHomeListener
from chakram.control.call_home.run_certificate_authority import (
    CONTROLLER_HOST,
    RunAuthority,
    client_context,
    load_pair,
    new_key_and_request,
)
from chakram.control.call_home.token_file import TokenFile
from chakram.control.certificates import common_name
from chakram.control.connection_relay import keep_alive
from chakram.control.protobuf_messages import PROTOCOL_VERSION, pb
from chakram.foundation.errors import (
    AgentError,
    ConfigError,
    EnvironmentProblem,
    PeerError,
)
from chakram.launch import launched_agents
from chakram.launch.launchers import LaunchCommand
from chakram_agent import call_home
from chakram_agent.call_home import CallHome
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

pytestmark = pytest.mark.asyncio

SECRET = b"s" * 32
Pair = tuple[bytes, ec.EllipticCurvePrivateKey]


class Door:
    """A listener of one run, and what a caller may do to it."""

    def __init__(self, opened: CallHomeListener, authority: RunAuthority) -> None:
        self.listener = opened
        self.authority = authority
        self.port = 0

    async def say(
        self,
        hello: pb.Hello,
        pair: Pair | None = None,
        *,
        authority: bytes = b"",
        source: str = "127.0.0.1",
    ) -> pb.Welcome | None:
        """Return the answer to a greeting; None if the connection ends."""
        context = client_context(authority or self.authority.certificate, pair)
        reader, writer = await asyncio.open_connection(
            "127.0.0.1",
            self.port,
            ssl=context,
            server_hostname=CONTROLLER_HOST,
            local_addr=(source, 0),
        )
        try:
            write_frame(writer, hello)
            return await read_frame(reader, pb.Welcome, where="controller")
        finally:
            writer.close()

    async def enroll(
        self, name: str, token: bytes, request: bytes | None = None
    ) -> tuple[pb.Welcome, Pair]:
        """Return the answer to an enrollment, and the pair that it gives."""
        key, own = new_key_and_request()
        hello = greeting(name)
        hello.enrollment.token = token
        hello.enrollment.request = own if request is None else request
        welcome = await self.say(hello)
        assert welcome is not None
        return welcome, (welcome.certificate, key)


def greeting(name: str, **purpose: Any) -> pb.Hello:
    return pb.Hello(
        protocol=PROTOCOL_VERSION, version=chakram.__version__, name=name, **purpose
    )


@asynccontextmanager
async def door(
    folder: Path,
    *,
    shares_token: bool = False,
    seconds: float = 60,
    log: Callable[[str, str], None] = lambda *_: None,
) -> AsyncIterator[Door]:
    authority = RunAuthority()
    enrollment = Enrollment(
        secret=SECRET,
        names=("h1", "h2"),
        shares_token=shares_token,
        ends_ns=time.monotonic_ns() + round(seconds * 1e9),
    )
    await asyncio.to_thread(folder.mkdir)
    async with CallHomeListener(folder, enrollment, authority, log) as listening:
        opened = Door(listening, authority)
        opened.port = await listening.listen("127.0.0.1", 0)
        yield opened


async def test_an_agent_enrolls_and_answers_pings(tmp_path: Path) -> None:
    async with door(tmp_path / "s") as opened:
        token = TokenFile(
            token=host_token(SECRET, "h1"),
            authority=opened.authority.certificate,
            controllers=("127.0.0.1:1", f"127.0.0.1:{opened.port}"),
            name="h1",
        )
        ended = asyncio.Event()
        agent = CallHome(
            token,
            inner=str(tmp_path / "absent"),
            end=lambda _: ended.set(),
        )
        await agent.enroll()
        staying = asyncio.create_task(agent.stay(lambda: None))
        called = opened.listener.agents["h1"]
        while not called.is_here:
            await opened.listener.wait()
        assert opened.listener.missing() == ["h2"]
        times = await called.ping()
        assert times.sent_ns <= times.remote_received_ns <= times.answered_ns
        await opened.listener.end_agents("done")
        await ended.wait()
        staying.cancel()
        await asyncio.gather(staying, return_exceptions=True)


def caller(tmp_path: Path, port: int, authority: bytes) -> CallHome:
    """Return an agent with a token of host h1."""
    token = TokenFile(
        token=host_token(SECRET, "h1"),
        authority=authority,
        controllers=(f"127.0.0.1:{port}",),
        name="h1",
    )
    return CallHome(token, inner=str(tmp_path / "absent"), end=lambda _: None)


async def test_a_certificate_is_renewed_for_new_connections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_home, "_RENEW_AFTER_S", 0.05)
    async with door(tmp_path / "s") as opened:
        agent = caller(tmp_path, opened.port, opened.authority.certificate)
        await agent.enroll()
        first = agent._context
        staying = asyncio.create_task(agent.stay(lambda: None))
        await asyncio.to_thread(
            wait_until, lambda: agent._context is not first, "another certificate"
        )
        streams, welcome = await agent._connect(
            greeting("h1", commands=True), agent._context
        )
        streams[1].close()
        assert not welcome.HasField("refusal")
        staying.cancel()
        await asyncio.gather(staying, return_exceptions=True)


@pytest.mark.parametrize(
    ("name", "token", "found"),
    [
        ("h1", b"", "not valid"),
        ("h1", b"guess", "not valid"),
        ("h1", host_token(SECRET, "h2"), "not valid"),
        ("h1", job_token(SECRET), "not valid"),
        ("h3", host_token(SECRET, "h3"), "not in the inventory"),
        ("\x1b[2J", b"", "not valid"),
    ],
)
async def test_an_enrollment_without_a_right_token_is_refused(
    tmp_path: Path, name: str, token: bytes, found: str
) -> None:
    async with door(tmp_path / "s") as opened:
        welcome, _ = await opened.enroll(name, token)
        assert found in welcome.refusal.found
        assert not welcome.certificate


async def test_a_late_enrollment_is_refused(tmp_path: Path) -> None:
    async with door(tmp_path / "s", seconds=-1) as opened:
        welcome, _ = await opened.enroll("h1", host_token(SECRET, "h1"))
        assert "expired" in welcome.refusal.found


async def test_a_replayed_enrollment_stops_all(tmp_path: Path) -> None:
    async with door(tmp_path / "s", shares_token=True) as opened:
        first, _ = await opened.enroll("h1", job_token(SECRET))
        assert first.certificate
        second, _ = await opened.enroll("h1", job_token(SECRET))
        assert "one token was used twice" in second.refusal.found
        third, _ = await opened.enroll("h2", job_token(SECRET))
        assert third.HasField("refusal")
        with pytest.raises(AgentError, match=r"127\.0\.0\.1:\d+ and from 127"):
            await opened.listener.wait()


async def test_a_repeated_enrollment_gets_its_certificate_again(tmp_path: Path) -> None:
    async with door(tmp_path / "s") as opened:
        token = host_token(SECRET, "h1")
        _, request = new_key_and_request()
        for _ in range(2):
            welcome, _ = await opened.enroll("h1", token, request)
            assert welcome.certificate


async def connect_control(
    opened: Door,
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect as agent h1, which has enrolled and been welcomed."""
    _, pair = await opened.enroll("h1", host_token(SECRET, "h1"))
    context = client_context(opened.authority.certificate, pair)
    streams = await asyncio.open_connection(
        "127.0.0.1", opened.port, ssl=context, server_hostname=CONTROLLER_HOST
    )
    write_frame(streams[1], greeting("h1", control=True))
    await read_frame(streams[0], pb.Welcome, where="controller")
    return streams


async def test_an_agent_that_hangs_does_not_delay_the_end(tmp_path: Path) -> None:
    async with door(tmp_path / "s") as opened:
        streams = await connect_control(opened)
        writer = streams[1]
        # From now on, it reads nothing, not even the end of the connection.
        writer.transport.pause_reading()
        ending_s = time.monotonic()
    assert time.monotonic() - ending_s < 5
    writer.transport.abort()


async def test_a_late_answer_is_not_that_to_the_next_ping(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "_PING_TIMEOUT_S", 0.2)
    async with door(tmp_path / "s") as opened:
        reader, writer = await connect_control(opened)
        called = opened.listener.agents["h1"]
        with pytest.raises(AgentError, match="did not answer a ping"):
            await called.ping()
        second = asyncio.create_task(called.ping())
        for _ in range(2):
            await read_frame(reader, pb.Control, where="controller")
        for time_ns in (1, 2):
            pong = pb.Pong(received_ns=time_ns, sent_ns=time_ns)
            write_frame(writer, pb.ControlReply(pong=pong))
        assert (await second).remote_received_ns == 2
        writer.close()


async def test_a_token_file_without_a_certificate_is_refused(tmp_path: Path) -> None:
    token = TokenFile(token=b"", authority=b"PEM", controllers=("127.0.0.1:1",))
    agent = CallHome(token, inner=str(tmp_path / "absent"), end=lambda _: None)
    with pytest.raises(ConfigError, match="contains no certificate"):
        await agent.enroll()


async def test_a_host_with_a_wrong_clock_reports_this_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_home, "_REFUSED_TIMEOUT_S", 0.1)
    # The certificates of another run are as invalid as those of another day.
    async with door(tmp_path / "s") as opened, door(tmp_path / "other") as other:
        agent = caller(tmp_path, opened.port, other.authority.certificate)
        async with asyncio.timeout(5):
            with pytest.raises(AgentError, match="is the clock of this host right"):
                await agent.enroll()


async def test_a_lost_host_ends_a_connection_with_data_in_flight_too(
    tmp_path: Path,
) -> None:
    async with door(tmp_path / "s") as opened:
        _, writer = await asyncio.open_connection(
            "127.0.0.1",
            opened.port,
            ssl=client_context(opened.authority.certificate, None),
            server_hostname=CONTROLLER_HOST,
        )
        keep_alive(writer)
        limit_ms = writer.get_extra_info("socket").getsockopt(
            socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT
        )
        assert limit_ms == 25_000
        writer.close()


async def test_agents_of_a_large_cluster_can_call_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backlogs = []

    class Listener(socket.socket):
        def listen(self, backlog: int = 0) -> None:
            backlogs.append(backlog)
            super().listen(backlog)

    monkeypatch.setattr(socket, "socket", Listener)
    async with door(tmp_path / "s"):
        pass
    # The others are those of Unix sockets for calls.
    assert backlogs[0] >= 512


async def test_a_controller_may_open_the_files_that_its_agents_need(
    tmp_path: Path,
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    low = soft - 100
    resource.setrlimit(resource.RLIMIT_NOFILE, (low, hard))
    try:
        async with door(tmp_path / "s"):
            assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > low
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def a_token_file() -> TokenFile:
    return TokenFile(token=b"\x5a" * 32, authority=b"PEM", controllers=())


async def test_tokens_do_not_expire_while_names_of_hosts_are_resolved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    resolved_ns = 0

    def resolve(*_: object) -> list[str]:
        nonlocal resolved_ns
        resolved_ns = time.monotonic_ns()
        return []

    monkeypatch.setattr(launched_agents, "_reaches", resolve)
    options = launched_agents.LaunchOptions(kind="ssh")
    async with launched_agents.launched_agents(
        options, {}, allow=(), logs=None
    ) as agents:
        valid_ns = agents.listener.enrollment.ends_ns - resolved_ns
        assert valid_ns >= launched_agents.ARRIVAL_TIMEOUT_S * 1e9


async def test_a_token_that_a_terminal_echoes_is_in_no_log(tmp_path: Path) -> None:
    # With ssh -tt, the terminal of the other host prints what it reads.
    agents = launched_agents.LaunchedAgents(Mock(refusals={}), tmp_path / "logs")
    command = LaunchCommand(("h1",), ("cat",))
    started = await launched_agents._spawn(command, a_token_file(), agents)
    await started.reading
    log = await asyncio.to_thread((tmp_path / "logs" / "h1.log").read_text)
    for text in (log, *started.last):
        assert "PEM" in text
        assert "5a5a" not in text


async def test_a_launcher_that_a_signal_without_a_name_ends_is_explained() -> None:
    agents = launched_agents.LaunchedAgents(Mock(refusals={}), None)
    command = LaunchCommand(("h1",), ("sh", "-c", "kill -40 $$"))
    started = await launched_agents._spawn(command, a_token_file(), agents)
    await started.reading
    assert await agents.ended(within_s=30) == ["h1: sh was ended by signal 40"]


async def test_what_a_launcher_leaves_behind_does_not_delay_its_error() -> None:
    words = ("sh", "-c", "sleep 30 & echo no route; exit 255")
    agents = launched_agents.LaunchedAgents(Mock(refusals={}), None)
    command = LaunchCommand(("h1",), words)
    started = await launched_agents._spawn(command, a_token_file(), agents)
    await asyncio.to_thread(wait_until, lambda: started.has_ended, "its end")
    async with asyncio.timeout(10):
        error = await launched_agents._why_absent(started, ["h1"], agents.listener)
    assert error.found == "did not start: sh ended with exit status 255: no route"
    os.killpg(started.process.pid, signal.SIGKILL)
    await started.reading


def rsa_request() -> bytes:
    key = rsa.generate_private_key(65537, 2048)
    request = x509.CertificateSigningRequestBuilder().subject_name(common_name("x"))
    signed = request.sign(key, hashes.SHA256())
    return signed.public_bytes(serialization.Encoding.DER)


def tampered_request() -> bytes:
    _, request = new_key_and_request()
    return request[:-1] + bytes([request[-1] ^ 1])


@pytest.mark.parametrize(
    "make", [lambda: b"", lambda: b"\x30\x80", rsa_request, tampered_request]
)
async def test_a_bad_request_is_refused_and_uses_up_no_token(
    tmp_path: Path, make: Any
) -> None:
    async with door(tmp_path / "s") as opened:
        welcome, _ = await opened.enroll("h1", host_token(SECRET, "h1"), make())
        assert "request is not valid" in welcome.refusal.found
        welcome, _ = await opened.enroll("h1", host_token(SECRET, "h1"))
        assert welcome.certificate


async def test_the_subject_of_a_request_does_not_count(tmp_path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    request = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(common_name("chakram controller"))
        .add_extension(
            x509.SubjectAlternativeName([x509.DNSName(CONTROLLER_HOST)]), critical=True
        )
        .sign(key, hashes.SHA256())
        .public_bytes(serialization.Encoding.DER)
    )
    async with door(tmp_path / "s") as opened:
        welcome, _ = await opened.enroll("h1", host_token(SECRET, "h1"), request)
    certificate = x509.load_pem_x509_certificate(welcome.certificate)
    assert certificate.subject == common_name("chakram agent")
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    assert names.value.get_values_for_type(x509.DNSName) == []
    assert certificate.not_valid_before_utc < datetime.now(UTC) - timedelta(hours=23)
    assert certificate.not_valid_after_utc < datetime.now(UTC) + timedelta(hours=2)


@pytest.mark.parametrize("purpose", ["commands", "control"])
async def test_only_a_certificate_of_that_name_opens_connections(
    tmp_path: Path, purpose: str
) -> None:
    async with door(tmp_path / "s") as opened, door(tmp_path / "other") as other:
        hello = greeting("h1", **{purpose: True})
        without = await opened.say(hello)
        assert without is not None
        assert "no certificate of this run" in without.refusal.found
        _, second = await opened.enroll("h2", host_token(SECRET, "h2"))
        wrong = await opened.say(hello, second)
        assert wrong is not None
        assert "no certificate of this run" in wrong.refusal.found
        # A certificate of another run, for the same name and from the same secret.
        _, foreign = await other.enroll("h1", host_token(SECRET, "h1"))
        # The end of the connection may also come as an alert, or as a reset.
        with suppress(ssl.SSLError, ConnectionError):
            assert await opened.say(hello, foreign) is None
        assert not opened.listener.agents["h1"].is_here


async def test_an_agent_refuses_another_controller(tmp_path: Path) -> None:
    async with door(tmp_path / "s") as opened, door(tmp_path / "other") as other:
        with pytest.raises(ssl.SSLCertVerificationError):
            await opened.say(
                greeting("h1", commands=True), authority=other.authority.certificate
            )


async def test_an_agent_does_not_take_another_agent_for_the_controller(
    tmp_path: Path,
) -> None:
    async with door(tmp_path / "s") as opened:
        _, pair = await opened.enroll("h1", host_token(SECRET, "h1"))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        load_pair(context, *pair)
        server = await asyncio.start_server(
            lambda *_: None, "127.0.0.1", 0, ssl=context
        )
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(ssl.SSLCertVerificationError):
            await asyncio.open_connection(
                "127.0.0.1",
                port,
                ssl=client_context(opened.authority.certificate, None),
                server_hostname=CONTROLLER_HOST,
            )
        server.close()


async def test_another_version_is_refused_with_both_named(tmp_path: Path) -> None:
    async with door(tmp_path / "s") as opened:
        hello = greeting("h1")
        hello.version = "0.0.1"
        hello.enrollment.token = host_token(SECRET, "h1")
        welcome = await opened.say(hello)
        assert welcome is not None
        assert "'0.0.1'" in welcome.refusal.found
        assert chakram.__version__ in welcome.refusal.found


async def test_the_last_lines_of_a_log_reach_the_controller(tmp_path: Path) -> None:
    lines: list[str] = []
    async with door(tmp_path / "s", log=lambda _, text: lines.append(text)) as opened:
        agent = caller(tmp_path, opened.port, opened.authority.certificate)
        agent.end = lambda reason: logging.getLogger("test").error("last words")
        await agent.enroll()
        staying = asyncio.create_task(agent.stay(lambda: None))
        while not opened.listener.agents["h1"].is_here:
            await opened.listener.wait()
        await opened.listener.end_agents("done")
        async with asyncio.timeout(10):
            while not any("last words" in each for each in lines):  # noqa: ASYNC110 - the log has no event
                await asyncio.sleep(0)
        logging.getLogger("test").error("very last words")
        staying.cancel()
        await asyncio.gather(staying, return_exceptions=True)
        async with asyncio.timeout(10):
            while not any("very last words" in each for each in lines):
                await opened.listener.wait()
    assert not opened.listener.agents["h1"].is_here


async def test_lines_of_a_log_fit_into_a_message() -> None:
    lines = call_home.LogLines()
    for _ in range(200):
        record = logging.makeLogRecord({"msg": "\udc80" + 600 * "ü", "name": "a"})
        lines.emit(record)
    message = pb.ControlReply(log=lines.take())
    assert len(message.SerializeToString()) < MAX_FRAME_BYTES
    assert "100 more lines" in message.log


async def test_a_controller_that_hangs_does_not_delay_the_end_of_an_agent(
    tmp_path: Path,
) -> None:
    authority = RunAuthority()
    writers = []

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        hello = await read_frame(reader, pb.Hello, where="agent")
        assert hello is not None
        welcome = pb.Welcome(name="h1")
        if hello.HasField("enrollment"):
            request = hello.enrollment.request
            welcome.certificate = authority.sign_request("h1", request)
        write_frame(writer, welcome)
        # It reads nothing else, not even the end of the connection.
        writer.transport.pause_reading()

    server = await asyncio.start_server(
        greet, "127.0.0.1", 0, ssl=authority.server_context()
    )
    port = server.sockets[0].getsockname()[1]
    agent = caller(tmp_path, port, authority.certificate)
    begun_s = time.monotonic()
    await agent.enroll()
    staying = asyncio.create_task(agent.stay(lambda: None))
    while len(writers) < 3:  # noqa: ASYNC110 - connections have no event
        await asyncio.sleep(0)
    staying.cancel()
    await asyncio.gather(staying, return_exceptions=True)
    assert time.monotonic() - begun_s < 10
    for writer in writers:
        writer.transport.abort()
    server.close()


async def test_an_address_that_does_not_answer_counts_more_than_a_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_home, "_CONNECT_TIMEOUT_S", 0.1)
    monkeypatch.setattr(call_home, "_REFUSED_TIMEOUT_S", 0)
    monkeypatch.setattr(call_home, "_ENROLL_TIMEOUT_S", 0.5)
    monkeypatch.setattr(call_home, "_PAUSE_S", 0.01)
    authority = RunAuthority().certificate
    with socket.create_server(("127.0.0.1", 0)) as busy:
        agent = caller(tmp_path, busy.getsockname()[1], authority)
        agent.controllers.append("127.0.0.1:1")
        begun_s = time.monotonic()
        with pytest.raises(AgentError, match="does not answer within"):
            await agent.enroll()
    assert time.monotonic() - begun_s > 0.2


async def waiting_for_calls(
    opened: Door, pair: Pair
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return a connection of h1 that waits for calls."""
    reader, writer = await asyncio.open_connection(
        "127.0.0.1",
        opened.port,
        ssl=client_context(opened.authority.certificate, pair),
        server_hostname=CONTROLLER_HOST,
    )
    write_frame(writer, greeting("h1", commands=True))
    await read_frame(reader, pb.Welcome, where="controller")
    return reader, writer


async def test_a_call_takes_no_connection_that_was_reset(tmp_path: Path) -> None:
    async with door(tmp_path / "s") as opened:
        _, pair = await opened.enroll("h1", host_token(SECRET, "h1"))
        called = opened.listener.agents["h1"]
        _, dead = await waiting_for_calls(opened, pair)
        inner = await called.commands.get()
        called.commands.put_nowait(inner)
        # The host loses power, and answers again after a restart.
        dead.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
        )
        dead.transport.abort()
        while inner[0].exception() is None:  # noqa: ASYNC110 - readers have no event
            await asyncio.sleep(0)
        reader, writer = await waiting_for_calls(opened, pair)
        _, call = await asyncio.open_unix_connection(
            called.target.removeprefix("unix:")
        )
        call.write(b"call")
        async with asyncio.timeout(10):
            assert await reader.readexactly(4) == b"call"
        call.close()
        writer.close()


async def test_all_addresses_include_those_of_ipv4(tmp_path: Path) -> None:
    async with door(tmp_path / "s") as opened:
        try:
            port = await opened.listener.listen("::", 0)
        except EnvironmentProblem:
            pytest.skip("this machine has no IPv6")
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()


@pytest.mark.parametrize("data", [b"\0", b"\0\0\0\5", b"\0\0\0\5\0"])
async def test_an_end_within_a_message_is_reported(data: bytes) -> None:
    reader = asyncio.StreamReader()
    reader.feed_data(data)
    reader.feed_eof()
    with pytest.raises(PeerError, match="ended in a message"):
        await read_frame(reader, pb.Hello, where="h1")


async def test_connections_of_strangers_are_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "MOST_WAITING", 20)
    async with door(tmp_path / "s") as opened:
        with ExitStack() as stack:
            strangers = []
            for _ in range(60):
                stranger = stack.enter_context(socket.socket())
                stranger.bind(("127.0.0.2", 0))
                stranger.connect(("127.0.0.1", opened.port))
                stranger.setblocking(False)
                strangers.append(stranger)
            welcome, pair = await opened.enroll("h1", host_token(SECRET, "h1"))
            assert welcome.certificate
            assert await opened.say(greeting("h1", commands=True), pair) is not None
            # Three connections more for each of the two agents.
            assert sum(map(is_open, strangers)) <= 26


def is_open(connection: socket.socket) -> bool:
    """Return whether the other side has not closed a silent, nonblocking connection."""
    try:
        return bool(connection.recv(1))
    except BlockingIOError:
        return True
    except ConnectionResetError:
        return False


async def test_refusals_of_strangers_take_little_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "_MOST_OTHER_REFUSALS", 1)
    async with door(tmp_path / "s") as opened:
        long = await opened.say(greeting(50_000 * "h", control=True))
        assert long is not None
        assert "too long" in long.refusal.found
        for number in (2, 3, 4, 2, 5):
            source = f"127.0.0.{number}"
            await opened.say(greeting(source, control=True), source=source)
        refusals = opened.listener.refusals
        assert list(refusals) == ["127.0.0.4", "127.0.0.2", "127.0.0.5"]
        assert all(len(str(each)) < 200 for each in refusals.values())


@pytest.mark.parametrize(
    "data", [b"\xff\xff\xff\xff", b"\0\0\0\4\xff\xff\xff\xff", b"\0\0\0\5\0", b"GET / "]
)
async def test_garbage_ends_a_connection_and_nothing_else(
    tmp_path: Path, data: bytes
) -> None:
    async with door(tmp_path / "s") as opened:
        context = client_context(opened.authority.certificate, None)
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", opened.port, ssl=context, server_hostname=CONTROLLER_HOST
        )
        writer.write(data)
        writer.write_eof() if writer.can_write_eof() else writer.close()
        await reader.read()
        writer.close()
        welcome, _ = await opened.enroll("h1", host_token(SECRET, "h1"))
        assert welcome.certificate
