"""Run commands of Chakram in a process that lacks what another platform lacks.

Usage: foreign_platform.py darwin|win32; a list of commands on standard input. Prints
exit code and output of each as JSON. The libraries are loaded first, because they are
built for this platform.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import select
import signal
import socket
import sys
import sysconfig
from importlib import import_module
from importlib.abc import MetaPathFinder
from types import ModuleType

LIBRARIES = (
    "asyncio",
    "bokeh.embed",
    "bokeh.models",
    "bokeh.plotting",
    "bokeh.resources",
    "concurrent.futures.process",
    "jinja2",
    "multiprocessing.context",
    "numpy",
    "pyarrow.parquet",
    "pydantic",
    "rich.console",
    "rich.progress",
    "rich.table",
    "typer.main",
    "urllib.request",
    "yaml",
)
MODULES = {
    "darwin": ("pyroute2",),
    "win32": ("pyroute2", "fcntl", "grp", "pty", "pwd", "resource", "termios", "tty"),
}
LINUX_ONLY = {
    os: (
        *("eventfd", "memfd_create", "pidfd_open", "sched_getaffinity"),
        *("sched_setaffinity", "setns", "unshare"),
    ),
    select: ("epoll",),
    signal: ("SIGRTMIN", "SIGRTMAX", "pidfd_send_signal", "sigtimedwait"),
    socket: ("AF_NETLINK", "AF_PACKET", "SO_BINDTODEVICE", "recvmsg_into"),
}
POSIX_ONLY = {
    os: (
        *("O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW", "fchmod", "fork", "geteuid"),
        *("getegid", "getpriority", "getuid", "killpg", "mkfifo", "uname"),
    ),
    select: ("poll",),
    signal: ("SIGALRM", "SIGHUP", "SIGKILL", "SIGPIPE", "SIGUSR1", "setitimer"),
    socket: ("AF_UNIX", "socketpair"),
}


class Absent(MetaPathFinder):
    """Finder that has none of the modules of another platform."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names

    def find_spec(self, name: str, *_: object) -> None:
        if name.partition(".")[0] in self.names:
            raise ModuleNotFoundError(f"no module named {name!r} here", name=name)


def remove(attributes: dict[ModuleType, tuple[str, ...]]) -> None:
    for module, names in attributes.items():
        for name in names:
            if hasattr(module, name):
                delattr(module, name)


def run(command: list[str]) -> dict[str, object]:
    from chakram.cli import main

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(command)
    return {"code": code, "out": out.getvalue(), "err": err.getvalue()}


if __name__ == "__main__":
    platform = sys.argv[1]
    sysconfig.get_config_vars()
    for library in LIBRARIES:
        import_module(library)
    for name in [*sys.modules]:
        if name.partition(".")[0] in MODULES[platform]:
            del sys.modules[name]
    sys.meta_path.insert(0, Absent(MODULES[platform]))
    remove(LINUX_ONLY)
    if platform == "win32":
        remove(POSIX_ONLY)
    sys.platform = platform
    commands = json.load(sys.stdin)
    results = {" ".join(command): run(command) for command in commands}
    json.dump(results, sys.stdout)
