"""Hosts of a cluster as network namespaces, with sshd, Slurm and Open MPI.

Each host has an interface ``eth0`` on a control network (10.77.0.0/24) and ``eth1`` on
the fabric under test (198.18.77.0/24). The controller is on the control network only.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from tests.support import missing_root, require
from tests.waiting import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

AGENT = f"{sys.executable} -P -m chakram_agent"
"""Command of the agent on the hosts, which share the file system."""

_SBIN = "/usr/sbin:/usr/bin"
_SSHD = """\
Port 22
ListenAddress {address}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/user_key.pub
PidFile {folder}/sshd-{name}.pid
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin yes
MaxStartups 100
SetEnv HOME={folder}/home-{name}
"""
_SSH = """\
Host 10.77.0.*
  StrictHostKeyChecking yes
  UserKnownHostsFile {folder}/known_hosts
  IdentityFile {folder}/user_key
  IdentitiesOnly yes
{aliases}
"""
_SLURM = """\
ClusterName=ck
SlurmctldHost=ctl(10.77.0.254)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.sock
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/ctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/ctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
MpiDefault=none
ReturnToService=2
SwitchType=switch/none
NodeName=n[1-{count}] NodeAddr=10.77.0.[1-{count}] NodeHostname=n[1-{count}] \
CPUs=2 RealMemory=100 State=UNKNOWN
PartitionName=p Nodes=n[1-{count}] Default=YES MaxTime=INFINITE State=UP
"""


@dataclass(slots=True)
class HostLab:
    """The hosts ``n1`` to ``nN``, and the controller ``ctl``.

    Attributes:
        folder: Folder of keys, configurations and logs.
        count: Number of hosts.
    """

    folder: Path
    count: int
    _stack: ExitStack = field(default_factory=ExitStack)

    @property
    def hosts(self) -> list[str]:
        """Names of the hosts."""
        return [f"n{number}" for number in range(1, self.count + 1)]

    @property
    def ssh_options(self) -> list[str]:
        """Options of ssh that lead to the hosts."""
        return ["-F", str(self.folder / "ssh_config")]

    def at(self, host: str, *arguments: str) -> list[str]:
        """Return a command that runs another one on a host or the controller."""
        # A host has its own name, and does not see the namespaces of the others.
        script = 'hostname "$0" && mount -t tmpfs tmpfs /run/netns && exec "$@"'
        enter = ["ip", "netns", "exec", f"ck-{host}", "unshare", "--uts"]
        return [*enter, "sh", "-c", script, host, *arguments]

    def run(
        self,
        *arguments: str,
        expected: int | None = 0,
        environment: dict[str, str] | None = None,
        timeout_s: float = 4 * PATIENCE_S,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on the controller."""
        done = subprocess.run(
            self.at("ctl", *arguments),
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
            env={**os.environ, **(environment or {})},
        )
        assert expected is None or done.returncode == expected, (
            f"{' '.join(arguments)}\n{done.stdout}\n{done.stderr}"
        )
        return done

    def chakram(
        self,
        *arguments: str,
        expected: int | None = 0,
        environment: dict[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run chakram on the controller."""
        return self.run(
            *(sys.executable, "-m", "chakram", *arguments),
            expected=expected,
            environment=environment,
        )

    def start(self, host: str, *arguments: str, log: str) -> subprocess.Popen[bytes]:
        """Start a daemon on a host until the lab ends."""
        with (self.folder / log).open("ab") as file:
            process = subprocess.Popen(
                self.at(host, *arguments),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
            )
        self._stack.callback(_end, process)
        return process

    def start_sshd(self) -> None:
        """Start an sshd on every host, with a key of the controller."""
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        for name in ("host_key", "user_key"):
            keygen = ["ssh-keygen", "-q", "-t", "ed25519", "-N", ""]
            subprocess.run([*keygen, "-f", str(self.folder / name)], check=True)
        public = (self.folder / "host_key.pub").read_text()
        (self.folder / "known_hosts").write_text(
            "".join(f"10.77.0.{at} {public}" for at in range(1, self.count + 1))
        )
        aliases = "".join(
            f"Host {name}\n  HostName 10.77.0.{at}\n  HostKeyAlias 10.77.0.{at}\n"
            f"  UserKnownHostsFile {self.folder}/known_hosts\n"
            f"  IdentityFile {self.folder}/user_key\n"
            for at, name in enumerate(self.hosts, start=1)
        )
        (self.folder / "ssh_config").write_text(
            _SSH.format(folder=self.folder, aliases=aliases)
        )
        sshd = shutil.which("sshd", path=_SBIN)
        assert sshd is not None
        for at, name in enumerate(self.hosts, start=1):
            path = self.folder / f"sshd_config-{name}"
            address = f"10.77.0.{at}"
            (self.folder / f"home-{name}").mkdir()
            path.write_text(
                _SSHD.format(address=address, folder=self.folder, name=name)
            )
            self.start(name, sshd, "-D", "-e", "-f", str(path), log=f"sshd-{name}.log")
        for name in self.hosts:
            self._retry("ssh", *self.ssh_options, "-o", "BatchMode=yes", name, "true")

    def start_slurm(self) -> dict[str, str]:
        """Start a cluster of Slurm, and return the environment of its commands."""
        folder = self.folder
        key = folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        (folder / "state").mkdir()
        (folder / "slurm.conf").write_text(
            _SLURM.format(folder=folder, count=self.count)
        )
        # ``ip netns exec`` mounts a new /sys, without the file system of cgroups.
        (folder / "cgroup.conf").write_text(
            "CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n"
        )
        munge = ["munged", "--force", "--foreground"]
        files = {"key": key, "socket": folder / "munge.sock"}
        files |= {
            f"{each}-file": folder / f"munge.{each}" for each in ("pid", "log", "seed")
        }
        files["key-file"] = files.pop("key")
        options = [f"--{name}={path}" for name, path in files.items()]
        self.start("ctl", *munge, *options, log="munged.log")
        conf = str(folder / "slurm.conf")
        environment = {"SLURM_CONF": conf}
        self.start("ctl", "slurmctld", "-D", "-f", conf, log="slurmctld.log")
        for name in self.hosts:
            slurmd = ["slurmd", "-N", name, "-D", "-f", conf]
            self.start(name, *slurmd, log=f"slurmd-{name}.log")
        self.wait_for_idle_nodes(environment)
        return environment

    def wait_for_idle_nodes(self, environment: dict[str, str]) -> None:
        """Wait until all nodes of the cluster are idle."""
        ends_s = time.monotonic() + PATIENCE_S
        while True:
            done = self.run(
                *("sinfo", "-h", "-o", "%t %D"), expected=None, environment=environment
            )
            if done.stdout.split() == ["idle", str(self.count)]:
                return
            assert time.monotonic() < ends_s, done.stdout + done.stderr
            time.sleep(0.2)

    def _retry(self, *arguments: str) -> None:
        ends_s = time.monotonic() + PATIENCE_S
        while (done := self.run(*arguments, expected=None)).returncode:
            assert time.monotonic() < ends_s, done.stderr
            time.sleep(0.1)

    def write_inventory(self, folder: Path) -> None:
        """Write hosts.yaml with the ports of all hosts."""
        hosts = [
            {
                "name": name,
                "ports": [{"open": "udp:eth1", "address": f"198.18.77.{at}/24"}],
            }
            for at, name in enumerate(self.hosts, start=1)
        ]
        document = {"version": 1, "hosts": hosts}
        (folder / "hosts.yaml").write_text(yaml.safe_dump(document))

    def agents(self) -> list[int]:
        """Return the process IDs of all agents on the hosts."""
        return agents_in([f"ck-{name}" for name in self.hosts])


def agents_in(namespaces: Sequence[str]) -> list[int]:
    """Return the process IDs of the agents in network namespaces."""
    nodes = {Path(f"/run/netns/{name}").stat().st_ino for name in namespaces}
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "cmdline").read_bytes().split(b"\0")
            inode = (path / "ns/net").stat().st_ino
        except OSError:
            continue
        if b"chakram_agent" in words and b"serve" in words and inode in nodes:
            found.append(int(path.name))
    return found


def ip(*arguments: str) -> None:
    """Run ip."""
    subprocess.run(["ip", *arguments], check=True)


def why_no_hosts() -> str | None:
    """Return why no hosts with sshd can be made here; None if they can."""
    if shutil.which("sshd", path=_SBIN) is None:
        return "the program sshd is not installed"
    return missing_root()


@contextmanager
def ssh_lab(folder: Path) -> Iterator[HostLab]:
    """Create four hosts with sshd until the block ends.

    The running test is skipped where that cannot be done.
    """
    require("sshd", why_no_hosts())
    with host_lab(folder) as lab:
        lab.start_sshd()
        yield lab


@contextmanager
def host_lab(folder: Path, count: int = 4) -> Iterator[HostLab]:
    """Create the hosts and their networks until the block ends."""
    names = [f"ck-n{number}" for number in range(1, count + 1)]
    folder.mkdir(exist_ok=True)
    lab = HostLab(folder, count)
    with ExitStack() as stack:
        for name in ("ck-ctl", *names):
            ip("netns", "add", name)
            stack.callback(subprocess.run, ["ip", "netns", "del", name], check=False)
            ip("-n", name, "link", "set", "lo", "up")
        for bridge in ("mgmt", "fab"):
            ip("-n", "ck-ctl", "link", "add", bridge, "type", "bridge")
            ip("-n", "ck-ctl", "link", "set", bridge, "up")
        ip("-n", "ck-ctl", "address", "add", "10.77.0.254/24", "dev", "mgmt")
        for at, name in enumerate(names, start=1):
            for port, bridge, address, mtu in (
                ("eth0", "mgmt", f"10.77.0.{at}/24", "1500"),
                ("eth1", "fab", f"198.18.77.{at}/24", "4200"),
            ):
                peer = ["peer", "name", port, "mtu", mtu, "netns", name]
                cable = f"{bridge}{at}"
                ip(
                    "-n",
                    "ck-ctl",
                    "link",
                    "add",
                    cable,
                    "mtu",
                    mtu,
                    "type",
                    "veth",
                    *peer,
                )
                ip("-n", "ck-ctl", "link", "set", cable, "master", bridge, "up")
                ip("-n", name, "address", "add", address, "dev", port)
                ip("-n", name, "link", "set", port, "up")
        stack.enter_context(lab._stack)
        yield lab


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
