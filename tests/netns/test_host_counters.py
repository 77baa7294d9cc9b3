"""Agents read what their hosts drop."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from dataclasses import replace

import pytest

from chakram.fabric.labs.enter_namespace import run_in_namespace
from chakram.foundation import ethtool
from chakram_agent.host_counters import grown, interface_counters, read_host_counters
from tests.leaks import own_lab
from tests.plans import ring_plan

HOST = own_lab("counted")


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@pytest.fixture
def namespace() -> Iterator[str]:
    """Yield a namespace with an interface whose queue holds one packet."""
    _ip("netns", "add", HOST)
    try:
        _ip("-n", HOST, "link", "add", "a0", "type", "veth", "peer", "name", "b0")
        for name in ("a0", "b0"):
            _ip("-n", HOST, "link", "set", name, "up")
        _ip("-n", HOST, "addr", "add", "198.18.9.1/24", "dev", "a0")
        _ip(*f"-n {HOST} neigh add 198.18.9.2 lladdr 02:00:00:00:00:02 dev a0".split())
        shape = "qdisc add dev a0 root tbf rate 8kbit burst 1600 limit 1600"
        subprocess.run(["tc", "-n", HOST, *shape.split()], check=True)
        yield f"/run/netns/{HOST}"
    finally:
        _ip("netns", "del", HOST)


def send(packets: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for _ in range(packets):
            sock.sendto(bytes(1400), ("198.18.9.2", 9))


def test_drops_of_a_queuing_discipline_are_counted(namespace: str) -> None:
    port = ring_plan().ports[0]
    ports = [replace(port, open="udp:a0", netns=namespace)]
    before = read_host_counters(ports)
    run_in_namespace(namespace, send, 20)
    found = grown(before, read_host_counters(ports))
    # The bucket and the queue have room for one packet each.
    assert found["a0 qdisc_dropped"] == 18
    assert found["a0 rx_dropped"] == 0
    assert "b0 qdisc_dropped" not in found


def test_drops_are_not_counted_again_at_the_root(namespace: str) -> None:
    """A classful discipline counts the drops of its children."""
    shape = "qdisc replace dev a0 root handle 1: htb default 1"
    kinds = ("class add dev a0 parent 1: classid 1:1 htb rate 8kbit burst 1600",)
    leaf = "qdisc add dev a0 parent 1:1 bfifo limit 1600"
    subprocess.run(["tc", "-n", HOST, "qdisc", "del", "dev", "a0", "root"], check=True)
    for each in (shape, *kinds, leaf):
        subprocess.run(["tc", "-n", HOST, *each.split()], check=True)
    run_in_namespace(namespace, send, 20)
    found = run_in_namespace(namespace, interface_counters, "a0")
    assert 15 <= found["qdisc_dropped"] <= 19


def test_the_driver_is_asked_for_its_statistics(namespace: str) -> None:
    names = run_in_namespace(namespace, ethtool.statistics, "a0")
    wanted = subprocess.run(
        ["ip", "netns", "exec", HOST, "ethtool", "-S", "a0"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for line in wanted.splitlines()[1:]:
        name, _, value = line.strip().rpartition(": ")
        assert names[name] == int(value)
    counted = run_in_namespace(namespace, interface_counters, "a0")
    told = {name.removeprefix("ethtool:") for name in counted if ":" in name}
    assert "peer_ifindex" in names
    assert told == {name for name in names if "drops" in name}


def test_what_is_not_there_is_left_out(namespace: str) -> None:
    port = ring_plan().ports[0]
    ports = [
        replace(port, open="udp:none", netns=namespace),
        replace(port, open="udp:a0", netns="/run/netns/no-such"),
    ]
    found = read_host_counters(ports)
    assert not [name for name in found if " " in name]
    assert found["softnet_dropped"] >= 0
    assert ethtool.statistics("none") == {}


def test_growth_leaves_out_counters_that_were_reset() -> None:
    before = {"a": 5, "b": 9, "cpu_fastest_khz": 7}
    after = {"a": 8, "b": 3, "c": 4, "cpu_fastest_khz": 6}
    assert grown(before, after) == {"a": 3, "cpu_fastest_khz": 6}
