"""The loop of a data plane with real engines, on ports of every type."""

from __future__ import annotations

import os
import select
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from ipaddress import ip_address, ip_network
from typing import NamedTuple

import pytest

from chakram.plan.packet_faults import FaultAction, PacketFault
from chakram.plan.plan import AgentPlan, RunSettings
from chakram.plan.transport import TransportPlan
from chakram.roce.icrc import icrc, masked_headers
from chakram_agent.dataplane import loop, open_port
from chakram_agent.dataplane import udp_port as udp
from chakram_agent.dataplane.loop import DataPlane
from chakram_agent.dataplane.memory_port import MemoryNetwork, MemoryPort
from chakram_agent.dataplane.port_options import PortOptions
from chakram_agent.send_limits import Policy
from chakram_agent.shard import build_plane
from tests.made_plans import collective, share_rows, world_plan
from tests.plans import moved
from tests.udp_ports import free_udp_ports
from tests.waiting import PATIENCE_S, Stopwatch

LOOPBACK = Policy(allow=tuple(map(ip_network, ("127.0.0.0/8", "::1"))))
NRANKS = 4
SIZE = 200_000
UDP_PORT = free_udp_ports(NRANKS)


class Kind(NamedTuple):
    """A port specification, and the family of the addresses."""

    open_spec: str
    is_ipv6: bool


@pytest.fixture(params=["memory", "udp", "udp plain", "udp ipv6", "udp ipv6 plain"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Kind:
    """Return a kind of port; plain ports, and a poll in milliseconds, too."""
    name, *form = request.param.split()
    if "plain" in form:
        monkeypatch.setattr(udp, "_batch", None)
        monkeypatch.setattr(loop, "exact_poll", None)
    return Kind(open_spec=f"{name}:", is_ipv6="ipv6" in form)


def plan_for(kind: Kind, *, drop_ratio: float, rate_bps: int | None) -> AgentPlan:
    plan, _ = world_plan(
        [
            collective("all_reduce", SIZE, algorithm="ring"),
            collective("all_to_all", SIZE, number=1, after=[0]),
        ],
        nranks=NRANKS,
        rate_bps=rate_bps,
        transport=TransportPlan(
            max_burst_packets=4, retransmit_timeout_ns=2_000_000, retry_limit=100
        ),
        settings=RunSettings(warmup=0, measured=3, drop_ratio=drop_ratio),
    )
    (agent,) = plan.agents
    places = [
        ("::1", UDP_PORT + n) if kind.is_ipv6 else (f"127.18.3.{n + 1}", UDP_PORT)
        for n in range(NRANKS)
    ]
    return moved(agent, places, open_spec=kind.open_spec)


@pytest.fixture
def planes() -> Iterator[list[DataPlane]]:
    opened: list[DataPlane] = []
    yield opened
    for plane in opened:
        plane.close()


def finish(plane: DataPlane) -> None:
    plane.arm(time.monotonic_ns())
    watch = Stopwatch()
    while not plane.finished():
        plane.round()
        plane.wait(10_000_000)
        assert plane.failure() is None
        assert watch.look() < PATIENCE_S, [
            line.endpoint.waiting_for() for line in plane.lines
        ]


@pytest.mark.parametrize("drop_ratio", [0.0, 0.01])
@pytest.mark.parametrize("rate_bps", [None, 10**9])
def test_every_byte_arrives_once(
    kind: Kind, drop_ratio: float, rate_bps: int | None, planes: list[DataPlane]
) -> None:
    plan = plan_for(kind, drop_ratio=drop_ratio, rate_bps=rate_bps)
    plane = build_plane(plan, LOOPBACK)
    planes.append(plane)
    before_ns = time.monotonic_ns()
    finish(plane)
    assert 0 < plane.busy_ns < time.monotonic_ns() - before_ns
    shares = [row for line in plane.lines for row in share_rows(line.endpoint.records)]
    assert len(shares) == 3 * 2 * NRANKS
    expected = {0: 2 * (NRANKS - 1) * SIZE // NRANKS, 1: (NRANKS - 1) * SIZE // NRANKS}
    for row in shares:
        assert row.sent_bytes == row.received_bytes == expected[row.operation]
    statistics = [line.endpoint.engine.statistics() for line in plane.lines]
    assert sum(each.malformed + each.icrc_errors for each in statistics) == 0
    assert (sum(each.faults_dropped for each in statistics) > 0) is (drop_ratio > 0)
    received = sum(each.packets_received for each in statistics)
    assert received > 0
    # The lines count what the engines do, with the headers that a socket hides.
    least = received * (14 + (40 if kind.is_ipv6 else 20) + 8 + 12 + 4)
    assert sum(line.received_bytes for line in plane.lines) > least


def test_receivers_count_the_marks_of_senders(
    kind: Kind, planes: list[DataPlane]
) -> None:
    plan = plan_for(kind, drop_ratio=0.0, rate_bps=None)
    fault = PacketFault(action=FaultAction.MARK, nth=3, every=7, at_send=True)
    settings = replace(plan.settings, faults=(fault,))
    plane = build_plane(replace(plan, settings=settings), LOOPBACK)
    planes.append(plane)
    finish(plane)

    engines = [line.endpoint.engine for line in plane.lines]

    def marked() -> int:
        return sum(engine.statistics().faults_marked for engine in engines)

    def seen() -> int:
        return sum(
            pair.statistics().ce for engine in engines for pair in engine.queue_pairs()
        )

    # What is sent again on a busy machine may be on its way when all is done.
    watch = Stopwatch()
    while seen() != marked() and watch.look() < PATIENCE_S:
        plane.round()
        plane.wait(1_000_000)
    assert marked() > NRANKS
    assert seen() == marked()


class LateFinder(MemoryPort):
    """A port that loses segmentation while sending, and records sent packets."""

    def __init__(self, network: MemoryNetwork, options: PortOptions) -> None:
        super().__init__(network, options)
        self.local = options.address
        self.peers = options.destinations
        self.left: list[tuple[bytes, str, int]] = []
        self.refused = 0

    def send_burst(
        self,
        view: memoryview,
        segment_size: int,
        destination: int,
        source_port: int,
        kind: int,
        marked: bool = False,
    ) -> bool:
        if len(view) > segment_size and self.segments:
            self.refused += 1
            self.segments = False
            return False
        for start in range(0, len(view), segment_size):
            packet = bytes(view[start : start + segment_size])
            self.left.append((packet, self.peers[destination][0], source_port))
        return super().send_burst(
            view, segment_size, destination, source_port, kind, marked
        )


@pytest.mark.parametrize("kind", ["memory"], indirect=True)
def test_packets_are_sealed_again_after_a_late_change_of_the_port(
    kind: Kind, planes: list[DataPlane], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_port, "MemoryPort", LateFinder)
    plane = build_plane(plan_for(kind, drop_ratio=0.0, rate_bps=None), LOOPBACK)
    planes.append(plane)
    finish(plane)

    for line in plane.lines:
        port = line.port
        assert isinstance(port, LateFinder)
        assert (port.refused, port.send_retries) == (1, 0)
        assert len(port.left) > SIZE // 4096
        for packet, peer, source_port in port.left:
            headers = masked_headers(
                source=ip_address(port.local).packed,
                destination=ip_address(peer).packed,
                source_port=source_port,
                udp_payload_bytes=len(packet),
                udp_port=UDP_PORT,
            )
            assert packet[-4:] == icrc(headers, packet[:-4])


@pytest.mark.parametrize("kind", ["udp"], indirect=True)
def test_loop_sleeps_while_nothing_is_due(kind: Kind, planes: list[DataPlane]) -> None:
    plan = plan_for(kind, drop_ratio=0.0, rate_bps=10**9)
    plane = build_plane(plan, LOOPBACK)
    planes.append(plane)
    plane.arm(time.monotonic_ns() + 10**12)
    before_s, rounds = time.thread_time(), 0
    end_ns = time.monotonic_ns() + 100_000_000
    while time.monotonic_ns() < end_ns:
        plane.round()
        plane.wait(20_000_000)
        rounds += 1
    assert rounds < 20
    assert plane.busy_ns == 0
    assert time.thread_time() - before_s < 0.05


def wait_for_less(plane: DataPlane) -> None:
    """Wait; fail if nothing ends that before its time."""
    start_ns = time.monotonic_ns()
    plane.wait(120 * 10**9)
    assert time.monotonic_ns() - start_ns < 60 * 10**9


@pytest.mark.parametrize("kind", ["udp"], indirect=True)
def test_watched_descriptor_ends_the_wait(kind: Kind, planes: list[DataPlane]) -> None:
    plan = plan_for(kind, drop_ratio=0.0, rate_bps=10**9)
    plane = build_plane(plan, LOOPBACK)
    planes.append(plane)
    plane.arm(time.monotonic_ns() + 10**12)
    near, far = socket.socketpair()
    with near, far:
        plane.watch(near.fileno())
        far.send(b"x")
        wait_for_less(plane)
        # It is not for the loop to read; the next round leaves it alone.
        plane.round()
        assert near.recv(1) == b"x"


def test_work_ends_at_its_time() -> None:
    plane = DataPlane([])
    plane.work(time.monotonic_ns(), 10**9)
    assert plane.rounds == 0
    until_ns = time.monotonic_ns() + 20_000_000
    plane.work(until_ns, 1_000_000)
    assert plane.rounds > 1
    assert time.monotonic_ns() >= until_ns


def test_work_ends_by_the_clock_of_the_agent() -> None:
    program = (
        "import time; from chakram_agent.dataplane.loop import DataPlane; "
        "plane = DataPlane([]); plane.work(time.monotonic_ns() + 10**9, 10**6); "
        "print(plane.rounds)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=dict(os.environ, CHAKRAM_TEST_CLOCK="100,0"),
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout == "0\n"


@pytest.mark.parametrize("kind", ["udp"], indirect=True)
@pytest.mark.parametrize("lines", [1, 2, 3])
def test_arriving_packet_ends_the_wait(
    kind: Kind, planes: list[DataPlane], lines: int
) -> None:
    plan = plan_for(kind, drop_ratio=0.0, rate_bps=10**9)
    whole = build_plane(plan, LOOPBACK)
    planes.append(whole)
    plane = DataPlane(whole.lines[:lines])
    plane.arm(time.monotonic_ns() + 10**12)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        stranger.bind(("127.18.3.98", 0))
        for count in (1, 2):
            stranger.sendto(b"x", (plan.ports[0].address, UDP_PORT))
            wait_for_less(plane)
            plane.round()
            assert plane.lines[0].endpoint.engine.statistics().malformed == count


@pytest.mark.parametrize("kind", ["udp"], indirect=True)
def test_foreign_packets_are_counted_and_harmless(
    kind: Kind, planes: list[DataPlane]
) -> None:
    plan = plan_for(kind, drop_ratio=0.0, rate_bps=None)
    plane = build_plane(plan, LOOPBACK)
    planes.append(plane)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        stranger.bind(("127.18.3.99", 0))
        for noise in (
            b"",
            b"x",
            bytes(16),
            bytes(4000),
            struct.pack("!IIII", 1, 2, 3, 4),
        ):
            stranger.sendto(noise, (plan.ports[0].address, UDP_PORT))
    poll = select.poll()
    poll.register(plane.lines[0].port.fileno(), select.POLLIN)
    assert poll.poll(PATIENCE_S * 1000)
    finish(plane)
    statistics = plane.lines[0].endpoint.engine.statistics()
    assert statistics.malformed >= 2
    assert statistics.partition_key_errors >= 3
