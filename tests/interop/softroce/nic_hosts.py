"""Hosts whose ports are on one Soft-RoCE device: agents inside the guest.

The controller runs outside, in the namespace of the guest's tap.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from chakram.fabric.labs.enter_namespace import run_in_namespace
from tests.interop.softroce.machine import Machine

ROOT = Path(__file__).resolve().parents[3]
PREFIX = {4: "198.18.8.{}/24", 6: "2001:2:0:8::{}/64"}
_FIRST_PORT = 7411
_STALLED = ("the agent stalled for more than", "it does not answer in time")
_TRIES = 3
_LIMIT_S = 400
_START_LIMIT_S = 300
_POLL_S = 3
"""To look more often would take much of the time of an emulated guest."""


_READY = """
kill -0 $(cat /run/nic/pid) || { cat /run/nic/*.log >&2; exit 1; }
grep -hs ready /run/nic/*.log || true
"""
_AGENTS = Path(__file__).with_name("agents_in_guest.py")


class NicHosts:
    """The hosts, and a controller for them.

    Attributes:
        folder: Folder of this test, for certificates, experiments and runs.
    """

    def __init__(self, machines: Sequence[Machine], folder: Path, count: int) -> None:
        self._machines = machines
        self.folder = folder
        self.names = [f"h{number}" for number in range(1, 1 + count)]

    def machine_of(self, number: int) -> Machine:
        """Return the guest of a host: one guest after the other has one."""
        return self._machines[number % len(self._machines)]

    def address_of(self, number: int, version: int) -> str:
        """Return the address of the port of a host, with its prefix.

        In one guest, each host has an address. Of several guests, each has one host.
        """
        if len(self._machines) == 1:
            return PREFIX[version].format(1 + number)
        prefix = 30 if version == 4 else 64
        return f"{self.machine_of(number).guest[version]}/{prefix}"

    def experiment(self, *, version: int = 4, **keys: Any) -> dict[str, Any]:
        """Return an experiment on the hosts, with these keys in addition."""
        hosts = [
            {
                "name": name,
                "agent": f"{self.machine_of(number).guest[4]}:{_FIRST_PORT + number}",
                "ports": [
                    {
                        "open": "verbs:rxe0",
                        "address": self.address_of(number, version),
                    }
                ],
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
        return run_in_namespace(self._machines[0].namespace, start)

    @contextmanager
    def socket_host(self) -> Iterator[str]:
        """Start an agent beside the guest, and yield its address."""
        address = f"unix:{self.folder}/sockets"
        command = [sys.executable, "-m", "chakram_agent", "serve", "--listen", address]
        start = partial(
            subprocess.Popen, command, stdout=subprocess.PIPE, text=True, cwd=ROOT
        )
        with run_in_namespace(self._machines[0].namespace, start) as process:
            try:
                assert process.stdout is not None
                assert process.stdout.readline().startswith("ready")
                yield address
            finally:
                process.terminate()

    def objects(self) -> str:
        """Return how many objects of RDMA devices the guests' kernels have."""
        return "".join(
            machine.execute("rdma resource show") for machine in self._machines
        )


@contextmanager
def nic_hosts(
    machines: Sequence[Machine], folder: Path, count: int
) -> Iterator[NicHosts]:
    """Start *count* agents in the guests, and end them afterward."""
    hosts = NicHosts(machines, folder, count)
    agents = [
        (name, hosts.machine_of(number), _FIRST_PORT + number)
        for number, name in enumerate(hosts.names)
    ]
    named = [f"--agent={name}={machine.guest[4]}" for name, machine, _ in agents]
    certs = folder / "certs"
    made = hosts.chakram("certs", "--out", str(certs), *named)
    assert made.returncode == 0, made.stdout
    if len(machines) == 1:
        machines[0].execute(
            "\n".join(
                f"ip address replace {form.format(number)} dev eth0 {more}"
                for form, more in ((PREFIX[4], ""), (PREFIX[6], "nodad"))
                for number in range(1, 1 + count)
            )
        )
    for machine in machines:
        machine.execute("mkdir -p /run/nic; rm -f /run/nic/*")
    try:
        for machine in machines:
            commands = " -- ".join(
                f"/run/nic/{name}.log serve --listen {place.guest[4]}:{port} "
                f"--tls-ca {certs}/ca.pem --tls-cert {certs}/{name}.pem "
                f"--tls-key {certs}/{name}.key"
                for name, place, port in agents
                if place is machine
            )
            machine.execute(
                textwrap.dedent(
                    f"""
                    cd {ROOT}
                    ulimit -l unlimited
                    {sys.executable} {_AGENTS} {commands} \\
                        </dev/null >/run/nic/start.log 2>&1 &
                    echo $! > /run/nic/pid
                    """
                )
            )
        until_s = time.monotonic() + _START_LIMIT_S
        for machine in machines:
            count = sum(place is machine for _, place, _ in agents)
            while machine.execute(_READY).count("ready") < count:
                said = machine.execute("cat /run/nic/*.log")
                assert time.monotonic() < until_s, said
                time.sleep(_POLL_S)
        yield hosts
    finally:
        for machine in machines:
            machine.execute("kill $(cat /run/nic/pid); rm /run/nic/pid")
