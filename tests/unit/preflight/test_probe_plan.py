from __future__ import annotations

from array import array
from dataclasses import replace

import pytest

from chakram.foundation.errors import PeerError
from chakram.plan.probes import ProbeEvent
from chakram.preflight.probe_plan import plan_probes, probe_packets, read_probes
from chakram.preflight.report import PreflightSettings
from tests.unit.preflight.ports import MBIT, TRANSPORT, ports

SETTINGS = PreflightSettings(path_mtu=1024)


def test_probes_are_of_every_class_and_of_every_path_mtu_that_fits() -> None:
    packets = probe_packets(ports(2), TRANSPORT, SETTINGS)

    # DSCP 26 with ECT(0), as the run's data, comes first; CNPs have DSCP 48 with it.
    small = [packet.tos for packet in packets if packet.size_bytes == 128]
    assert small == [106, 104, 105, 107, 194]
    sizes = [packet.size_bytes for packet in packets[len(small) :]]
    assert sizes == [256 + 64, 512 + 64, 1024 + 64, 1500]
    assert {packet.tos for packet in packets[len(small) :]} == {106}


def test_separate_class_of_answers_is_probed() -> None:
    transport = replace(TRANSPORT, dscp_ack=10, dscp_cnp=48)

    packets = probe_packets(ports(2), transport, replace(SETTINGS, check_mtu=False))

    # Acknowledgments leave without ECN.
    assert [packet.tos for packet in packets] == [
        *(26 << 2 | ecn for ecn in (2, 0, 1, 3)),
        *(10 << 2, 48 << 2 | 2),
    ]


@pytest.mark.parametrize(
    ("mtu", "longest"), [(1500, 1500), (1503, 1500), (9000, 9000), (9300, 4096 + 64)]
)
def test_probes_are_as_long_as_the_smallest_mtu_in_whole_words(
    mtu: int, longest: int
) -> None:
    found = [*ports(1, mtu=9500), *ports(1, mtu=mtu)]

    assert probe_packets(found, TRANSPORT, SETTINGS)[-1].size_bytes == longest


def test_ipv6_probes_are_20_bytes_longer() -> None:
    packets = probe_packets(
        ports(2, address="2001:2::{}", mtu=1300), TRANSPORT, SETTINGS
    )

    assert [packet.size_bytes for packet in packets][-3:] == [596, 1108, 1300]


def test_disabled_checks_send_no_probes() -> None:
    settings = replace(SETTINGS, check_mtu=False, check_classes=False)

    (packet,) = probe_packets(ports(2), TRANSPORT, settings)

    assert (packet.size_bytes, packet.tos) == (128, 106)


def test_every_port_has_one_partner_per_round() -> None:
    found = ports(5)
    settings = replace(SETTINGS, paths=4)

    plan = plan_probes(found, TRANSPORT, settings, run_id="r")

    by_time: dict[int, list[tuple[int, int]]] = {}
    for agent in plan.agents:
        assert agent.probes is not None
        assert agent.ranks == ()
        assert agent.shard_numbers() == [0]
        assert len(set(agent.probes.source_ports)) == 4
        for target in agent.probes.targets:
            by_time.setdefault(target.offset_ns, []).append(
                (target.source, target.destination)
            )
            address = next(p.address for p in found if p.number == target.destination)
            assert target.address == address
    assert len(by_time) == 5
    for pairs in by_time.values():
        sources = [source for source, _ in pairs]
        assert len(set(sources)) == len(sources) == 4
        assert {(b, a) for a, b in pairs} == set(pairs)


def test_a_round_is_long_enough_for_the_slowest_port_and_the_cap_of_its_agent() -> None:
    def round_ns(rate_bps: int, cap_bps: int | None) -> int:
        found = ports(3, rates_bps=[100 * MBIT, rate_bps, 100 * MBIT])
        plan = plan_probes(
            found, TRANSPORT, SETTINGS, run_id="r", caps_bps={"a2": cap_bps}
        )
        offsets = {
            target.offset_ns
            for agent in plan.agents
            if agent.probes
            for target in agent.probes.targets
        }
        return sorted(offsets)[1]

    packets = probe_packets(ports(3), TRANSPORT, SETTINGS)
    bits = 8 * sum(packet.size_bytes + 14 for packet in packets) * SETTINGS.copies
    for slow in (round_ns(MBIT, None), round_ns(100 * MBIT, MBIT)):
        assert slow > bits * 10**9 // MBIT
    assert round_ns(100 * MBIT, None) < bits * 10**9 // MBIT


def test_rows_are_added_up() -> None:
    packets = probe_packets(ports(2), TRANSPORT, SETTINGS)
    rows = array(
        "q",
        (
            *(ProbeEvent.SENT, 10, 11, 0, 0, 2, 0, 0),
            *(ProbeEvent.SENT, 10, 11, 0, 1, 2, 0, 0),
            *(ProbeEvent.ARRIVED, 10, 11, 0, 0, 1, 106, 0),
            *(ProbeEvent.ARRIVED, 10, 11, 0, 0, 1, 2, 0),
            *(ProbeEvent.TOO_BIG, 10, 11, 8, 0, 1, 1000, 0xC6120001),
        ),
    )

    reports = read_probes(rows, packets, paths=2)

    report = reports[10, 11]
    assert report.sent.total() == 4
    assert report.classes == {(106, 106): 1, (106, 2): 1}
    assert report.too_big == {(1000, 0xC6120001)}
    assert report.largest(packets, 0) == 128
    assert report.largest(packets, 1) == 0


def test_row_of_an_unplanned_packet_is_refused() -> None:
    packets = probe_packets(ports(2), TRANSPORT, SETTINGS)

    with pytest.raises(PeerError, match="packet 99"):
        read_probes(array("q", (0, 10, 11, 99, 0, 1, 0, 0)), packets, paths=1)
