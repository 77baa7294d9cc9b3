"""The class of each kind of packet, from the settings of a plan to the IP header."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from ipaddress import ip_network

import pytest

from chakram.plan.transport import TransportPlan
from chakram.roce.constants import BurstKind
from chakram_agent.dataplane import udp
from chakram_agent.dataplane.loop import DataPlane
from chakram_agent.policy import Policy
from chakram_agent.shard_ports import build_plane
from tests.plans import moved, ring_plan
from tests.udp_ports import free_udp_ports
from tests.waiting import PATIENCE_S

LOOPBACK = Policy(allow=tuple(map(ip_network, ("127.0.0.0/8", "::1"))))
UDP_PORT = free_udp_ports(2)
PLACES = {
    "ipv4": [("127.18.21.1", UDP_PORT), ("127.18.21.2", UDP_PORT)],
    "ipv6": [("::1", UDP_PORT), ("::1", UDP_PORT + 1)],
}
ECT1 = 1
TRANSPORT = TransportPlan(dscp_data=10, dscp_ack=20, dscp_cnp=30, ecn=ECT1)


@pytest.fixture(params=["fast", "plain"], autouse=True)
def _form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "plain":
        monkeypatch.setattr(udp, "_batch", None)


@pytest.fixture(params=["ipv4", "ipv6"])
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def plane(family: str) -> Iterator[DataPlane]:
    plan = ring_plan(nranks=2, open_spec="udp:", transport=TRANSPORT)
    opened = build_plane(moved(plan, PLACES[family]), LOOPBACK)
    yield opened
    opened.close()


@pytest.mark.parametrize(
    ("kind", "tos"),
    [
        (BurstKind.DATA, 10 << 2 | ECT1),
        (BurstKind.ACK, 20 << 2),
        (BurstKind.NAK, 20 << 2),
        # Adapters send notifications as capable of ECN as their data.
        (BurstKind.CNP, 30 << 2 | ECT1),
    ],
)
def test_each_kind_leaves_in_the_class_of_the_plan(
    plane: DataPlane, family: str, kind: BurstKind, tos: int
) -> None:
    sender, receiver = plane.lines
    ((_, udp_port),) = set(sender.endpoint.destinations)
    place = PLACES[family][1]
    assert udp_port == place[1]
    receiver.port.close()
    version = socket.AF_INET6 if family == "ipv6" else socket.AF_INET
    with socket.socket(version, socket.SOCK_DGRAM) as listener:
        if family == "ipv6":
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVTCLASS, 1)
        else:
            listener.setsockopt(socket.IPPROTO_IP, 13, 1)  # IP_RECVTOS
        listener.bind(place)
        listener.settimeout(PATIENCE_S)
        (pair, *_) = sender.endpoint.engine.queue_pairs()
        assert sender.port.send_burst(memoryview(b"x"), 1, 0, pair.source_port, kind)
        _, ancillary, _, _ = listener.recvmsg(10, socket.CMSG_SPACE(4))
    ((_, _, data),) = ancillary
    assert data[0] == tos
