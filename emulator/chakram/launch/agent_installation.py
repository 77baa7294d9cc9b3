"""Installation of the agent on all hosts with any launcher."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import chakram
from chakram.foundation.errors import EnvironmentProblem
from chakram.foundation.text_escaping import one_line
from chakram.launch.agent_bundle import AgentBundle
from chakram.launch.launchers import LaunchCommand, LaunchRequest, launcher

AT_ONCE = 32
"""Maximum number of commands that run at the same time."""

LIMIT_S = 600.0
"""Limit on the duration of a command."""

_TIMED_OUT = 124
"""Exit status after a time limit, as for the ``timeout`` command in coreutils."""

FOLDER = ".cache/chakram"
"""Folder for bundles on hosts, relative to the home directory."""

_INSTALL = """\
set -e
[ "$(uname -m)" = "$3" ] || {
    echo "this host is $(uname -m), but the bundle is for $3" >&2; exit 4; }
umask 077
cd && mkdir -p "$1" && cd "$1"
new=$(mktemp -d ./push.XXXXXX)
trap 'rm -rf "$new"' EXIT
tar xzf - -C "$new"
[ -e "$2" ] || mv "$new/$2" . 2>/dev/null || [ -e "$2" ]
"./$2/chakram-agent" --version
ln -sfn "$2" "$4"
"""
_START = (
    f'a="$HOME/{FOLDER}/{chakram.__version__}/chakram-agent"; '
    '[ -x "$a" ] || a=chakram-agent; exec "$a" "$@"'
)
PUSHED_AGENT = ("sh", "-c", _START, "chakram-agent")
"""Command that runs the agent pushed to a host, or the installed agent if there is
none."""


@dataclass(frozen=True, slots=True)
class EndedCommand:
    """Result of a command on some hosts.

    Attributes:
        hosts: Names of the hosts.
        status: Exit status. 0 means success.
        last: Last line of the command's output.
    """

    hosts: tuple[str, ...]
    status: int
    last: str


async def install(
    bundle: AgentBundle,
    hosts: Mapping[str, str],
    *,
    kind: str,
    machine: str,
    options: Sequence[str] = (),
) -> list[EndedCommand]:
    """Unpack a bundle on hosts, and start the agent in it once as a test.

    Args:
        bundle: Bundle to unpack.
        hosts: Names of the hosts, each with the address that reaches it.
        kind: Name of the launcher.
        machine: Processor type that the bundle is for.
        options: Further options for the launcher's own command.

    Raises:
        ConfigError: If there is no such launcher.
        EnvironmentProblem: If the launcher is not installed.
    """
    words = ("sh", "-c", _INSTALL, "push", FOLDER, bundle.folder)
    request = LaunchRequest(
        hosts=hosts,
        agent=(*words, machine, chakram.__version__),
        options=options,
        environment=os.environ,
        ends_with_parent=False,
    )
    gate = asyncio.Semaphore(AT_ONCE)
    commands = launcher(kind).commands(request)
    return list(
        await asyncio.gather(*(_run(each, bundle.data, gate) for each in commands))
    )


async def start_launcher(
    command: LaunchCommand, **options: Any
) -> asyncio.subprocess.Process:
    """Start a command, with pipes for its input and its output.

    Raises:
        EnvironmentProblem: If the command cannot be started.
    """
    try:
        return await asyncio.create_subprocess_exec(
            *command.arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            **options,
        )
    except OSError as error:
        raise EnvironmentProblem(
            f"--launch: {command.arguments[0]}",
            f"cannot be started ({error.strerror})",
            "install it, or choose another launcher",
        ) from error


async def _run(
    command: LaunchCommand, data: bytes, gate: asyncio.Semaphore
) -> EndedCommand:
    """Run a command with *data* as its input.

    Raises:
        EnvironmentProblem: If the command cannot be started.
    """
    async with gate:
        process = await start_launcher(command)
        try:
            async with asyncio.timeout(LIMIT_S):
                output, _ = await process.communicate(data)
        except TimeoutError:
            process.kill()
            await process.wait()
            last = f"it did not end within {LIMIT_S:.0f} s"
            return EndedCommand(command.hosts, _TIMED_OUT, last)
    lines = output.decode("utf-8", "replace").strip().splitlines()
    last = one_line(lines[-1]) if lines else "it printed nothing"
    return EndedCommand(command.hosts, process.returncode or 0, last)
