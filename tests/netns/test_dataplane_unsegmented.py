"""Packets on the wire of a lab from ports without segmentation."""

from __future__ import annotations

import socket
import time
from ipaddress import ip_network

import pytest

from chakram.fabric.labs.enter_namespace import run_in_namespace
from chakram.fabric.labs.lab import start_lab
from chakram.plan.transport import TransportPlan
from chakram.roce.icrc import ip_icrc
from chakram_agent.dataplane import udp_port as udp
from chakram_agent.dataplane.port_options import PortOptions
from chakram_agent.send_limits import Policy
from chakram_agent.shard import build_plane
from tests.leaks import own_lab
from tests.netns.labs import star
from tests.plans import moved, ring_plan
from tests.support import missing_root, require
from tests.waiting import PATIENCE_S, Stopwatch

pytestmark = pytest.mark.asyncio

ETHERTYPES = {"ipv4": 0x0800, "ipv6": 0x86DD}
UDP_AT = {"ipv4": 20, "ipv6": 40}
ROCE_PORT = 4791
HOST_MTU = 4200
BURST = 8
LABS = Policy(allow=tuple(map(ip_network, ("198.18.0.0/15", "2001:2::/48"))))


class Unsegmented(udp.UdpSockets):
    """Sockets of an interface that cannot segment."""

    def __init__(self, interface: str, options: PortOptions) -> None:
        super().__init__(interface, options)
        self.segmentation = False


@pytest.fixture(autouse=True, params=["fast", "plain"])
def _form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    require("root", missing_root())
    monkeypatch.setattr(udp, "UdpSockets", Unsegmented)
    if request.param == "plain":
        monkeypatch.setattr(udp, "_batch", None)


def open_capture(ethertype: int) -> socket.socket:
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ethertype))
    opened.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE
    opened.bind(("eth0", ethertype))
    opened.setblocking(False)
    return opened


def captured(capture: socket.socket, udp_at: int) -> list[bytes]:
    """Return the RoCEv2 packets, from the IP header on, that were seen."""
    packets = []
    while True:
        try:
            packets.append(capture.recv(2**17)[14:])
        except BlockingIOError:
            break
    port = ROCE_PORT.to_bytes(2, "big")
    return [each for each in packets if each[udp_at + 2 : udp_at + 4] == port]


@pytest.mark.parametrize("icrc", ["table", "full"])
@pytest.mark.parametrize("family", ["ipv4", "ipv6"])
async def test_packets_that_leave_alone_carry_right_icrcs(
    family: str, icrc: str
) -> None:
    transport = TransportPlan(max_burst_packets=BURST, icrc=icrc)
    async with await start_lab(
        star(2), lab_name=own_lab("dpalone"), seed=1, addressing=family
    ) as lab:
        hosts = lab.state.hosts
        plan = ring_plan(
            nranks=2,
            iterations=1,
            input_bytes=400_000,
            open_spec="udp:eth0",
            udp_port=ROCE_PORT,
            netns=tuple(host.netns for host in hosts),
            transport=transport,
        )
        plane = build_plane(
            moved(plan, [(host.address, ROCE_PORT) for host in hosts]), LABS
        )
        capture = run_in_namespace(hosts[1].netns, open_capture, ETHERTYPES[family])
        try:
            plane.arm(time.monotonic_ns())
            watch = Stopwatch()
            while not plane.finished():
                plane.round()
                assert plane.failure() is None
                assert watch.look() < PATIENCE_S
            packets = captured(capture, UDP_AT[family])
            counters = [line.endpoint.engine.statistics() for line in plane.lines]
        finally:
            plane.close()
            capture.close()
    assert sum(each.malformed for each in counters) == 0
    # What is seen is single packets, of both directions, data and answers.
    assert len(packets) > 400_000 // 4096
    assert max(map(len, packets)) <= HOST_MTU
    assert {packet[UDP_AT[family] + 8] for packet in packets} > {0x07, 0x11}
    for packet in packets:
        assert packet[-4:] == ip_icrc(packet)
