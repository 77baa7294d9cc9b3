"""Hosts outside of Chakram's control: namespaces on a bridge, with agents.

::

    c ----+                      c: where the controller runs
    h1 ---+--- bridge in sw      h1 ... h4: where agents run
    ...   |
    h4 ---+
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chakram.control.certificates import make_certificates
from chakram.fabric.labs.enter_namespace import run_in_namespace
from tests.e2e.processes import TRAFFIC_ENDS_S, descendants
from tests.e2e.runs import Ended
from tests.leaks import own_lab
from tests.support import missing_program, missing_root, require
from tests.waiting import PATIENCE_S, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

LAB = own_lab("host")
"""Prefix of their namespaces, which outlive labs."""

CONTROL_PORT = 7411
NAMES = ("h1", "h2", "h3", "h4")
ADDRESSES = {"c": "198.18.0.100"} | {
    name: f"198.18.0.{number}" for number, name in enumerate(NAMES, start=1)
}
SECOND_ADDRESS, THIRD_ADDRESS = "198.18.1.1", "198.18.0.101"
"""Of h1 as well, as a second port in the same namespace has it."""
IPV6_ADDRESSES = {
    name: f"2001:2::{number}" for number, name in enumerate(NAMES, start=1)
}
_LOOKING_S = 1.0
"""What it may take, on a busy machine, to see that traffic has ended."""

ALLOWED = ("198.18.0.0/24", "2001:2::/64")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hosts:
    """The hosts, with an agent on each but that of the controller.

    Attributes:
        certificates: Folder of those that the agents trust.
        strangers: Folder of those of another authority.
        program: The command ``chakram``.
    """

    certificates: Path
    strangers: Path
    program: Path

    def enter(self, host: str) -> list[str]:
        """Return the prefix of a command that runs it on *host*."""
        return ["ip", "netns", "exec", f"{LAB}-{host}"]

    def namespace(self, host: str) -> str:
        """Return the path of the network namespace that is *host*."""
        return f"/run/netns/{LAB}-{host}"

    def chakram(
        self, *arguments: object, experiment: Path, limit_s: float = PATIENCE_S
    ) -> Ended:
        """Run the command on the host of the controller, for an experiment."""
        done = subprocess.run(
            [*self.enter("c"), str(self.program), *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
        )
        assert "Traceback" not in done.stderr
        return Ended(
            code=done.returncode,
            output=done.stdout,
            errors=done.stderr,
            runs=experiment.parent / "runs",
        )

    def run(self, experiment: Path) -> Ended:
        """Run an experiment from the host of the controller."""
        return self.chakram("run", experiment, experiment=experiment)

    def are_silent(self) -> bool:
        """Return whether they send only keep-alive packets."""
        before = [self.sent_bytes(name) for name in NAMES]
        time.sleep(_LOOKING_S / 10)
        after = [self.sent_bytes(name) for name in NAMES]
        return sum(after) - sum(before) < 10_000

    def wait_for_silence(self) -> None:
        """Wait for as long as the end of traffic may take, and to see it."""
        wait_until(
            self.are_silent,
            "the end of traffic",
            timeout_s=TRAFFIC_ENDS_S + _LOOKING_S,
            processes=[each.pid for each in descendants(os.getpid())],
        )

    def sent_bytes(self, host: str) -> int:
        """Return how much has left *host*."""
        return run_in_namespace(self.namespace(host), _sent_bytes)

    def fabric(
        self, *, authority: Path | None = None, **sections: object
    ) -> dict[str, Any]:
        """Return the fabric section that names them; *sections* replace its parts."""
        folder = authority or self.certificates
        return {
            "kind": "external",
            "hosts": [host_section(name) for name in NAMES],
            "tls": {
                "ca": str(self.certificates / "ca.pem"),
                "cert": str(folder / "controller.pem"),
                "key": str(folder / "controller.key"),
            },
            **sections,
        }


def host_section(name: str, **sections: object) -> dict[str, Any]:
    """Return how an experiment names a host; *sections* replace its parts."""
    return {
        "name": name,
        "agent": f"{ADDRESSES[name]}:{CONTROL_PORT}",
        "ports": [port_section(ADDRESSES[name])],
        **sections,
    }


def port_section(address: str) -> dict[str, str]:
    """Return how an experiment names a port."""
    bits = 64 if ":" in address else 16
    return {"open": "udp:eth0", "address": f"{address}/{bits}"}


def _sent_bytes() -> int:
    for line in Path("/proc/thread-self/net/dev").read_text("ascii").splitlines():
        name, _, numbers = line.partition(":")
        if name.strip() == "eth0":
            return int(numbers.split()[8])
    raise LookupError("eth0")


def _ip(*arguments: str, script: Sequence[str] = ()) -> None:
    subprocess.run(
        ["ip", *arguments, *(["-batch", "-"] if script else [])],
        input="\n".join(script),
        text=True,
        check=True,
        capture_output=True,
    )


@contextmanager
def hosts(folder: Path, program: Path) -> Iterator[Hosts]:
    """Make the hosts and start their agents; all is gone after the block.

    The running test is skipped where that cannot be done.
    """
    require("root", missing_root())
    require("netns", missing_program("ip"))
    found = Hosts(
        certificates=folder / "certs", strangers=folder / "strangers", program=program
    )
    agents = {name: [ADDRESSES[name]] for name in NAMES}
    for certificates in (found.certificates, found.strangers):
        make_certificates(certificates, agents)
    with ExitStack() as stack:
        _build(stack)
        for name in NAMES:
            stack.enter_context(_agent(found, name))
        yield found


def _build(stack: ExitStack) -> None:
    for name in ("sw", *ADDRESSES):
        _ip("netns", "add", f"{LAB}-{name}")
        stack.callback(_ip, "netns", "del", f"{LAB}-{name}")
    _ip("-n", f"{LAB}-sw", script=["link add br0 type bridge", "link set br0 up"])
    for name, address in ADDRESSES.items():
        more = [SECOND_ADDRESS, THIRD_ADDRESS] if name == "h1" else []
        _ip(
            *("-n", f"{LAB}-{name}"),
            script=[
                f"link add eth0 type veth peer name {name} netns {LAB}-sw",
                *(f"addr add {each}/16 dev eth0" for each in (address, *more)),
                *(
                    f"addr add {each}/64 dev eth0 nodad"
                    for each in (IPV6_ADDRESSES.get(name),)
                    if each is not None
                ),
                "link set eth0 up",
                "link set lo up",
            ],
        )
        _ip("-n", f"{LAB}-sw", script=[f"link set {name} master br0 up"])


@contextmanager
def _agent(found: Hosts, name: str) -> Iterator[None]:
    """Run the agent of one host, as its administrator would start it."""
    certificates = found.certificates
    process = subprocess.Popen(
        [
            *found.enter(name),
            *(sys.executable, "-m", "chakram_agent", "serve"),
            *("--listen", f"{ADDRESSES[name]}:{CONTROL_PORT}"),
            *("--tls-ca", certificates / "ca.pem"),
            *("--tls-cert", certificates / f"{name}.pem"),
            *("--tls-key", certificates / f"{name}.key"),
            *(word for prefix in ALLOWED for word in ("--allow", prefix)),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == (
                f"ready {ADDRESSES[name]}:{CONTROL_PORT}\n"
            )
            yield
        finally:
            process.terminate()
            process.wait(PATIENCE_S)
