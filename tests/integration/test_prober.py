"""Probes over real loopback sockets: counters equal the sent packets."""

from __future__ import annotations

import errno
import time
from dataclasses import replace
from typing import Any

import pytest

from chakram.foundation.errors import (
    ConfigError,
    FabricError,
    PeerError,
    PlanError,
    PortInUse,
)
from chakram.plan.probes import ProbePacket
from chakram.preflight.probe_plan import plan_probes, read_probes
from chakram.preflight.report import PreflightSettings
from chakram.records.row_layout import RecordRows
from chakram.roce.icrc import ip_icrc
from chakram_agent.dataplane.probe_packets import (
    ProbeName,
    name_of,
    probe_datagram,
    token_of,
)
from chakram_agent.probe_sender import open_prober
from chakram_agent.send_limits import Policy
from tests.packets import decode_packet
from tests.udp_ports import free_udp_ports
from tests.unit.preflight.ports import TRANSPORT, ports
from tests.waiting import PATIENCE_S, Stopwatch

UDP_PORT = free_udp_ports(3)
SETTINGS = PreflightSettings(path_mtu=1024, paths=3)

IPV4 = ports(3, address="127.0.5.{}")
# The loopback interface has one address of IPv6: ports differ by their UDP port.
IPV6 = ports(3, address="::1")


def planned(family: str, **settings: Any):
    found = [
        replace(
            port,
            agent="a",
            open="udp:",
            udp_port=UDP_PORT + (port.number if family == "ipv6" else 0),
        )
        for port in (IPV4 if family == "ipv4" else IPV6)
    ]
    changed = replace(SETTINGS, **settings)
    return plan_probes(found, TRANSPORT, changed, run_id="r").agents[0]


@pytest.mark.parametrize("is_late", [False, True], ids=["", "late"])
@pytest.mark.parametrize("family", ["ipv4", "ipv6"])
def test_every_probe_arrives_in_its_class(family: str, is_late: bool) -> None:
    plan = planned(family)
    assert plan.probes is not None
    prober = open_prober(plan, Policy())
    rows = RecordRows()
    try:
        # Late: all of it was due while the machine did something else.
        prober.arm(time.monotonic_ns() - is_late * plan.probes.end_ns)
        watch = Stopwatch()
        while not prober.finished(time.monotonic_ns()):
            assert watch.look() < PATIENCE_S
            prober.turn(time.monotonic_ns())
            prober.wait(10**6)
        rows.extend(prober.take_rows())
    finally:
        prober.close()

    packets = plan.probes.packets
    reports = read_probes(rows.probes, packets, paths=3)
    assert len(reports) == 6
    for report in reports.values():
        assert report.sent == report.arrived
        assert report.sent.total() == plan.probes.packets_per_target
        assert all(sent == arrived for sent, arrived in report.classes)
        assert {sent for sent, _ in report.classes} == {each.tos for each in packets}
        for path in range(3):
            assert report.largest(packets, path) == 1500
    assert prober.packets == 2 * 6 * plan.probes.packets_per_target


@pytest.mark.parametrize(("copies", "is_too_long"), [(200, False), (2000, True)])
def test_kernel_stamps_arrivals_and_counts_drops(
    copies: int, is_too_long: bool
) -> None:
    """It does both while the process that receives does something else."""
    plan = planned("ipv4", check_mtu=False, check_classes=False, copies=copies)
    assert plan.probes is not None
    train = replace(
        plan.probes,
        targets=plan.probes.targets[:1],
        source_ports=plan.probes.source_ports[:1],
        packets=(ProbePacket(size_bytes=1500, tos=106),),
        is_train=True,
    )
    prober = open_prober(replace(plan, probes=train), Policy())
    rows = RecordRows()
    try:
        prober.arm(time.monotonic_ns())
        watch = Stopwatch()
        while not prober.finished(time.monotonic_ns()):
            assert watch.look() < PATIENCE_S
            prober.turn(time.monotonic_ns())
            prober.wait(10**6)
        rows.extend(prober.take_rows())
    finally:
        prober.close()

    (report,) = read_probes(rows.probes, train.packets, paths=1).values()
    assert report.sent.total() == copies
    assert report.drops == copies - report.arrived.total()
    assert (report.drops > 0) is is_too_long
    if not is_too_long:
        ((count, span_ns),) = report.spans.values()
        assert count == copies // 2 - 1
        assert 0 < span_ns < PATIENCE_S * 1e9


def test_host_without_a_listener_is_reported() -> None:
    plan = planned("ipv4", check_mtu=False, check_classes=False)
    assert plan.probes is not None
    nobody = replace(plan.probes.targets[0], address="127.0.5.99")
    plan = replace(
        plan,
        peers=(*plan.peers, "127.0.5.99"),
        probes=replace(plan.probes, targets=(nobody,), end_ns=0),
    )
    prober = open_prober(plan, Policy())
    rows = RecordRows()
    try:
        prober.arm(time.monotonic_ns())
        watch = Stopwatch()
        while not any(
            report.unreachable
            for report in read_probes(
                rows.probes, plan.probes.packets, paths=3
            ).values()
        ):
            assert watch.look() < PATIENCE_S
            prober.turn(time.monotonic_ns())
            prober.wait(10**6)
            rows.extend(prober.take_rows())
    finally:
        prober.close()

    (report,) = read_probes(rows.probes, plan.probes.packets, paths=3).values()
    assert not report.arrived
    assert {number for number, _ in report.unreachable} == {errno.ECONNREFUSED}


def test_prober_refuses_a_destination_that_is_not_allowed() -> None:
    plan = planned("ipv4")
    with pytest.raises(PlanError, match="does not send to 127"):
        open_prober(plan, Policy(allow=()))
    with pytest.raises(PeerError, match="not a member"):
        open_prober(replace(plan, peers=()), Policy())


def test_failure_to_open_a_socket_closes_all_others() -> None:
    plan = planned("ipv4")
    absent = [*plan.ports[:2], replace(plan.ports[2], open="udp:eth99")]
    with pytest.raises(FabricError, match="no interface eth99"):
        open_prober(replace(plan, ports=tuple(absent)), Policy())
    other = [*plan.ports[:2], replace(plan.ports[2], open="memory:")]
    with pytest.raises(ConfigError, match="cannot send probes"):
        open_prober(replace(plan, ports=tuple(other)), Policy())
    prober = open_prober(plan, Policy())
    with pytest.raises(PortInUse):
        open_prober(plan, Policy())
    prober.close()
    open_prober(plan, Policy()).close()


@pytest.mark.parametrize("size_bytes", [128, 1088, 1500, 9000])
def test_a_probe_is_a_packet_of_its_size_with_a_valid_icrc(size_bytes: int) -> None:
    name = ProbeName(3, 4, 5, 6)
    token = token_of("r")

    datagram = probe_datagram(
        name,
        token=token,
        size_bytes=size_bytes,
        local=("198.18.0.1", 0xC000),
        remote=("198.18.0.2", 4791),
    )

    assert len(datagram) == size_bytes - 28
    assert name_of(datagram, token=token) == name
    assert name_of(datagram, token=token_of("other")) is None
    assert name_of(datagram[:20], token=token) is None
    packet = decode_packet(datagram)
    assert packet.deth is not None
    udp = (0xC000, 4791, len(datagram) + 8, 0)
    ip = bytes([0x45, 0, *size_bytes.to_bytes(2), 0, 0, 0x40, 0, 64, 17, 0, 0])
    ip += bytes([198, 18, 0, 1, 198, 18, 0, 2])
    whole = ip + b"".join(field.to_bytes(2) for field in udp) + datagram
    assert ip_icrc(whole) == packet.icrc
