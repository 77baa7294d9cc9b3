"""Agents that are started for one run, and end with it."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from chakram.control.call_home.enrollment import (
    SECRET_BYTES,
    Enrollment,
    host_token,
    job_token,
)
from chakram.control.call_home.listener import CallHomeListener
from chakram.control.call_home.run_certificate_authority import RunAuthority
from chakram.control.call_home.token_file import TokenFile
from chakram.fabric.inventory.slurm_hostlist import expand_host_list
from chakram.fabric.process_control import die_with_parent
from chakram.foundation.errors import ConfigError, EnvironmentProblem, HostsAbsent
from chakram.foundation.ip_addresses import is_encodable, socket_text
from chakram.foundation.socket_folder import socket_folder
from chakram.foundation.text_escaping import one_line, plain, to_file_name
from chakram.launch.agent_installation import PUSHED_AGENT, start_launcher
from chakram.launch.launchers import LaunchCommand, Launcher, LaunchRequest, launcher

if TYPE_CHECKING:
    from chakram.config.experiment import Experiment

ARRIVAL_TIMEOUT_S = 60.0
"""Longest time between the start of a launcher and the first call from its agents."""
STARTING_AT_ONCE = 32
"""Number of commands that wait for their agents at the same time. The limit prevents
hundreds of simultaneous requests to an authentication server."""
_END_TIMEOUT_S = 5.0
_KILL_TIMEOUT_S = 2.0
_ENDS_WITHIN_S = 1.0
_LAST_OUTPUT_TIMEOUT_S = 1.0
_LAST_LINES = 20
_LONGEST_LINE = 400
_MOST_LOG_BYTES = 1 << 20
_PROBED_PORT = 9  # discard port; connecting a UDP socket sends nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOptions:
    """The user's options for starting agents.

    Attributes:
        kind: Name of the launcher.
        listen: Address and port that the controller listens on. If empty, all addresses
            and a free port.
        agent: Command of the agent on the hosts. If empty, the agent that was pushed to
            a host, or ``chakram-agent`` if no agent was pushed.
        options: Further options for the launcher's own command.
        lease: Time without a controller after which agents end themselves.
        tolerate: Number of hosts that may be absent. If a tolerated host is absent, the
            start fails only after all other hosts have started.
    """

    kind: str
    listen: str = ""
    agent: Sequence[str] = ()
    options: Sequence[str] = ()
    lease: str = "10min"
    tolerate: int = 0

    def allocated_hosts(self) -> set[str] | None:
        """Return the hosts of this Slurm job, or None if agents may run on any host.

        Raises:
            ConfigError: If the environment has no valid host list.
        """
        nodes = os.environ.get("SLURM_JOB_NODELIST")
        if nodes is None or self.kind != "slurm":
            return None
        return set(expand_host_list(nodes, where="SLURM_JOB_NODELIST"))

    def on_allocated_hosts(self, experiment: Experiment) -> Experiment:
        """Return *experiment* without the hosts on which this job cannot start agents.

        Raises:
            ConfigError: If no host is left, or the environment is invalid.
        """
        names = self.allocated_hosts()
        if names is None:
            return experiment
        fabric = experiment.fabric.only_hosts(names)
        return experiment.model_copy(update={"fabric": fabric})


@dataclass(slots=True, eq=False)
class _Started:
    """A running command of a launcher.

    Attributes:
        command: Command that was started.
        process: Process of the command.
        token: The token in hexadecimal digits, which a terminal may echo.
        last: The last lines of the process's output.
        reading: Task that reads the output.
    """

    command: LaunchCommand
    process: asyncio.subprocess.Process
    token: str = ""
    last: deque[str] = field(default_factory=lambda: deque(maxlen=_LAST_LINES))
    reading: asyncio.Task[None] = field(init=False)

    @property
    def has_ended(self) -> bool:
        return self.process.returncode is not None

    def told(self) -> str:
        """Return how the process ended and its last output, as a clause."""
        status = self.process.returncode or 0
        name = Path(self.command.arguments[0]).name
        how = (
            f"was ended by {_signal_name(-status)}"
            if status < 0
            else f"ended with exit status {status}"
        )
        lines = [each for each in self.last if each]
        return f"{name} {how}: {lines[-1]}" if lines else f"{name} {how}"


def _signal_name(number: int) -> str:
    """Return the name of a signal, or its number if it has no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


@dataclass(slots=True)
class LaunchedAgents:
    """The agents of a run, which have all connected to the controller.

    Attributes:
        listener: Listener that the agents have connected to.
        logs: Folder for a log of each host. If None, there are no logs.
        started: The launcher's processes.
    """

    listener: CallHomeListener
    logs: Path | None
    started: list[_Started] = field(default_factory=list)
    _logged: dict[str, int] = field(default_factory=dict)

    async def ended(self, within_s: float | None = _ENDS_WITHIN_S) -> list[str]:
        """Return clauses about how launchers have ended. Omit running launchers.

        The connection of an agent ends before its launcher does. The method therefore
        waits if no launcher has ended.

        Args:
            within_s: Longest time to wait. If None, wait until a launcher ends.
        """
        waiting = [
            asyncio.create_task(each.process.wait(), name="launcher")
            for each in self.started
        ]
        try:
            await asyncio.wait(
                waiting, timeout=within_s, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            for task in waiting:
                task.cancel()
        ended = [each for each in self.started if each.has_ended]
        await _read_last_output(ended)
        return [f"{', '.join(each.command.hosts)}: {each.told()}" for each in ended]

    def write_log(self, name: str, text: str) -> None:
        """Add lines to the log of a host, up to a size limit."""
        if self.logs is None:
            return
        data = (plain(text) + "\n").encode()
        before = self._logged.get(name, 0)
        self._logged[name] = before + len(data)
        if before > _MOST_LOG_BYTES:
            return
        # Ignore a full disk here, because writing the records of the run reports it.
        with suppress(OSError):
            self.logs.mkdir(exist_ok=True)
            with (self.logs / f"{to_file_name(name)}.log").open("ab") as file:
                file.write(data)
                if self._logged[name] > _MOST_LOG_BYTES:
                    file.write(b"# the rest of this log was dropped\n")


def agent_command(options: LaunchOptions, *, allow: Sequence[str]) -> tuple[str, ...]:
    """Return the command of launched agents.

    Args:
        options: Options for starting agents.
        allow: Prefixes that agents may send to. If empty, the agent's default.
    """
    own = (sys.executable, "-P", "-m", "chakram_agent")
    command = tuple(options.agent) or (own if options.kind == "local" else PUSHED_AGENT)
    return (
        *command,
        *("serve", "--token-file", "-", "--lease", options.lease, "--verbose"),
        *(word for prefix in allow for word in ("--allow", prefix)),
    )


@asynccontextmanager
async def launched_agents(
    options: LaunchOptions,
    hosts: Mapping[str, str],
    *,
    allow: Sequence[str],
    logs: Path | None,
    arrived: Callable[[int, int], None] = lambda done, total: None,
) -> AsyncIterator[LaunchedAgents]:
    """Start agents on hosts until the block ends.

    Args:
        options: Options for starting agents.
        hosts: Names of the hosts, each with the address that reaches it.
        allow: Prefixes that the agents may send to.
        logs: Folder for a log of each host. If None, there are no logs.
        arrived: Function that is called with the number of agents that have called, and
            with the number of all agents.

    Yields:
        The agents.

    Raises:
        HostsAbsent: If an agent does not call. The error contains the hosts and the
            launcher's last output.
        ConfigError: If the options are not valid.
        EnvironmentProblem: If the controller cannot listen, or the launcher is not
            installed.
    """
    chosen = launcher(options.kind)
    request = LaunchRequest(
        hosts=hosts,
        agent=agent_command(options, allow=allow),
        options=options.options,
        environment=os.environ,
    )
    commands = chosen.commands(request)
    secret = secrets.token_bytes(SECRET_BYTES)
    authority = RunAuthority()
    enrollment = Enrollment(
        secret=secret,
        names=tuple(hosts),
        shares_token=chosen.shares_token,
        ends_ns=time.monotonic_ns(),
    )
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(socket_folder())
        listener = await stack.enter_async_context(
            CallHomeListener(
                folder, enrollment, authority, lambda *line: agents.write_log(*line)
            )
        )
        agents = LaunchedAgents(listener, logs)
        address, port = listen_address(options.listen)
        bound = await listener.listen(address, port)
        # Use a thread, because host names may have to be resolved.
        reaches = await asyncio.to_thread(_reaches, address, chosen, hosts.values())
        controllers = [socket_text(each, bound) for each in reaches]

        def token_file(each: LaunchCommand) -> TokenFile:
            shared = chosen.shares_token
            name = None if shared else each.hosts[0]
            return TokenFile(
                token=job_token(secret) if name is None else host_token(secret, name),
                authority=authority.certificate,
                controllers=tuple(controllers),
                name=name,
                launcher_port=bound if chosen.tells_address and not address else 0,
            )

        stack.push_async_callback(_end, agents)
        # Start the time limit only now, because resolving host names may have taken
        # long.
        waves = 1 + len(commands) // STARTING_AT_ONCE
        enrollment.ends_ns = (
            time.monotonic_ns() + round(ARRIVAL_TIMEOUT_S * 1e9) * waves
        )
        await _start(commands, token_file, agents, arrived, options.tolerate)
        yield agents


_LISTEN = re.compile(
    r"(?:\[([^][]*)\]|([^][:]*)|([^][]*:[^][]*:[^][]*))(?::([0-9]{1,5}))?"
)


def listen_address(text: str) -> tuple[str, int]:
    """Return the address and port in ``--listen``. They are empty and 0 by default.

    Raises:
        ConfigError: If *text* is not a valid address.
    """
    found = _LISTEN.fullmatch(text)
    host, port = "", 0
    if found:
        host, port = found[1] or found[2] or found[3] or "", int(found[4] or 0)
    if found is None or port > 65535 or not is_encodable(host):
        raise ConfigError(
            f"--listen {text}",
            "is not an address",
            "e.g. 192.0.2.10 or 192.0.2.10:7410",
        )
    return host, port


def _reaches(listen: str, chosen: Launcher, addresses: Iterable[str]) -> list[str]:
    """Return the addresses at which agents can reach the controller.

    Without ``--listen``, these are addresses of the interfaces that lead to the hosts.

    Raises:
        EnvironmentProblem: If no host has an address.
    """
    if listen not in ("", "::", "0.0.0.0"):
        return [listen]
    if chosen.reaches is not None:
        return list(chosen.reaches)
    found: dict[str, None] = {}
    failure = ""
    for login in addresses:
        address = login.rpartition("@")[2]
        try:
            family, _, _, _, peer = socket.getaddrinfo(
                address, _PROBED_PORT, type=socket.SOCK_DGRAM
            )[0]
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect(peer)
                found[probe.getsockname()[0]] = None
        except OSError as error:
            failure = f"{address}: {error.strerror or error}"
        except UnicodeError:  # a part of the name is empty, or longer than 63 bytes
            failure = f"{address}: is not a host name"
    if not found and not chosen.tells_address:
        raise EnvironmentProblem(
            "controller",
            f"knows no address at which the hosts reach it ({failure})",
            "give it: --listen ADDRESS",
        )
    return list(found)


async def _start(
    commands: Sequence[LaunchCommand],
    token_file: Callable[[LaunchCommand], TokenFile],
    agents: LaunchedAgents,
    arrived: Callable[[int, int], None],
    tolerate: int,
) -> None:
    """Start all commands, a few at a time, and wait for their agents.

    Raises:
        HostsAbsent: If an agent does not call. If more than *tolerate* hosts are
            absent, the function does not wait for the other hosts.
        EnvironmentProblem: If the launcher is not installed.
    """
    waiting = list(commands)
    starting: dict[_Started, float] = {}
    listener = agents.listener
    total = len(listener.agents)
    failures: list[HostsAbsent] = []
    while waiting or starting:
        while waiting and len(starting) < STARTING_AT_ONCE:
            command = waiting.pop(0)
            each = await _spawn(command, token_file(command), agents)
            starting[each] = time.monotonic() + ARRIVAL_TIMEOUT_S
        with suppress(TimeoutError):
            async with asyncio.timeout(0.25):
                await listener.wait()
        missing = set(listener.missing())
        arrived(total - len(missing), total)
        for each, ends_s in tuple(starting.items()):
            absent = [name for name in each.command.hosts if name in missing]
            if not absent:
                del starting[each]
            elif each.has_ended or time.monotonic() > ends_s:
                del starting[each]
                failures.append(await _why_absent(each, absent, listener))
                lost = frozenset[str]().union(*(failure.hosts for failure in failures))
                if len(lost) > tolerate:
                    raise failures[0]
    if failures:
        first = failures[0]
        raise HostsAbsent(first.where, first.found, first.hint, hosts=lost)


async def _spawn(
    command: LaunchCommand, token_file: TokenFile, agents: LaunchedAgents
) -> _Started:
    """Start one command, and write the token file to its standard input.

    Raises:
        EnvironmentProblem: If the launcher is not installed.
    """
    process = await start_launcher(
        command,
        # Ctrl-C in a terminal must not end agents before they have sent their records.
        start_new_session=True,
        # SIGTERM makes a launcher end its agents if the controller is killed.
        preexec_fn=partial(die_with_parent, signal_number=signal.SIGTERM),
    )
    each = _Started(command, process, token_file.token.hex())
    each.reading = asyncio.create_task(_read(each, agents), name="launcher output")
    agents.started.append(each)
    assert process.stdin is not None
    with suppress(OSError):
        process.stdin.write(token_file.to_bytes())
        await process.stdin.drain()
        process.stdin.close()
    return each


async def _read(each: _Started, agents: LaunchedAgents) -> None:
    """Keep the last lines of a command's output, and write them to logs."""
    process = each.process
    assert process.stdout is not None
    hosts = each.command.hosts
    name = hosts[0] if len(hosts) == 1 else Path(each.command.arguments[0]).name
    while True:
        try:
            line = await process.stdout.readline()
        except ValueError:
            continue  # line longer than the limit of the stream
        if not line:
            break
        text = line.decode("utf-8", "replace").rstrip()
        if each.token:
            text = text.replace(each.token, "(token)")
        text = text[:_LONGEST_LINE]
        each.last.append(one_line(text))
        # If a command has one host, the agent sends the lines of its log itself.
        is_known = len(hosts) == 1 and " chakram_agent" in text
        if not text.startswith("ready ") and not is_known:
            agents.write_log(name, text)
    await process.wait()


async def _read_last_output(ended: Sequence[_Started]) -> None:
    """Wait until the output of *ended* commands has been read."""
    if ended:
        # A program that a command left behind, e.g. an ssh proxy, may keep the pipe
        # open.
        reading = [each.reading for each in ended]
        await asyncio.wait(reading, timeout=_LAST_OUTPUT_TIMEOUT_S)


async def _why_absent(
    each: _Started, absent: Sequence[str], listener: CallHomeListener
) -> HostsAbsent:
    """Return the error that explains why agents have not called."""
    if each.has_ended:
        await _read_last_output([each])
    more = f" and {len(absent) - 3} more" if len(absent) > 3 else ""
    plural = "s" if len(absent) > 1 else ""
    where = f"agent{plural} of {', '.join(absent[:3])}{more}"
    refusals = [
        error
        for error in listener.refusals.values()
        # If a command has one host, the agent has the name in the inventory.
        if len(each.command.hosts) > 1 or error.where.startswith(f"agent {absent[0]!r}")
    ]
    if each.has_ended:
        if refusals:
            last = refusals[-1]
            found = f"{last.where}: {last.found}"
            return HostsAbsent(where, found, last.hint, hosts=absent)
        found = f"did not start: {each.told()}"
        return HostsAbsent(where, found, _hint(each), hosts=absent)
    said = f"; the launcher printed last: {each.last[-1]}" if each.last else ""
    return HostsAbsent(
        where,
        f"did not call within {ARRIVAL_TIMEOUT_S:g} s{said}",
        "can their hosts reach the controller? name its address with --listen",
        hosts=absent,
    )


def _hint(each: _Started) -> str | None:
    """Return a hint about a launcher's exit status, or None."""
    arguments = each.command.arguments
    if each.process.returncode == 127 or "not found" in " ".join(each.last):
        return "copy it with chakram hosts push, or give its path: --agent PATH"
    if arguments[0] == "ssh" and each.process.returncode == 255:
        return f"does this work? ssh {each.command.arguments[-2]} true"
    return None


async def _end(agents: LaunchedAgents) -> None:
    """End the agents, and then the launcher's processes that are still running."""
    listener = agents.listener
    running = [each.process for each in agents.started]
    await listener.end_agents("the run has ended")
    for send, timeout_s in (
        (None, _END_TIMEOUT_S if not listener.missing() else 0.1),
        (signal.SIGTERM, _END_TIMEOUT_S),
        (signal.SIGKILL, _KILL_TIMEOUT_S),
    ):
        for process in running:
            if send is not None and process.returncode is None:
                with suppress(ProcessLookupError):
                    process.send_signal(send)
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await asyncio.gather(*(process.wait() for process in running))
                break
    for each in agents.started:
        each.reading.cancel()
