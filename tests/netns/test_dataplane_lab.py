"""Packets of agents on the wire of a lab: segmented bursts with correct ICRCs."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chakram.control.client import AgentClient
from chakram.control.events import CountersSnapshot, Finished
from chakram.fabric.labs.enter_namespace import run_in_namespace
from chakram.fabric.labs.lab import start_lab
from chakram.foundation.errors import FabricError
from chakram.plan.plan import AgentPlan
from chakram.plan.transport import TransportPlan
from chakram.records.counter_slots import INVALID, slot
from chakram.roce.icrc import ip_icrc
from chakram.roce.opcodes import Opcode
from chakram_agent.dataplane.route_check import check_route, outgoing_interface
from tests.agents import serving, start, until_the_end
from tests.leaks import own_lab
from tests.netns.labs import star
from tests.plans import moved, ring_plan
from tests.support import missing_root, require

pytestmark = pytest.mark.asyncio

ETH_P_IP = 0x0800
ROCE_PORT = 4791
HOST_MTU = 4200
SOL_PACKET, PACKET_STATISTICS = 263, 6


@pytest.fixture(autouse=True)
def _root() -> None:
    require("root", missing_root())


def plan_in(lab: Any, burst: int) -> AgentPlan:
    hosts = lab.state.hosts
    plan = ring_plan(
        nranks=2,
        iterations=2,
        input_bytes=400_000,
        open_spec="udp:eth0",
        udp_port=ROCE_PORT,
        netns=tuple(host.netns for host in hosts),
        transport=TransportPlan(max_burst_packets=burst),
    )
    return moved(plan, [(host.address, ROCE_PORT) for host in hosts])


def capture_at(netns: str) -> socket.socket:
    """Return a socket that gets every IPv4 frame at a host."""
    opened = run_in_namespace(
        netns, socket.socket, socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_IP)
    )
    opened.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE
    opened.bind(("eth0", ETH_P_IP))
    opened.setblocking(False)
    return opened


def captured(capture: socket.socket, sender: str) -> list[bytes]:
    """Return the IP packets of a sender that came; none may have been missed."""
    frames = []
    while True:
        try:
            frames.append(capture.recv(2**17)[14:])
        except BlockingIOError:
            break
    _, missed = struct.unpack(
        "II", capture.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8)
    )
    assert missed == 0
    source = socket.inet_aton(sender)
    return [frame for frame in frames if frame[12:16] == source]


def packets_of(frame: bytes) -> Iterator[bytes]:
    """Yield the IP packets that a device with segmentation would send for *frame*."""
    header, payload = frame[:28], frame[28:]
    # BTH, payload and ICRC; a FIRST of an RDMA WRITE has 16 bytes more.
    size = 12 + 4096 + 4 + (16 if payload[0] == Opcode.WRITE_FIRST else 0)
    (first,) = struct.unpack_from(">H", header, 4)
    for number, offset in enumerate(range(0, len(payload), size)):
        segment = payload[offset : offset + size]
        head = bytearray(header)
        struct.pack_into(">H", head, 2, 28 + len(segment))
        struct.pack_into(">H", head, 4, first + number)
        struct.pack_into(">H", head, 24, 8 + len(segment))
        yield bytes(head) + segment


@pytest.mark.parametrize("burst", [1, 8])
async def test_every_packet_carries_a_right_icrc(tmp_path: Path, burst: int) -> None:
    async with await start_lab(star(2), lab_name=own_lab("dp"), seed=1) as lab:
        sender, receiver = lab.state.hosts
        with capture_at(receiver.netns) as capture:
            async with (
                serving(f"unix:{tmp_path}/a") as target,
                await AgentClient.connect(target, name="a") as client,
            ):
                await start(client, plan_in(lab, burst))
                events = await until_the_end(client)
                assert isinstance(events[-1], Finished)
            frames = captured(capture, sender.address)
    (*_, counters) = (event for event in events if isinstance(event, CountersSnapshot))
    assert all(counters.values[slot(f"invalid_{reason}")] == 0 for reason in INVALID)
    assert counters.values[slot("retransmitted_packets_nak")] == 0
    assert frames
    # A burst crosses the veth whole: that is what makes it cheap.
    whole = [frame for frame in frames if len(frame) > HOST_MTU]
    assert bool(whole) == (burst > 1)
    for frame in frames:
        for packet in packets_of(frame):
            assert packet[-4:] == ip_icrc(packet)


async def test_traffic_through_lo_is_refused(tmp_path: Path) -> None:
    async with await start_lab(star(2), lab_name=own_lab("dp"), seed=1) as lab:
        first, second = lab.state.hosts
        plan = plan_in(lab, 4)
        rank = plan.ranks[0]
        loop = replace(rank.queue_pairs[0], remote_address=first.address)
        looped = replace(
            plan, ranks=(replace(rank, queue_pairs=(loop,)), *plan.ranks[1:])
        )
        async with (
            serving(f"unix:{tmp_path}/a") as target,
            await AgentClient.connect(target, name="a") as client,
        ):
            with pytest.raises(FabricError, match="would go through lo"):
                await client.prepare(looped)
        run_in_namespace(first.netns, outgoing_interface, second.address)
        with pytest.raises(FabricError, match="there is no route to it"):
            run_in_namespace(first.netns, outgoing_interface, "192.0.2.1")


async def test_an_address_of_the_same_host_leaves_by_lo() -> None:
    async with await start_lab(star(2), lab_name=own_lab("dp"), seed=1) as lab:
        first, second = lab.state.hosts

        def check(address: str) -> None:
            check_route(address, source=first.address)

        run_in_namespace(first.netns, check, second.address)
        with pytest.raises(FabricError, match="isolate: namespace"):
            run_in_namespace(first.netns, check, first.address)


async def test_a_namespace_that_has_gone_is_named(tmp_path: Path) -> None:
    plan = ring_plan()
    ports = tuple(replace(port, netns="/run/netns/nonesuch") for port in plan.ports)
    async with (
        serving(f"unix:{tmp_path}/a") as target,
        await AgentClient.connect(target, name="a") as client,
    ):
        with pytest.raises(FabricError, match="nonesuch: it does not exist"):
            await client.prepare(replace(plan, ports=ports))
