"""Traffic classes of all packet types, from the plan to the IP header."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from ipaddress import ip_network

import pytest

from chakram.plan.plan import AgentPlan
from chakram.plan.transport import TransportPlan
from chakram.roce.constants import BurstKind
from chakram_agent.dataplane import udp_port as udp
from chakram_agent.dataplane.loop import DataPlane
from chakram_agent.send_limits import Policy
from chakram_agent.shard import build_plane
from tests.plans import moved, ring_plan
from tests.udp_ports import free_udp_ports
from tests.waiting import PATIENCE_S

LOOPBACK = Policy(allow=tuple(map(ip_network, ("127.0.0.0/8", "::1"))))
UDP_PORT = free_udp_ports(2)
PLACES = {
    # Workers beside one another send from the same source ports.
    "ipv4": [(f"127.18.{os.getpid() % 250}.{end}", UDP_PORT) for end in (1, 2)],
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
        # Answers and notifications are as capable of ECN as data.
        (BurstKind.ACK, 20 << 2 | ECT1),
        (BurstKind.NAK, 20 << 2 | ECT1),
        (BurstKind.CNP, 30 << 2 | ECT1),
    ],
)
def test_each_packet_type_is_sent_in_the_class_of_the_plan(
    plane: DataPlane, family: str, kind: BurstKind, tos: int
) -> None:
    sender, receiver = plane.lines
    ((_, udp_port),) = set(sender.endpoint.destinations)
    assert udp_port == PLACES[family][1][1]
    receiver.port.close()
    with listening(family) as listener:
        (pair, *_) = sender.endpoint.engine.queue_pairs()
        assert sender.port.send_burst(memoryview(b"x"), 1, 0, pair.source_port, kind)
        assert heard(listener) == tos


def listening(family: str, place: int = 1) -> socket.socket:
    """Return a socket that replaces a port and shows the class of arrivals."""
    version = socket.AF_INET6 if family == "ipv6" else socket.AF_INET
    listener = socket.socket(version, socket.SOCK_DGRAM)
    if family == "ipv6":
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVTCLASS, 1)
    else:
        listener.setsockopt(socket.IPPROTO_IP, 13, 1)  # IP_RECVTOS
    listener.bind(PLACES[family][place])
    listener.settimeout(PATIENCE_S)
    return listener


def heard(listener: socket.socket) -> int:
    """Return the type of service of the next packet."""
    _, ancillary, _, _ = listener.recvmsg(10, socket.CMSG_SPACE(4))
    ((_, _, data),) = ancillary
    return data[0]


def of_class_5(plan: AgentPlan) -> AgentPlan:
    """Return a plan whose queue pairs are of class 5."""
    return replace(
        plan,
        ranks=tuple(
            replace(
                rank,
                queue_pairs=tuple(replace(pair, dscp=40) for pair in rank.queue_pairs),
            )
            for rank in plan.ranks
        ),
    )


@pytest.mark.parametrize(
    ("ack", "answer_tos"), [(10, 40 << 2 | ECT1), (20, 20 << 2 | ECT1)]
)
def test_queue_pair_sends_and_is_answered_in_its_class(
    family: str, ack: int, answer_tos: int
) -> None:
    transport = replace(TRANSPORT, dscp_ack=ack)
    plan = ring_plan(nranks=2, open_spec="udp:", transport=transport)
    plane = build_plane(moved(of_class_5(plan), PLACES[family]), LOOPBACK)
    try:
        sender, receiver = plane.lines
        sender.endpoint.arm(0)
        sender.endpoint.advance(0)
        receiver.port.close()
        with listening(family) as data:
            assert sender.send(1)
            assert heard(data) == 40 << 2 | ECT1
    finally:
        plane.close()

    plane = build_plane(moved(of_class_5(plan), PLACES[family]), LOOPBACK)
    try:
        sender, receiver = plane.lines
        sender.endpoint.arm(0)
        receiver.endpoint.arm(1 << 60)
        began_ns = now_ns = time.monotonic_ns()
        while receiver.endpoint.engine.peek_burst(now_ns) is None:
            now_ns += 1_000_000
            assert now_ns < began_ns + 10**10
            sender.endpoint.advance(now_ns)
            sender.send(now_ns)
            receiver.receive()
        sender.port.close()
        with listening(family, 0) as answers:
            assert receiver.send(now_ns)
            assert heard(answers) == answer_tos
    finally:
        plane.close()
