"""The process that forks shards: what they inherit, and who outlives whom."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from chakram.control.client import AgentClient
from chakram.control.events import Failed, Finished
from chakram_agent import shard_handle
from chakram_agent.fork_server import (
    MOST_DESCRIPTORS,
    STATUS,
    ForkServer,
    describe_exit,
    encode_request,
    spawn_fork_server,
)
from chakram_agent.shard_handle import ForkServers, ShardProcess
from chakram_agent.shared_counters import SharedCounters
from tests.agents import (
    agent_in,
    children_of,
    endless_plan,
    shards_of,
    socket_in,
    start,
    until_the_end,
    wait_for_traffic,
)
from tests.plans import ring_plan
from tests.waiting import PATIENCE_S, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

NAME = "chakram-forksrv"
KILLED = "the process that starts shards was killed by signal 9"


@pytest.fixture
def server() -> Iterator[ForkServer]:
    server = spawn_fork_server()
    yield server
    server.end()


class Shard:
    """A shard that waits for its plan.

    Args:
        server: Forks it.
        more: Descriptors that it inherits, too.
    """

    def __init__(
        self, server: ForkServer, more: Sequence[int] = (), core: int | None = None
    ) -> None:
        self.status, theirs = socket.socketpair()
        self.status.settimeout(PATIENCE_S)
        self.control, control = socket.socketpair()
        counters = SharedCounters.create("test")
        with theirs, control:
            own = (theirs.fileno(), control.fileno(), counters.descriptor)
            server.request(7, core, (*own, *more))
        counters.close()
        self.pid = self.read()
        if self.pid > 0:  # it has its name once it dies with its fork server
            wait_until(lambda: has_name(self.pid, "chakram-shard7"), "its start")

    def read(self) -> int:
        """Return the next number of the status socket."""
        (number,) = STATUS.unpack(self.status.recv(STATUS.size))
        return int(number)

    def close(self) -> None:
        self.status.close()
        self.control.close()


@contextmanager
def shard_of(
    server: ForkServer, more: Sequence[int] = (), core: int | None = None
) -> Iterator[Shard]:
    shard = Shard(server, more, core)
    try:
        yield shard
    finally:
        shard.close()


def descriptors_of(pid: int) -> list[str]:
    folder = Path(f"/proc/{pid}/fd")
    numbers = sorted(map(int, os.listdir(folder)))
    return [os.readlink(folder / str(number)) for number in numbers]


def has_name(pid: int, name: str) -> bool:
    return Path(f"/proc/{pid}/comm").read_text() == f"{name}\n"


def is_gone(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
    return stat.rpartition(")")[2].split()[0] in "ZX"


def wait_until_gone(pids: Sequence[int]) -> None:
    wait_until(lambda: all(map(is_gone, pids)), "the end of the processes")


# ---- requests ------------------------------------------------------------------------


def test_request_is_divided_where_the_kernel_limits_its_descriptors() -> None:
    count = MOST_DESCRIPTORS + 1
    numbers = list(range(10, 10 + count))

    messages = list(encode_request(3, None, numbers))

    assert [list(sent) for _, sent in messages] == [numbers[:-1], numbers[-1:]]
    fields = {"shard": 3, "core": None, "status": 10, "count": count}
    assert [json.loads(message) for message, _ in messages] == [
        fields | {"numbers": numbers[:-1], "at": 0},
        fields | {"numbers": numbers[-1:], "at": MOST_DESCRIPTORS},
    ]


@pytest.mark.parametrize(
    ("code", "phrase"),
    [
        (-9, "was killed by signal 9"),
        (3, "ended with exit code 3; see the agent's log"),
    ],
)
def test_end_of_a_process_is_described(code: int, phrase: str) -> None:
    assert describe_exit(code) == phrase


# ---- what a shard inherits -----------------------------------------------------------


def test_shard_has_only_the_descriptors_that_it_is_given() -> None:
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)  # as from a careless launcher
    try:
        server = spawn_fork_server()
        with ExitStack() as stack:
            stack.callback(server.end)
            # Another shard's descriptors are not for this one.
            stack.enter_context(shard_of(server, [reader]))
            shard = stack.enter_context(shard_of(server))
            # The mapping of its counters has a second descriptor.
            wait_until(lambda: len(descriptors_of(shard.pid)) == 6, "its start")
            *streams, counters, control, mapped = descriptors_of(shard.pid)
            errors = os.readlink("/proc/self/fd/2")
            assert streams == ["/dev/null", "/dev/null", errors]
            assert counters == mapped == "/memfd:test (deleted)"
            assert control.startswith("socket:")
    finally:
        os.close(reader)
        os.close(writer)


def test_shard_inherits_more_descriptors_than_a_message_carries(
    server: ForkServer,
) -> None:
    more = [os.memfd_create(f"part{index}") for index in range(MOST_DESCRIPTORS + 50)]
    try:
        with shard_of(server, more) as shard:
            names = [f"/memfd:part{index} (deleted)" for index in range(len(more))]
            assert set(names) <= set(descriptors_of(shard.pid))
    finally:
        for each in more:
            os.close(each)


def test_shard_gets_what_its_agent_changed_meanwhile(server: ForkServer) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    cores = os.sched_getaffinity(0)
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    with shard_of(server):
        pass  # one that has them as they were
    script = f"""
import os, resource, sys
from tests.integration.test_fork_server import *
server = spawn_fork_server()
with shard_of(server): pass
resource.setrlimit(resource.RLIMIT_NOFILE, ({soft - 7}, {hard}))
os.sched_setaffinity(0, {{{min(cores)}}})
os.setpriority(os.PRIO_PROCESS, 0, {min(nice + 3, 19)})
with shard_of(server) as shard:
    print(
        resource.prlimit(shard.pid, resource.RLIMIT_NOFILE)[0],
        os.sched_getaffinity(shard.pid) == {{{min(cores)}}},
        os.getpriority(os.PRIO_PROCESS, shard.pid),
    )
server.end()
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == [str(soft - 7), "True", str(min(nice + 3, 19))]


def test_shard_is_pinned_to_its_core(server: ForkServer) -> None:
    core = max(os.sched_getaffinity(0))
    with shard_of(server, core=core) as shard:
        wait_until(lambda: os.sched_getaffinity(shard.pid) == {core}, "its core")


def test_shard_without_room_for_its_descriptors_is_refused(
    server: ForkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with shard_of(server):
        (pid,) = children_of(os.getpid(), NAME)
    monkeypatch.setattr(ForkServer, "_share_limits", lambda _: None)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (16, hard))
    many = [os.memfd_create("part") for _ in range(MOST_DESCRIPTORS + 20)]
    for more, room in ((many[:3], True), (many[:40], False), (many, False)):
        with shard_of(server, more) as shard:
            assert (shard.pid > 0) == room
            if not room:
                assert os.strerror(-shard.pid) == "Too many open files"
    for each in many:
        os.close(each)


def test_rest_of_an_incomplete_request_is_not_for_the_next_shard(
    server: ForkServer,
) -> None:
    parts = [os.memfd_create("part") for _ in range(MOST_DESCRIPTORS + 1)]
    first, _ = encode_request(0, None, parts)
    message, sent = first
    socket.send_fds(server._requests, [message], sent)
    with shard_of(server) as shard:
        assert not [each for each in descriptors_of(shard.pid) if "part" in each]
    for each in parts:
        os.close(each)


# ---- ends of processes ---------------------------------------------------------------


def test_end_of_a_shard_is_reported(server: ForkServer) -> None:
    with shard_of(server) as shard:
        os.kill(shard.pid, signal.SIGTERM)
        assert shard.read() == -signal.SIGTERM


@pytest.mark.parametrize("is_closed", [False, True], ids=["shut-down", "closed"])
def test_shard_is_killed_through_its_status_socket(
    server: ForkServer, is_closed: bool
) -> None:
    with shard_of(server) as shard:
        os.kill(shard.pid, signal.SIGSTOP)  # it cannot notice the end of its agent
        if is_closed:
            shard.status.close()
        else:
            shard.status.shutdown(socket.SHUT_WR)
            assert shard.read() == -signal.SIGKILL
        wait_until_gone([shard.pid])


def test_shards_die_with_their_fork_server(server: ForkServer) -> None:
    with shard_of(server) as shard:
        os.kill(shard.pid, signal.SIGSTOP)
        assert server.end() == KILLED
        wait_until_gone([shard.pid])
    with pytest.raises(BrokenPipeError):
        server.request(0, None, [])


def test_error_in_a_shard_is_in_the_log_and_its_exit_code(
    capfd: pytest.CaptureFixture[str],
) -> None:
    server = spawn_fork_server()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        # Its control socket is no socket.
        server.request(0, None, (theirs.fileno(), 1, 2))
        theirs.close()
        assert STATUS.unpack(ours.recv(STATUS.size))[0] > 0
        assert STATUS.unpack(ours.recv(STATUS.size))[0] == 1
    server.end()
    assert "OSError" in capfd.readouterr().err


@pytest.mark.asyncio
async def test_killed_fork_server_ends_the_run_and_is_replaced(tmp_path: Path) -> None:
    async with agent_in(tmp_path) as client:
        await start(client, endless_plan())
        await wait_for_traffic(client)
        (server,) = children_of(os.getpid(), NAME)
        shards = shards_of(os.getpid())
        os.kill(server, signal.SIGKILL)
        failed = (await until_the_end(client))[-1]
        assert isinstance(failed, Failed)
        assert failed.reason == KILLED
        wait_until_gone(shards)
        await client.reset()
        await start(client, ring_plan())
        assert isinstance((await until_the_end(client))[-1], Finished)


@pytest.mark.asyncio
async def test_ctrl_c_leaves_the_end_of_traffic_to_the_agent(tmp_path: Path) -> None:
    async with agent_in(tmp_path) as client:
        await start(client, endless_plan())
        await wait_for_traffic(client)
        pids = [*children_of(os.getpid(), NAME), *shards_of(os.getpid())]
        for pid in pids:
            os.kill(pid, signal.SIGINT)
        for _ in range(3):
            await wait_for_traffic(client)
        assert not any(map(is_gone, pids))
        await client.abort("enough")
        failed = (await until_the_end(client))[-1]
        assert isinstance(failed, Failed)
        assert failed.reason == "enough"


@pytest.mark.asyncio
async def test_idle_fork_server_that_is_killed_or_frozen_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def replaced() -> ForkServer:
        monkeypatch.setattr(shard_handle, "START_TIMEOUT_S", PATIENCE_S)
        return spawn_fork_server()

    monkeypatch.setattr(shard_handle, "spawn_fork_server", replaced)
    async with agent_in(tmp_path) as client:
        for number in (signal.SIGKILL, signal.SIGSTOP):
            await client.prepare(ring_plan(shards=2))
            await client.reset()
            (server,) = children_of(os.getpid(), NAME)
            os.kill(server, number)
            if number == signal.SIGSTOP:
                monkeypatch.setattr(shard_handle, "START_TIMEOUT_S", 0.2)
            await start(client, ring_plan())
            assert isinstance((await until_the_end(client))[-1], Finished)
            assert children_of(os.getpid(), NAME) != [server]
            await client.reset()


@pytest.mark.asyncio
async def test_frozen_shard_of_a_frozen_fork_server_is_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shard_handle, "KILL_TIMEOUT_S", 0.2)
    servers = ForkServers()
    shard = await ShardProcess.start(0, servers=servers)
    (server,) = children_of(os.getpid(), NAME)
    pids = [server, *shards_of(os.getpid())]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    shard.kill()
    assert await shard.close() == KILLED
    wait_until_gone(pids)
    shard.counters.close()
    servers.close()


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("number", "is_for_all", "code"),
    [
        (signal.SIGKILL, False, -signal.SIGKILL),
        (signal.SIGTERM, False, 0),
        (signal.SIGINT, True, 0),  # Ctrl-C
        (signal.SIGHUP, True, -signal.SIGHUP),  # a closed terminal
        (signal.SIGTERM, True, 0),  # the end of a systemd service
    ],
)
async def test_end_of_an_agent_leaves_no_process(
    tmp_path: Path, number: int, is_for_all: bool, code: int
) -> None:
    with agent_process(socket_in(tmp_path)) as agent:
        async with await AgentClient.connect(socket_in(tmp_path), name="a") as client:
            await start(client, endless_plan())
            await wait_for_traffic(client)
            pids = [*children_of(agent.pid, NAME), *shards_of(agent.pid)]
            assert len(pids) == 2
            (os.killpg if is_for_all else os.kill)(agent.pid, number)
            assert agent.wait(PATIENCE_S) == code
            wait_until_gone(pids)


@contextmanager
def agent_process(listen: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start an agent as the leader of a new session."""
    command = (sys.executable, "-m", "chakram_agent", "serve", "--listen", listen)
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, start_new_session=True
    ) as agent:
        try:
            assert agent.stdout is not None
            assert agent.stdout.readline() == f"ready {listen}\n".encode()
            yield agent
        finally:
            agent.kill()


# ---- the agent's entry ---------------------------------------------------------------


@pytest.mark.asyncio
async def test_shards_have_neither_grpc_nor_asyncio_in_memory(tmp_path: Path) -> None:
    with agent_process(socket_in(tmp_path)) as agent:
        async with await AgentClient.connect(socket_in(tmp_path), name="a") as client:
            await client.prepare(ring_plan())
            (server,) = children_of(agent.pid, NAME)
            (shard,) = shards_of(agent.pid)
            for library in ("cygrpc", "_asyncio"):
                assert library in mapped_by(agent.pid)
                assert library not in mapped_by(server) + mapped_by(shard)
            assert os.listdir(f"/proc/{server}/task") == [str(server)]


def mapped_by(pid: int) -> str:
    return Path(f"/proc/{pid}/maps").read_text()


WATCHED = """
import json, os, sys

def watch(event, _):
    if event in ("os.fork", "os.posix_spawn", "subprocess.Popen"):
        print(event, len(os.listdir("/proc/self/task")), *sys.modules)
        sys.stdout.flush()
        os._exit(0)

sys.addaudithook(watch)
sys.argv[0] = "chakram-agent"
from chakram_agent.__main__ import main
sys.exit(main())
"""


def run_watched(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the agent up to its first process, and print the modules at that time."""
    return subprocess.run(
        [sys.executable, "-c", WATCHED, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )


def test_fork_server_starts_before_threads_and_other_modules(tmp_path: Path) -> None:
    done = run_watched("serve", "--listen", socket_in(tmp_path))
    event, threads, *modules = done.stdout.split()
    assert (event, threads) == ("os.fork", "1")
    assert "chakram_agent.shard" in modules
    assert not {"asyncio", "grpc", "pyroute2", "ssl"} & {*modules}


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--help"], 0),
        (["--version"], 0),
        (["serve", "--help"], 0),
        (["serve", "--max-rate", "10"], 2),
        (["serve", "--nonesuch"], 2),
        (["serve", "--token-file", "/nonexistent"], 2),
    ],
)
def test_help_and_mistakes_start_no_process(arguments: list[str], code: int) -> None:
    done = run_watched(*arguments)
    assert done.returncode == code
    assert "os.fork" not in done.stdout
    assert done.stdout + done.stderr
