"""From a list of hosts to a run: find the ports of an agent, and replay on them."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import yaml

from chakram.control.certificates import make_certificates
from tests.waiting import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PORTS = {"ckport0": "198.19.31.1/24", "ckport1": "198.19.31.2/24"}
EXPERIMENT = {
    "version": 1,
    "name": "found",
    "jobs": [
        {
            "name": "ring",
            "trace": {
                "synth": "collectives",
                "ranks": 2,
                "streams": [{"op": "all_reduce", "size": "64KiB"}],
            },
        }
    ],
    "iterations": {"warmup": 0, "measured": 2},
    "fabric": {"kind": "external", "hosts": "hosts.yaml"},
}


def chakram(*arguments: str, expected: int = 0) -> str:
    """Run a command in another process, and return its output.

    Threads of gRPC stay in the network namespace in which they were started.
    """
    command = [sys.executable, "-m", "chakram", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == expected, done.stderr
    return done.stdout if expected == 0 else done.stderr


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)


@contextmanager
def two_ports() -> Iterator[None]:
    """Create two named namespaces with an interface each, joined by a cable."""
    names = list(PORTS)
    try:
        for name in names:
            ip("netns", "add", name)
        peer = ["peer", "name", "ens2", "netns", names[1]]
        ip("-n", names[0], "link", "add", "ens1", "type", "veth", *peer)
        for (name, address), interface in zip(
            PORTS.items(), ("ens1", "ens2"), strict=True
        ):
            ip("-n", name, "address", "add", address, "dev", interface)
            ip("-n", name, "link", "set", interface, "mtu", "4200", "up")
        yield
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False)


@contextmanager
def agent(certificates: Path) -> Iterator[str]:
    """Run an agent with mutual TLS on loopback; yield its TCP port."""
    files = {"ca": "ca.pem", "cert": "h1.pem", "key": "h1.key"}
    options = [
        word
        for key, name in files.items()
        for word in (f"--tls-{key}", str(certificates / name))
    ]
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "chakram_agent", "serve"),
            *("--listen", "127.0.0.1:0", *options),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip().rpartition(":")[2]
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE_S)


def test_a_run_on_the_ports_that_were_found(tmp_path: Path) -> None:
    certificates = tmp_path / "certs"
    make_certificates(certificates, {"h1": ["127.0.0.1"]})
    (tmp_path / "hostfile").write_text("127.0.0.1 slots=2\n")
    with two_ports(), agent(certificates) as tcp_port:
        text = chakram(
            *("hosts", "find", str(tmp_path / "hostfile"), "--agent-port", tcp_port),
            *("--port-in", "198.19.31.0/24", "--certs", str(certificates)),
        )
        (tmp_path / "hosts.yaml").write_text(text)
        (host,) = yaml.safe_load(text)["hosts"]
        assert [
            (each["open"], each["address"], each["netns"].rpartition("/")[2])
            for each in host["ports"]
        ] == [
            ("udp:ens1", "198.19.31.1/24", "ckport0"),
            ("udp:ens2", "198.19.31.2/24", "ckport1"),
        ]
        assert {each["mtu"] for each in host["ports"]} == {4200}
        path = tmp_path / "experiment.yaml"
        path.write_text(yaml.safe_dump(EXPERIMENT))
        told = chakram("run", str(path), "--runs", str(tmp_path / "runs"))
        assert "# Run complete." in told


def test_agents_that_do_not_answer_are_counted() -> None:
    verb = ("hosts", "find", "127.0.0.[1-2]", "--port-in", "198.18.0.0/15")
    complaint = chakram(*verb, "--agent-port", "1", expected=4)
    assert "2 of 2 hosts: do not answer" in complaint
    assert "127.0.0.1:1" in complaint
