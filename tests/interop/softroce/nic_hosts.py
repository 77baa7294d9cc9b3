"""Hosts whose ports are on one Soft-RoCE device: agents inside the guest.

The controller runs outside, in the namespace of the guest's tap.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from chakram.fabric.labs.enter_namespace import run_in_namespace
from tests.interop.softroce.machine import GUEST, Machine

ROOT = Path(__file__).resolve().parents[3]
PREFIX = {4: "198.18.8.{}/24", 6: "2001:2:0:8::{}/64"}
_FIRST_PORT = 7411
_STALLED = ("the agent stalled for more than", "it does not answer in time")
_TRIES = 3
_LIMIT_S = 400
_START_LIMIT_S = 300


_ARE_READY = """
kill -0 $(cat /run/nic/pids) || { cat /run/nic/*.log >&2; exit 1; }
for log in /run/nic/*.log; do
    grep -q ready $log || exit 0
done
echo ready
"""


class NicHosts:
    """The hosts, and a controller for them.

    Attributes:
        folder: Folder of this test, for certificates, experiments and runs.
    """

    def __init__(self, machine: Machine, folder: Path, count: int) -> None:
        self._machine = machine
        self.folder = folder
        self.names = [f"h{number}" for number in range(1, 1 + count)]

    def experiment(self, *, version: int = 4, **keys: Any) -> dict[str, Any]:
        """Return an experiment on the hosts, with these keys in addition."""
        address = PREFIX[version].format
        hosts = [
            {
                "name": name,
                "agent": f"{GUEST[4]}:{_FIRST_PORT + number}",
                "ports": [{"open": "verbs:rxe0", "address": address(1 + number)}],
            }
            for number, name in enumerate(self.names)
        ]
        names = {"ca": "ca.pem", "cert": "controller.pem", "key": "controller.key"}
        return {
            "version": 1,
            "name": "nic",
            "jobs": [],
            "iterations": {"warmup": 1, "measured": 1},
            "fabric": {
                "kind": "external",
                "defaults": {"rate": "1Gbit", "mtu": 4200},
                "hosts": hosts,
                "tls": {
                    key: str(self.folder / "certs" / name)
                    for key, name in names.items()
                },
            },
            "transport": {"path_mtu": 4096, "retransmit_timeout": "1s"},
        } | keys

    def run(
        self, experiment: Mapping[str, Any], *arguments: str
    ) -> subprocess.CompletedProcess[str]:
        """Run an experiment, and return how that ended.

        If this machine stalls the guest, agents end their traffic, as they must, or
        answer too late. Such a run says nothing of NICs, so it is repeated.
        """
        path = self.folder / "experiment.yaml"
        path.write_text(yaml.safe_dump(dict(experiment)))
        runs = self.folder / "runs"
        before = set(runs.glob("*"))
        for _ in range(_TRIES):
            done = self.chakram("run", str(path), "--runs", str(runs), *arguments)
            if not any(each in done.stdout for each in _STALLED):
                break
            for stalled in set(runs.glob("*")) - before:
                shutil.rmtree(stalled)
        return done

    def chakram(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command of the product beside the guest."""
        start = partial(
            subprocess.run,
            [sys.executable, "-m", "chakram", *arguments],
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_LIMIT_S,
            cwd=ROOT,
        )
        return run_in_namespace(self._machine.namespace, start)

    @contextmanager
    def socket_host(self) -> Iterator[str]:
        """Start an agent beside the guest, and yield its address."""
        address = f"unix:{self.folder}/sockets"
        command = [sys.executable, "-m", "chakram_agent", "serve", "--listen", address]
        start = partial(
            subprocess.Popen, command, stdout=subprocess.PIPE, text=True, cwd=ROOT
        )
        with run_in_namespace(self._machine.namespace, start) as process:
            try:
                assert process.stdout is not None
                assert process.stdout.readline().startswith("ready")
                yield address
            finally:
                process.terminate()

    def objects(self) -> str:
        """Return how many objects of RDMA devices the guest's kernel has."""
        return self._machine.execute("rdma resource show")


@contextmanager
def nic_hosts(machine: Machine, folder: Path, count: int) -> Iterator[NicHosts]:
    """Start *count* agents in the guest, and end them afterwards."""
    hosts = NicHosts(machine, folder, count)
    names = " ".join(hosts.names)
    named = [part for name in hosts.names for part in ("--agent", f"{name}={GUEST[4]}")]
    made = hosts.chakram("certs", "--out", str(folder / "certs"), *named)
    assert made.returncode == 0, made.stdout
    machine.execute(
        "\n".join(
            f"ip address replace {form.format(number)} dev eth0 {more}"
            for form, more in ((PREFIX[4], ""), (PREFIX[6], "nodad"))
            for number in range(1, 1 + count)
        )
    )
    certs = folder / "certs"
    start = textwrap.dedent(
        f"""
        cd {ROOT}
        mkdir -p /run/nic; rm -f /run/nic/*
        ulimit -l unlimited
        number={_FIRST_PORT}
        for name in {names}; do
            {sys.executable} -m chakram_agent serve --listen {GUEST[4]}:$number \\
                --tls-ca {certs}/ca.pem --tls-cert {certs}/$name.pem \\
                --tls-key {certs}/$name.key \\
                </dev/null >/run/nic/$name.log 2>&1 &
            echo $! >> /run/nic/pids
            number=$((number + 1))
        done
        """
    )
    machine.execute(start)
    try:
        until_s = time.monotonic() + _START_LIMIT_S
        while "ready" not in machine.execute(_ARE_READY):
            assert time.monotonic() < until_s, machine.execute("cat /run/nic/*.log")
            time.sleep(0.5)
        yield hosts
    finally:
        machine.execute("kill $(cat /run/nic/pids); rm /run/nic/pids")
