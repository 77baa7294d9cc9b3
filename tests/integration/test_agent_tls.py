"""Mutual TLS between controllers and agents, and addresses of agents."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from chakram.control.certificates import make_certificates
from chakram.control.client import AgentClient
from chakram.control.tls_files import TlsFiles
from chakram.foundation.errors import (
    AgentError,
    ConfigError,
    EnvironmentProblem,
    PortInUse,
)
from chakram_agent import tls_gate
from tests.agents import (
    TIMEOUT_S,
    endless_plan,
    serving,
    start,
    wait_for_traffic,
)

pytestmark = pytest.mark.asyncio

FEW_DESCRIPTORS, MANY_CONNECTIONS = 256, 350


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certs")
    make_certificates(folder / "lab", {"h1": ["127.0.0.1"], "h2": ["192.0.2.1"]})
    make_certificates(folder / "other", {"h1": ["127.0.0.1"]})
    return folder


def tls(folder: Path, name: str, *, ca: Path | None = None) -> TlsFiles:
    return TlsFiles(
        ca=(ca or folder) / "ca.pem",
        cert=folder / f"{name}.pem",
        key=folder / f"{name}.key",
    )


async def connect(target: str, files: TlsFiles | None, *, timeout_s: float = 1) -> None:
    client = await AgentClient.connect(
        target, name="h1", tls=files, timeout_s=timeout_s
    )
    await client.close()


async def test_both_sides_show_their_certificates(certificates: Path) -> None:
    lab = certificates / "lab"
    async with (
        serving("127.0.0.1:0", tls=tls(lab, "h1")) as target,
        await AgentClient.connect(
            target, name="h1", tls=tls(lab, "controller")
        ) as client,
    ):
        await client.attach()
        assert client.description.phase == "IDLE"


async def test_a_controller_without_certificates_is_refused(certificates: Path) -> None:
    async with serving("127.0.0.1:0", tls=tls(certificates / "lab", "h1")) as target:
        with pytest.raises(AgentError, match="or it requires certificates"):
            await connect(target, None)


async def test_a_controller_of_another_authority_is_refused(certificates: Path) -> None:
    lab, other = certificates / "lab", certificates / "other"
    async with serving("127.0.0.1:0", tls=tls(lab, "h1")) as target:
        with pytest.raises(
            AgentError, match="does not accept the controller's certificate"
        ):
            await connect(target, tls(other, "controller", ca=lab))


async def test_agent_cannot_control_another_agent(certificates: Path) -> None:
    lab = certificates / "lab"
    async with serving("127.0.0.1:0", tls=tls(lab, "h1")) as target:
        with pytest.raises(
            AgentError, match="does not accept the controller's certificate"
        ):
            await connect(target, tls(lab, "h2"))


async def test_an_agent_of_another_authority_is_refused(certificates: Path) -> None:
    lab, other = certificates / "lab", certificates / "other"
    async with serving("127.0.0.1:0", tls=tls(other, "h1")) as target:
        with pytest.raises(AgentError, match="not trusted"):
            await connect(target, tls(lab, "controller"))


async def test_a_certificate_of_another_address_is_refused(certificates: Path) -> None:
    lab = certificates / "lab"
    async with serving("127.0.0.1:0", tls=tls(lab, "h2")) as target:
        with pytest.raises(AgentError, match="not trusted for this address"):
            await connect(target, tls(lab, "controller"))


async def test_an_agent_without_certificates_is_refused(certificates: Path) -> None:
    async with serving("127.0.0.1:0") as target:
        with pytest.raises(AgentError, match="does the agent run with --tls-ca"):
            await connect(target, tls(certificates / "lab", "controller"))


async def test_missing_certificates_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"tls\.ca: .*cannot be read"):
        await connect("127.0.0.1:1", tls(tmp_path, "controller"))


async def test_mismatched_key_and_certificate_are_reported(
    certificates: Path, tmp_path: Path
) -> None:
    lab = certificates / "lab"
    text = tmp_path / "text"
    text.write_text("no certificate\n")
    for files, found in (
        (
            TlsFiles(ca=lab / "ca.pem", cert=lab / "h1.pem", key=lab / "h2.key"),
            r"tls\.key: .*h2\.key: does not belong to the certificate .*h1\.pem",
        ),
        (
            TlsFiles(ca=lab / "ca.pem", cert=lab / "h1.pem", key=text),
            r"tls\.key: .*text: it or .*h1\.pem is not a PEM file",
        ),
        (
            TlsFiles(ca=text, cert=lab / "h1.pem", key=lab / "h1.key"),
            r"tls\.ca: .*text: contains no CA certificate",
        ),
    ):
        with pytest.raises(ConfigError, match=found):
            async with serving("127.0.0.1:0", tls=files):
                pass


async def test_another_host_is_controlled_with_certificates_only() -> None:
    with pytest.raises(AgentError, match="requires certificates"):
        await connect("192.0.2.1:7411", None)


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:0", "h1:7411"])
async def test_the_world_is_served_with_certificates_only(listen: str) -> None:
    with pytest.raises(ConfigError, match="only on Unix sockets and loopback"):
        async with serving(listen):
            pass


async def test_clients_without_certificates_do_not_block_a_controller(
    certificates: Path, tmp_path: Path
) -> None:
    """More connections than the agent has descriptors, and nothing said on them."""
    lab = certificates / "lab"
    agent = await asyncio.create_subprocess_exec(
        *("prlimit", f"--nofile={FEW_DESCRIPTORS}", "--"),
        *(sys.executable, "-m", "chakram_agent", "serve", "--listen", "127.0.0.1:0"),
        *("--tls-ca", lab / "ca.pem", "--tls-cert", lab / "h1.pem"),
        *("--tls-key", lab / "h1.key"),
        stdout=asyncio.subprocess.PIPE,
    )
    assert agent.stdout is not None
    target = (await agent.stdout.readline()).decode().split()[1]
    host, _, port = target.rpartition(":")
    try:
        with ExitStack() as idle:
            for _ in range(MANY_CONNECTIONS):
                idle.enter_context(socket.create_connection((host, int(port))))
            async with asyncio.timeout(TIMEOUT_S):
                client = await AgentClient.connect(
                    target, name="h1", tls=tls(lab, "controller"), timeout_s=TIMEOUT_S
                )
            await client.attach()
            await client.close()
    finally:
        agent.terminate()
        await agent.wait()


CALLS = 12
FLOOD = """
import socket, sys, time
from collections import deque
host, port, source, sent = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
opened = deque()
for number in range(10**6):
    connection = socket.socket()
    connection.bind((source, 0))
    connection.settimeout(0.05)
    try:
        connection.connect((host, port))
        connection.send(bytes.fromhex(sent))
    except OSError:
        pass
    opened.append(connection)
    if number == 800:
        print("full", flush=True)
    if len(opened) > 800:
        opened.popleft().close()
    time.sleep(1 / 250)
"""
CLIENT_HELLO = "16030102000100" + "01fc0303"
"""The beginning of one; the rest never comes."""


async def test_a_client_that_speaks_late_gets_no_more_time(
    certificates: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_gate, "HANDSHAKE_TIMEOUT_S", 0.6)
    async with serving("127.0.0.1:0", tls=tls(certificates / "lab", "h1")) as target:
        host, _, port = target.rpartition(":")
        seconds = []
        for _ in range(5):  # the machine may be busy
            reader, writer = await asyncio.open_connection(host, int(port))
            begun_s = time.monotonic()
            await asyncio.sleep(0.5)
            writer.write(bytes.fromhex(CLIENT_HELLO))
            await reader.read()
            seconds.append(time.monotonic() - begun_s)
            writer.close()
            if seconds[-1] < 0.9:
                break
        assert min(seconds) < 0.9


@pytest.mark.parametrize(
    ("source", "sent"),
    [
        ("127.0.0.1", ""),
        pytest.param("127.0.0.2", "", marks=pytest.mark.soak),
        ("127.0.0.2", CLIENT_HELLO),
    ],
    ids=["same source", "silent", "speaking"],
)
async def test_flood_of_clients_without_certificates_does_not_block_a_controller(
    certificates: Path, source: str, sent: str
) -> None:
    lab = certificates / "lab"
    async with serving("127.0.0.1:0", tls=tls(lab, "h1")) as target:
        host, _, port = target.rpartition(":")
        async with await AgentClient.connect(
            target, name="h1", tls=tls(lab, "controller")
        ) as client:
            await start(client, endless_plan())
            await wait_for_traffic(client)
            flood = await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", FLOOD, host, port, source, sent),
                stdout=asyncio.subprocess.PIPE,
            )
            try:
                assert flood.stdout is not None
                assert await flood.stdout.readline() == b"full\n"
                for _ in range(CALLS):
                    await connect(target, tls(lab, "controller"), timeout_s=5)
                # The session has kept its agent: heartbeats came in time.
                assert (await client.describe()).phase == "RUNNING"
            finally:
                flood.kill()
                await flood.wait()
            await client.abort("enough")


async def test_address_without_an_agent_is_reported(tmp_path: Path) -> None:
    nobody = (
        r"no agent listens at this address \(start it: chakram-agent serve --listen "
    )
    with pytest.raises(AgentError, match=rf"{nobody}unix:{tmp_path}/a\)"):
        await connect(f"unix:{tmp_path}/a", None)
    with pytest.raises(AgentError, match=rf"{nobody}127\.0\.0\.1:1 --insecure\)"):
        await connect("127.0.0.1:1", None)


async def test_only_the_owner_opens_the_socket(tmp_path: Path) -> None:
    async with serving(f"unix:{tmp_path}/a"):
        assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o600
    assert not (tmp_path / "a").exists()


async def test_socket_path_of_a_running_agent_is_not_replaced(tmp_path: Path) -> None:
    async with serving(f"unix:{tmp_path}/a") as target:
        with pytest.raises(PortInUse, match="another agent listens there"):
            async with serving(target):
                pass
        await connect(target, None)


async def test_socket_path_of_an_agent_that_hangs_is_not_replaced(
    tmp_path: Path,
) -> None:
    path = f"{tmp_path}/a"
    with ExitStack() as stack:
        hanging = stack.enter_context(socket.socket(socket.AF_UNIX))
        hanging.bind(path)
        hanging.listen(0)
        while True:  # until its queue of connections is full
            client = stack.enter_context(socket.socket(socket.AF_UNIX))
            client.setblocking(False)
            if client.connect_ex(path):
                break
        with pytest.raises(PortInUse, match="another agent listens there"):
            async with serving(f"unix:{path}"):
                pass
        assert os.path.exists(path)  # noqa: ASYNC240 - takes microseconds


async def test_leftover_socket_is_replaced(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(f"{tmp_path}/a")
    async with serving(f"unix:{tmp_path}/a") as target:
        await connect(target, None)


async def test_a_file_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    with pytest.raises(EnvironmentProblem, match="a file with that name exists"):
        async with serving(f"unix:{tmp_path}/a"):
            pass


@pytest.mark.parametrize("length", [108, 300])
async def test_too_long_socket_path_is_reported(tmp_path: Path, length: int) -> None:
    with pytest.raises(EnvironmentProblem, match="shorter than 108 bytes"):
        async with serving(f"unix:{tmp_path}/{'a' * length}"):
            pass


async def test_socket_path_below_a_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    with pytest.raises(EnvironmentProblem, match="Not a directory"):
        async with serving(f"unix:{tmp_path}/a/b"):
            pass


async def test_command_reports_a_port_in_use(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        code, complaint = await run_agent("--listen", listen, "--insecure")
    assert code == PortInUse.exit_code
    warning, sentence = complaint.splitlines()
    assert "every local user can control this agent" in warning
    assert sentence == (
        f"chakram-agent: {listen}: another program listens there "
        "(end it, or choose another port)"
    )


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--allow", "0.0.0.0/0"], "--allow: 0.0.0.0/0 covers 4294967296 addresses"),
        (["--max-rate", "fast"], "--max-rate: 'fast' is not a rate"),
        (["--tls-ca", "ca.pem"], "--tls-ca, --tls-cert, --tls-key: only some"),
        (["--listen", "here"], "--listen: 'here' is not an address"),
        (
            ["--listen", "127.0.0.1:0"],
            "--listen 127.0.0.1:0: without certificates, every local user could "
            "control the agent at this address",
        ),
        (["--metrics", "here"], "metrics.listen: 'here' is not an address with a port"),
    ],
)
async def test_command_reports_wrong_options(options: list[str], sentence: str) -> None:
    code, complaint = await run_agent(*options)
    assert code == ConfigError.exit_code
    assert complaint.startswith(f"chakram-agent: {sentence}")


async def run_agent(*options: str) -> tuple[int | None, str]:
    """Return exit code and complaint of an agent that does not start."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "chakram_agent", "serve", *options,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    async with asyncio.timeout(TIMEOUT_S):
        _, complaint = await process.communicate()
    return process.returncode, complaint.decode()
