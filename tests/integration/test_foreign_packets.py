"""Packets of foreign senders do not affect a run."""

from __future__ import annotations

import random
import socket
import time

import pytest

from chakram.foundation.ip_addresses import address_halves
from chakram.plan.plan import AgentPlan, RunSettings
from chakram.plan.port_plan import PortPlan
from chakram.plan.transport import TransportPlan
from chakram_agent.dataplane import udp_port as udp
from chakram_agent.dataplane.loop import DataPlane
from chakram_agent.dataplane.port_options import PortOptions
from chakram_agent.dataplane.udp_port import open_udp_port
from chakram_agent.shard import build_plane
from tests.forged_packets import FORGERIES, Way, sealed
from tests.integration.test_dataplane_loop import LOOPBACK
from tests.made_plans import collective, share_rows, world_plan
from tests.plans import moved
from tests.udp_ports import free_udp_ports
from tests.waiting import PATIENCE_S, Stopwatch

NRANKS = 2
SIZE = 200_000
PACKETS = 20_000
PER_ROUND = 50
UDP_PORT = free_udp_ports(1)
STRANGER = "127.18.9.9"

pytestmark = pytest.mark.slow


def plan() -> AgentPlan:
    """Return a plan of two ranks that cannot end while packets are forged."""
    whole, _ = world_plan(
        [collective("all_reduce", SIZE, algorithm="ring")],
        nranks=NRANKS,
        # Nothing is lost: what is sent again, as this machine is busy, is a duplicate.
        transport=TransportPlan(max_burst_packets=4, retransmit_timeout_ns=20 * 10**9),
        settings=RunSettings(warmup=0, measured=PACKETS // PER_ROUND),
    )
    (agent,) = whole.agents
    return moved(
        agent,
        [(f"127.18.9.{n + 1}", UDP_PORT) for n in range(NRANKS)],
        open_spec="udp:",
    )


def forge(plan: AgentPlan, rng: random.Random) -> tuple[bytes, PortPlan]:
    """Return a packet to one of the queue pairs, or nearly, with a likely PSN."""
    rank = rng.choice(plan.ranks)
    port = next(each for each in plan.ports if each.number == rank.port)
    (pair,) = rank.queue_pairs
    name = rng.choice(tuple(FORGERIES))
    base = pair.receive_psn if name in ("data", "read") else pair.send_psn
    psn = (base + rng.randrange(20_000)) & 0xFFFFFF
    qpn = pair.qpn if rng.random() < 0.8 else pair.qpn ^ 1 << rng.randrange(20)
    way = Way(STRANGER, port.address, 0xC000, UDP_PORT)
    return sealed(FORGERIES[name](qpn, psn), way), port


def counts(plane: DataPlane) -> tuple[int, int]:
    """Return the numbers of foreign packets and of packets to unknown queue pairs."""
    each = [line.endpoint.engine.statistics() for line in plane.lines]
    return (
        sum(counters.foreign_address for counters in each),
        sum(counters.unknown_queue_pair for counters in each),
    )


def test_twenty_thousand_forged_packets_change_nothing() -> None:
    agent_plan, rng = plan(), random.Random(4)
    plane = build_plane(agent_plan, LOOPBACK)
    watch = Stopwatch()
    sent = 0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        stranger.bind((STRANGER, 0xC000))
        try:
            plane.arm(time.monotonic_ns())
            while sent < PACKETS or not plane.finished():
                for _ in range(min(PER_ROUND, PACKETS - sent)):
                    data, port = forge(agent_plan, rng)
                    stranger.sendto(data, (port.address, UDP_PORT))
                    sent += 1
                # No more are in flight than there is room for.
                while sum(counts(plane)) < sent:
                    plane.round()
                    assert watch.look() < 4 * PATIENCE_S, (counts(plane), sent)
                plane.round()
                assert plane.failure() is None
                assert watch.look() < 4 * PATIENCE_S
            foreign, nobody = counts(plane)
            pairs = [
                pair.statistics()
                for line in plane.lines
                for pair in line.endpoint.engine.queue_pairs()
            ]
            shares = [
                row for line in plane.lines for row in share_rows(line.endpoint.records)
            ]
        finally:
            plane.close()
    assert foreign + nobody == PACKETS
    assert foreign > nobody > 0
    for pair in pairs:
        assert pair.acks_invalid == pair.naks_received == pair.invalid_requests == 0
        assert pair.cnps_received == pair.duplicates == pair.out_of_sequence == 0
        assert pair.failure is None
    assert len(shares) == NRANKS * (PACKETS // PER_ROUND)
    assert {row.received_bytes for row in shares} == {SIZE}


@pytest.mark.parametrize("form", ["compiled", "plain"])
@pytest.mark.parametrize("address", ["127.18.9.8", "::1"])
def test_port_reports_the_source_of_packets(
    form: str, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if form == "plain":
        monkeypatch.setattr(udp, "_batch", None)
    options = PortOptions(
        address=address,
        udp_port=UDP_PORT,
        destinations=(),
        source_ports=(),
        data_tos=0,
        control_tos=0,
        cnp_tos=0,
    )
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    sources = ("::1",) if ":" in address else ("127.18.9.7", "127.255.0.1")
    port = open_udp_port("", options)
    try:
        for source in sources:
            with socket.socket(family, socket.SOCK_DGRAM) as sender:
                sender.bind((source, 0))
                sender.sendto(b"x", (address, UDP_PORT))
            watch = Stopwatch()
            while not port.receive_burst():
                assert watch.look() < PATIENCE_S
            assert (port.source_high, port.source_low) == address_halves(source)
    finally:
        port.close()
