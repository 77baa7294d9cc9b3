"""Fabrics without namespaces, and processes that end together."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys

import pytest

from chakram.fabric.fabric_types.loopback import check_ports_free, loopback_ports
from chakram.fabric.process_control import end_process, is_alive, process_start_ticks
from chakram.foundation.errors import PortInUse
from tests.udp_ports import free_udp_ports
from tests.waiting import PATIENCE_S, wait_until

SLEEP = "import time; print(flush=True); time.sleep(60)"
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
"""
CHILD = """
import os, time
from chakram.fabric.process_control import die_with_parent
die_with_parent(os.getppid())
print(flush=True)
time.sleep(60)
"""


def start(script: str) -> tuple[subprocess.Popen[bytes], int]:
    """Start a process and return it, once it runs, with its start time."""
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.readline()
    ticks = process_start_ticks(process.pid)
    assert ticks is not None
    return process, ticks


@pytest.mark.parametrize(
    ("script", "grace_ns", "ended_by"),
    [(SLEEP, 60 * 10**9, signal.SIGTERM), (DEAF + SLEEP, 1, signal.SIGKILL)],
)
def test_process_is_terminated_and_then_killed(
    script: str, grace_ns: int, ended_by: signal.Signals
) -> None:
    process, ticks = start(script)
    with process:
        assert not end_process(process.pid, ticks + 1, grace_ns=0)
        assert process.poll() is None
        assert end_process(process.pid, ticks, grace_ns=grace_ns)
        assert not is_alive(process.pid, ticks)  # a zombie, until it is waited for
        assert process.wait(PATIENCE_S) == -ended_by
    assert not end_process(process.pid, ticks, grace_ns=0)


def test_a_process_dies_with_its_parent() -> None:
    parent = subprocess.run(
        [sys.executable, "-c", PARENT, CHILD],
        stdout=subprocess.PIPE,
        timeout=PATIENCE_S,
        check=True,
    )
    child = int(parent.stdout)
    wait_until(lambda: not is_alive(child, process_start_ticks(child) or 0), "its end")


DAEMON = """
import os, sys, time
from chakram.fabric.process_control import become_daemon
descriptor = become_daemon()
print(os.getpid(), os.getsid(0), flush=True)
if sys.argv[1] == "up":
    os.close(descriptor)
time.sleep(60)
"""


@pytest.mark.parametrize("state", ["up", "starting"])
def test_a_daemon_outlives_its_starter_only_once_it_is_up(state: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", DAEMON, state], stdout=subprocess.PIPE
    ) as starter:
        assert starter.stdout is not None
        daemon, session = map(int, starter.stdout.readline().split())
        assert daemon == session != starter.pid
        ticks = process_start_ticks(daemon)
        assert ticks is not None
        if state == "up":
            assert starter.wait(PATIENCE_S) == 0
            assert end_process(daemon, ticks, grace_ns=PATIENCE_S * 10**9)
        else:
            # The starter ends its daemon before itself.
            starter.terminate()
            assert starter.wait(PATIENCE_S) == 0
        assert not is_alive(daemon, ticks)


@pytest.mark.parametrize(
    ("family", "where"), [("ipv4", "127.18.0.3:{}"), ("ipv6", "[::1]:{}")]
)
def test_loopback_ports_in_use_are_refused(family: str, where: str) -> None:
    ports = loopback_ports(3, udp_port=free_udp_ports(3), family=family)
    kind = socket.AF_INET6 if family == "ipv6" else socket.AF_INET
    with socket.socket(kind, socket.SOCK_DGRAM) as other:
        other.bind((ports[2].address, ports[2].udp_port))
        expected = re.escape(f"port h2 at {where.format(ports[2].udp_port)}")
        with pytest.raises(PortInUse, match=expected):
            check_ports_free(ports)
        check_ports_free(ports[:2])
    check_ports_free(ports)
