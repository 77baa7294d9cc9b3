"""Launcher for programs that run in a lab's namespaces.

``python -m chakram.fabric.enter_lab HOLDER_PID [--netns PATH] -- COMMAND...`` enters
the user namespace of a rootless lab and replaces itself with COMMAND. HOLDER_PID is the
process ID of the lab's holder. Labs that root started have no user namespace to enter.

Without ``--netns``, COMMAND stays in the machine's network namespace. COMMAND is then
reachable from outside the lab, and can open sockets in the lab. With ``--netns``, it
starts on a host of the lab::

    python -m chakram.fabric.enter_lab 4711 --netns /proc/4711/fd/9 -- tcpdump -i eth0
"""

from __future__ import annotations

import os
import sys

from chakram.fabric.labs.enter_namespace import enter_namespace
from chakram.fabric.labs.lab_files import STATE_ROOT_VARIABLE, state_root
from chakram.fabric.labs.user_namespace import join_user_namespace
from chakram.foundation.errors import ChakramError, ConfigError

_USAGE = "python -m chakram.fabric.enter_lab HOLDER_PID [--netns PATH] -- COMMAND..."


def enter_command(
    holder_pid: int, command: list[str], *, netns: str | None = None
) -> list[str]:
    """Return the command line that runs *command* inside a lab.

    Args:
        holder_pid: ``LabState.holder_pid``.
        command: Program and arguments.
        netns: ``HostState.netns`` of the host to start on, or None.
    """
    where = [] if netns is None else ["--netns", netns]
    return [
        *(sys.executable, "-P", "-m", "chakram.fabric.enter_lab", str(holder_pid)),
        *where,
        "--",
        *command,
    ]


def main(arguments: list[str]) -> int:
    """Replace this process with a program inside a lab. Return only on failure."""
    try:
        pid, netns, command = _parse(arguments)
        # In the user namespace, this user has ID 0, so the program would otherwise use
        # the state directory of root.
        root = str(state_root())
        if join_user_namespace(pid):
            os.environ[STATE_ROOT_VARIABLE] = root
        if netns is not None:
            enter_namespace(netns)
    except ChakramError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.stderr.write(f"error: {command[0]}: {error.strerror}\n")
        return 127


def _parse(arguments: list[str]) -> tuple[int, str | None, list[str]]:
    if "--" not in arguments:
        raise ConfigError("chakram.fabric.enter_lab", "no command is given", _USAGE)
    split = arguments.index("--")
    own, command = arguments[:split], arguments[split + 1 :]
    netns: str | None = None
    if len(own) == 3 and own[1] == "--netns":
        netns = own[2]
        own = own[:1]
    if len(own) != 1 or not own[0].isdigit() or not command:
        raise ConfigError(
            "chakram.fabric.enter_lab",
            f"{' '.join(arguments)!r} are not valid arguments",
            _USAGE,
        )
    return int(own[0]), netns, command


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
