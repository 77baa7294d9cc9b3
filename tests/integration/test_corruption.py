"""Flipped bits on the wire are detected or harmless."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from chakram.plan.packet_faults import FaultAction, PacketFault
from chakram.plan.plan import RunSettings
from chakram.plan.transport import TransportPlan
from chakram.records.counter_definitions import PortStatistics
from chakram_agent.dataplane.loop import DataPlane
from chakram_agent.shard import build_plane
from tests.integration.test_dataplane_loop import LOOPBACK
from tests.made_plans import collective, share_rows, world_plan
from tests.plans import moved
from tests.udp_ports import free_udp_ports
from tests.waiting import PATIENCE_S, Stopwatch

NRANKS = 4
SIZE = 4_000_000
UDP_PORT = free_udp_ports(NRANKS)


def run(
    fault: PacketFault | None,
    *,
    verify_every: int = 1,
    icrc: str = "table",
    is_ipv6: bool = False,
    open_spec: str = "udp:",
) -> tuple[list[PortStatistics], int]:
    """Run a collective over sockets; return counters and reported errors."""
    plan, _ = world_plan(
        [collective("all_to_all", SIZE)],
        nranks=NRANKS,
        transport=TransportPlan(
            path_mtu=1024,
            max_burst_packets=4,
            retransmit_timeout_ns=5_000_000,
            retry_limit=1_000,
            verify_every=verify_every,
            icrc=icrc,
        ),
        settings=RunSettings(
            warmup=0, measured=2, faults=() if fault is None else (fault,)
        ),
    )
    places = [
        ("::1", UDP_PORT + n) if is_ipv6 else (f"127.18.8.{n + 1}", UDP_PORT)
        for n in range(NRANKS)
    ]
    (agent,) = plan.agents
    plane = build_plane(moved(agent, places, open_spec=open_spec), LOOPBACK)
    try:
        _finish(plane)
        counters = [line.endpoint.engine.statistics() for line in plane.lines]
        shares = [
            row for line in plane.lines for row in share_rows(line.endpoint.records)
        ]
    finally:
        plane.close()
    assert {row.received_bytes for row in shares} == {SIZE // NRANKS * (NRANKS - 1)}
    return counters, sum(row.wrong for row in shares)


def _finish(plane: DataPlane) -> None:
    plane.arm(time.monotonic_ns())
    watch = Stopwatch()
    while not plane.finished():
        plane.round()
        plane.wait(1_000_000)
        assert plane.failure() is None
        assert watch.look() < PATIENCE_S


def total(counters: list[PortStatistics], name: str) -> int:
    return sum(getattr(each, name) for each in counters)


def corrupt(part: str, *, at_send: bool) -> PacketFault:
    return PacketFault(
        action=FaultAction.CORRUPT,
        packets="any",
        part=part,
        probability=0.01,
        at_send=at_send,
    )


@pytest.mark.parametrize("is_ipv6", [False, True])
@pytest.mark.parametrize("at_send", [False, True])
@pytest.mark.parametrize("part", ["any", "header", "payload"])
def test_every_flipped_bit_is_counted_or_harmless(
    part: str, at_send: bool, is_ipv6: bool
) -> None:
    counters, wrong = run(corrupt(part, at_send=at_send), is_ipv6=is_ipv6)

    flipped = total(counters, "faults_corrupted")
    found = sum(
        total(counters, name)
        for name in (
            *("icrc_errors", "malformed", "partition_key_errors"),
            *("unknown_queue_pair", "foreign_address"),
        )
    )
    assert flipped > 50
    assert wrong == total(counters, "wrong_payloads") == 0
    # A byte of the BTH is not sealed, and the last packets may still be on their way.
    assert found <= flipped
    assert found > 0.7 * flipped
    assert total(counters, "icrc_errors") > 0.4 * flipped
    assert total(counters, "unsupported") == 0


@pytest.mark.parametrize("open_spec", ["udp:", "memory:"])
def test_unchanged_packets_have_no_errors(open_spec: str) -> None:
    counters, wrong = run(None, open_spec=open_spec)
    verified = total(counters, "verified")
    assert verified == total(counters, "packets_received") > NRANKS * SIZE / 1024 / 2
    assert wrong == total(counters, "icrc_errors") == 0


def test_sampled_checks_find_a_share_of_the_errors() -> None:
    counters, _ = run(None, verify_every=64)
    for each in counters:
        assert each.verified == each.packets_received // 64


@pytest.mark.parametrize("verify_every", [0, 1])
def test_wrong_payload_is_accepted_and_reported_without_icrcs(
    verify_every: int,
) -> None:
    fault = replace(corrupt("payload", at_send=False), packets="data")
    counters, wrong = run(fault, verify_every=verify_every, icrc="off")
    assert total(counters, "icrc_errors") == 0
    # Every changed packet, but for duplicates and such as never were in turn.
    assert (wrong > 0) is bool(verify_every)
    assert wrong == total(counters, "wrong_payloads")
    assert wrong <= total(counters, "faults_corrupted")
