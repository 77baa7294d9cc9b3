"""A guest under QEMU with one Soft-RoCE device, on a tap in its own namespace.

QEMU runs in software emulation: where the tests run, there is rarely a usable KVM.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from pyroute2 import IPRoute

from chakram.fabric.labs.enter_namespace import CLONE_NEWNET, run_in_namespace, unshare
from tests.interop.softroce.initramfs import make_initramfs
from tests.interop.softroce.kernel import Kernel

LIMIT_S = 900
"""For the test that comes first: it downloads a kernel and starts the guest."""


def addresses_of(number: int) -> tuple[dict[int, str], dict[int, str]]:
    """Return the addresses of both ends of the tap of a guest, by IP version."""

    def of_end(end: int) -> dict[int, str]:
        return {
            4: f"198.18.7.{4 * number + end}",
            6: f"2001:2:0:7{number or ''}::{end}",
        }

    return of_end(1), of_end(2)


HOST, GUEST = addresses_of(0)
MTU = 4200
"""Of the link: enough for a path MTU of 4096."""

_QEMU = "qemu-system-x86_64"
_PYTHON = "/usr/bin/python3"
_PORT = 7000
_BOOT_LIMIT_S = 180
_LIFE_LIMIT_S = 7200
_ANSWER_LIMIT_S = 100
_TAIL_LINES = 25

# Protection against attacks takes a tenth of the time of an emulated guest.
_KERNEL_OPTIONS = (
    *("console=ttyS0", "quiet", "panic=-1", "no_timer_check"),
    *("mitigations=off", "nopti", "nokaslr", "audit=0", "apparmor=0"),
    *("init_on_alloc=0", "nowatchdog"),
)

_MAIN = """
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
ip link set lo up
sh /guest/serve.sh > /guest/server.log 2>&1
echo $? > /guest/rc
echo o > /proc/sysrq-trigger
sleep 60
"""
_SERVE = f"""set -ex
ip link set eth0 mtu {MTU} up
ip address add GUEST_4/30 dev eth0
ip address add GUEST_6/64 dev eth0 nodad
ip route add default via HOST_4
ip -6 route add default via HOST_6
rdma link add rxe0 type rxe netdev eth0
export PYTHONPATH=/usr/lib/python3/dist-packages
exec {_PYTHON} -S /guest/guest.py {_PORT}
"""


class GuestDied(Exception):
    """The guest does not answer; the text has the end of its output."""


def why_no_machine() -> str | None:
    """Return why no guest can be started here, kernel aside; None if one can."""
    if os.geteuid() != 0:
        return "this needs root"
    for program in (_QEMU, "busybox", "modprobe", "rdma", "timeout"):
        if shutil.which(program) is None:
            return f"the program {program} is not installed"
    if b"/ld-linux" in _busybox().read_bytes():
        return "busybox is not a static one (Debian: busybox-static)"
    if not Path("/dev/net/tun").exists():
        return "there is no /dev/net/tun"
    # PyPI's pyverbs needs a newer library than the distribution has. It fails only
    # when a part of it is imported.
    probed = subprocess.run(
        [_PYTHON, "-c", "import pyverbs.device"], capture_output=True, check=False
    )
    return f"{_PYTHON} has no pyverbs" if probed.returncode else None


class Machine:
    """A running guest.

    Attributes:
        namespace: Descriptor of the namespace of the tap.
        control: Connection to the server in the guest.
        host: Addresses of the tap, by IP version.
        guest: Addresses of the guest, by IP version.
    """

    def __init__(
        self, folder: Path, kernel: Kernel, *, beside: Machine | None = None
    ) -> None:
        """Start a guest that shares *folder*; `boot` waits for it.

        The folder is where its console and its server's output stay.  *beside* is the
        first guest, in whose namespace the tap of a second one is, with routes.
        """
        self._kernel = kernel
        self._beside = beside
        self._number = 0 if beside is None else 1
        self.host, self.guest = addresses_of(self._number)
        self._guests = 0
        self._start_in(folder)

    def restart(self) -> None:
        """End the guest and boot another one, which begins with nothing."""
        self.close()
        self._guests += 1
        folder = self._folder.with_name(f"{self._folder.name}-{self._guests}")
        folder.mkdir()
        self._start_in(folder)
        self.boot()

    def has_panicked(self) -> bool:
        """Return whether the guest's kernel has panicked, from its console."""
        console = self._folder / "console.log"
        return b"Kernel panic" in console.read_bytes()

    def _start_in(self, folder: Path) -> None:
        self._folder = folder
        self._shared = folder / "guest"
        self._answers = b""
        self.control: socket.socket | None = None
        here = Path(__file__).parent
        self._shared.mkdir()
        for name in ("guest.py", "guest_pair.py", "messages.py"):
            shutil.copy(here / name, self._shared)
        (self._shared / "main.sh").write_text(_MAIN)
        serve = _SERVE
        for version in (4, 6):
            serve = serve.replace(f"HOST_{version}", self.host[version])
            serve = serve.replace(f"GUEST_{version}", self.guest[version])
        (self._shared / "serve.sh").write_text(serve)
        initrd = folder / "initramfs"
        initrd.write_bytes(
            make_initramfs(busybox=_busybox(), modules=self._kernel.modules)
        )
        self.namespace: int = (
            _make_namespace()
            if self._beside is None
            else os.dup(self._beside.namespace)
        )
        try:
            run_in_namespace(self.namespace, self._make_tap)
            self._process = run_in_namespace(
                self.namespace, self._start, self._kernel.image, initrd
            )
        except BaseException:
            os.close(self.namespace)
            raise

    def boot(self) -> dict[str, Any]:
        """Wait until the server in the guest answers; return its description."""
        deadline_s = time.monotonic() + _BOOT_LIMIT_S
        while self.control is None:
            self._check(deadline_s, "does not come up")
            try:
                self.control = run_in_namespace(
                    self.namespace,
                    socket.create_connection,
                    (self.guest[4], _PORT),
                    1.0,
                )
            except OSError:
                time.sleep(0.1)
        self.control.setblocking(False)
        # Each side now knows the other's link address over IPv4. What has to wait for
        # that is lost but for some packets, so let them know it over IPv6, too.
        with suppress(OSError):
            run_in_namespace(
                self.namespace, socket.create_connection, (self.guest[6], _PORT), 5.0
            ).close()
        return self.ask("hello")

    def ask(self, order: str, **arguments: Any) -> dict[str, Any]:
        """Give the guest an order; return its answer.

        Raises:
            GuestDied: If none comes, or the order failed.
        """
        self.tell(order, **arguments)
        return self.wait_answer(order)

    def wait_answer(self, order: str) -> dict[str, Any]:
        """Return the answer to *order*, the last one given; see `ask`."""
        deadline_s = time.monotonic() + _ANSWER_LIMIT_S
        while (answer := self.answer()) is None:
            self._check(deadline_s, f"does not answer to {order}")
            time.sleep(0.002)
        return answer

    def execute(self, script: str) -> str:
        """Run *script* in a shell of the guest up to the first failure.

        Returns:
            What it said.

        Raises:
            GuestDied: If it fails.
        """
        said: str = self.ask("execute", script=script)["said"]
        return said

    def complaints(self) -> list[str]:
        """Return all kernel messages of the guest about Soft-RoCE so far."""
        log = self.execute("dmesg --notime --level emerg,alert,crit,err,warn")
        return [line for line in log.splitlines() if "rxe" in line]

    def tell(self, order: str, **arguments: Any) -> None:
        """Send a request to the guest; the answer follows later."""
        assert self.control is not None
        line = json.dumps({"do": order, **arguments}).encode() + b"\n"
        self.control.setblocking(True)
        try:
            self.control.sendall(line)
        except OSError as error:
            raise self._death(f"does not listen ({error})") from error
        self.control.setblocking(False)

    def control_descriptor(self) -> int:
        """Return what is readable when an answer may have come."""
        assert self.control is not None
        return self.control.fileno()

    def answer(self) -> dict[str, Any] | None:
        """Return the answer to the last order, or None if it has not come yet.

        Raises:
            GuestDied: If the guest has hung up, or the order failed.
        """
        assert self.control is not None
        try:
            received = self.control.recv(1 << 16)
        except BlockingIOError:
            # A guest that is gone hangs up no connections.
            self._check_process()
            return None
        except OSError as error:
            raise self._death(f"does not answer ({error})") from error
        if not received:
            raise self._death("has hung up")
        self._answers += received
        line, end, rest = self._answers.partition(b"\n")
        if not end:
            return None
        self._answers = rest
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise self._death(f"could not do it: {answer['error']}")
        return answer

    def close(self) -> None:
        """End the guest, and keep its output."""
        if self.control is not None:
            self.control.close()
        # QEMU's parent passes it on.
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self.namespace)

    def _start(self, image: Path, initrd: Path) -> subprocess.Popen[bytes]:
        shares = []
        for tag, path, more in (
            ("host", "/", ",readonly=on,multidevs=remap"),
            ("guest", str(self._shared), ""),
        ):
            shares += [
                "-fsdev",
                f"local,id={tag},path={path},security_model=none{more}",
            ]
            shares += ["-device", f"virtio-9p-pci,fsdev={tag},mount_tag={tag}"]
        # A panic ends the guest, and time ends QEMU, whatever becomes of this process.
        # Hardware that is emulated on busy cores stalls less if it goes first.
        command = [
            *(
                "nice",
                "--adjustment=-3",
                "timeout",
                "--kill-after=5",
                str(_LIFE_LIMIT_S),
                _QEMU,
            ),
            *("-M", "q35", "-accel", "tcg,thread=multi", "-cpu", "qemu64"),
            *("-smp", "2", "-m", "1536M", "-nodefaults", "-no-user-config"),
            *("-display", "none", "-serial", "stdio", "-no-reboot"),
            *("-kernel", str(image), "-initrd", str(initrd)),
            *("-append", " ".join(_KERNEL_OPTIONS)),
            *shares,
            *("-netdev", f"tap,id=net,ifname={self._tap},script=no,downscript=no"),
            *("-device", "virtio-net-pci,netdev=net,romfile="),
        ]
        with (self._folder / "console.log").open("wb") as console:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
            )

    @property
    def _tap(self) -> str:
        return f"tap{self._number}"

    def _make_tap(self) -> None:
        with IPRoute() as route:
            route.link("set", index=route.link_lookup(ifname="lo")[0], state="up")
            for old in route.link_lookup(ifname=self._tap):
                route.link("del", index=old)
            route.link("add", ifname=self._tap, kind="tuntap", mode="tap")
            index = route.link_lookup(ifname=self._tap)[0]
            route.link("set", index=index, mtu=MTU, state="up")
            for version, address in self.host.items():
                prefix = 30 if version == 4 else 64
                more = {"flags": 0x02} if version == 6 else {}  # no duplicate detection
                route.addr(
                    "add", index=index, address=address, prefixlen=prefix, **more
                )
        for path in ("ipv4/ip_forward", "ipv6/conf/all/forwarding"):
            Path("/proc/sys/net", path).write_text("1")

    def _check(self, deadline_s: float, problem: str) -> None:
        """Raise if QEMU has ended or time is up."""
        self._check_process()
        if time.monotonic() > deadline_s:
            raise self._death(problem)

    def _check_process(self) -> None:
        code = self._process.poll()
        if code is not None:
            raise self._death(f"has ended (QEMU's exit code: {code})")

    def _death(self, problem: str) -> GuestDied:
        parts = [f"the guest {problem}"]
        for path in (self._folder / "console.log", self._shared / "server.log"):
            text = path.read_text(errors="replace") if path.exists() else ""
            tail = "\n".join(text.splitlines()[-_TAIL_LINES:])
            parts.append(f"-- end of {path.name}:\n{tail or '(empty)'}")
        return GuestDied("\n".join(parts))


def _busybox() -> Path:
    path = shutil.which("busybox")
    assert path is not None
    return Path(path)


def _make_namespace() -> int:
    """Return a descriptor of a new network namespace, which ends with it."""
    made: list[int] = []

    def body() -> int:
        unshare(CLONE_NEWNET)
        made.append(os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC))
        return made[0]

    # The thread's own namespace is a place to start from like any other.
    return run_in_namespace("/proc/thread-self/ns/net", body)


def gid(address: str) -> str:
    """Return an address as a GID: eight groups of four digits."""
    parsed = ip_address(address)
    return ip_address(f"::ffff:{parsed}" if parsed.version == 4 else address).exploded
