"""A server that forks commands from a process with all imports done.

Starting ``chakram`` takes a second of a core, almost all of it for imports. This
server has done the imports, and forks for each command. A small client replaces the
command. It passes on its descriptors, folder, environment, network and signals, and
ends with the same status. Tests about starting, killing or counting processes start
real ones.

As a program it takes ``serve SOCKET``, or ``call SOCKET WORDS...``.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from contextlib import contextmanager

TYPE_CHECKING = False  # to import typing takes longer than all the rest of a call
if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import NoReturn

__all__ = ["forked_commands"]

_PASSED_ON = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)
_LENT = 5
"""Descriptors: input, output, errors, folder, network."""

_NETWORK = "/proc/thread-self/ns/net"


@contextmanager
def forked_commands(folder: Path) -> Iterator[Path]:
    """Yield a program that replaces ``chakram`` inside the block.

    Args:
        folder: An empty one for it; its path is short, as sockets need.
    """
    import subprocess

    this = [sys.executable, "-P", __file__]
    program = folder / "chakram"
    program.write_text(
        f'#!/bin/sh\nexec {sys.executable} -SEs {__file__} call {folder}/socket "$@"\n'
    )
    program.chmod(0o755)
    with subprocess.Popen(
        [*this, "serve", f"{folder}/socket"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == b"ready\n"
        yield program


def call(address: str, words: list[str]) -> int:
    """Have the server run the command; return its exit code, or end by its signal."""
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(address)
        lent = (os.open(name, os.O_RDONLY) for name in (".", _NETWORK))
        variables = (f"{name}={value}" for name, value in os.environ.items())
        data = os.fsencode("\0".join([str(len(words)), *words, *variables]))
        socket.send_fds(server, [len(data).to_bytes(4, "big")], [0, 1, 2, *lent])
        server.sendall(data)
        for number in _PASSED_ON:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, lambda got, _: server.sendall(bytes([got])))
        status = int.from_bytes(server.recv(4), "big", signed=True)
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    return status


def serve(address: str) -> None:
    """Import what commands import, then fork for each client, until stdin ends."""
    import gc
    import select
    import threading

    from chakram.cli import command_line

    command_line()  # with all verbs
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        gc.freeze()
        os.write(1, b"ready\n")
        while 0 not in select.select([listener.fileno(), 0], [], [])[0]:
            caller, _ = listener.accept()
            # Those of jemalloc and OpenBLAS do not mind: both see to it in the child.
            assert threading.active_count() == 1, "threads are not forked"
            if not os.fork():
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                listener.close()
                _look_after(caller)
            caller.close()


def _look_after(caller: socket.socket) -> NoReturn:
    """Fork the command, pass signals on to it, and report its exit status."""
    import select

    head, lent, _, _ = socket.recv_fds(caller, 4, _LENT)
    data = bytearray()
    while len(data) < int.from_bytes(head, "big"):
        data += caller.recv(1 << 16)
    count, *said = os.fsdecode(bytes(data)).split("\0")
    command = os.fork()
    if not command:
        caller.close()
        variables = dict(each.split("=", 1) for each in said[int(count) :])
        _become(said[: int(count)], variables, lent)
    for each in (0, 1, 2, *lent):
        os.close(each)
    ended = os.pidfd_open(command)
    while ended not in select.select([caller.fileno(), ended], [], [])[0]:
        # Who is gone without a word was killed.
        for number in caller.recv(16) or [signal.SIGKILL]:
            signal.pidfd_send_signal(ended, number)
    status = os.waitstatus_to_exitcode(os.waitpid(command, 0)[1])
    caller.sendall(status.to_bytes(4, "big", signed=True))
    os._exit(0)


def _become(words: list[str], variables: dict[str, str], lent: list[int]) -> NoReturn:
    """Run the command with the client's environment, and exit like Python."""
    from chakram.__main__ import main
    from chakram.fabric.labs.enter_namespace import CLONE_NEWNET, setns

    for name in os.environ.keys() | variables.keys():
        if name.startswith(("PYTHON", "CHAKRAM_COMPILED")):
            assert os.environ.get(name) == variables.get(name), f"{name}: start it"
    for number, descriptor in enumerate(lent[:3]):
        os.dup2(descriptor, number)
    os.fchdir(lent[3])
    if not os.path.sameopenfile(lent[4], os.open(_NETWORK, os.O_RDONLY)):
        setns(lent[4], CLONE_NEWNET)
    os.closerange(3, 1 << 10)
    os.environ.clear()
    os.environ.update(variables)
    sys.argv = ["chakram", *words]
    sys.exit(main())


if __name__ == "__main__":
    verb, where, *rest = sys.argv[1:]
    if verb == "call":
        sys.exit(call(where, rest))
    serve(where)
