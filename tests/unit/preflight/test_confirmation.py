"""Evidence for slow or lossy links, and effects of busy hosts."""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import replace

import pytest

from chakram.control.events import ShardLoad
from chakram.foundation.field_bounds import check_fields
from chakram.plan.probes import ProbeEvent, ProbePacket, ProbePlan
from chakram.preflight.confirmation import (
    LOSS_PROBES,
    Evidence,
    is_late,
    loss_copies,
    may_lose,
    resent_for_naks,
    train_evidence,
    train_packet,
)
from chakram.preflight.probe_plan import (
    PathReport,
    plan_probes,
    probe_packets,
    read_probes,
)
from chakram.preflight.report import PreflightSettings
from chakram.records.row_layout import PORT_FIELDS, QUEUE_PAIR_FIELDS
from tests.unit.preflight.ports import MBIT, TRANSPORT, ports

SETTINGS = PreflightSettings(path_mtu=1024, paths=2)
PACKETS = 96
# 1,088 bytes and the Ethernet header at 100 Mbit/s.
WIRE_NS = 88_160


def trains(*spans_ns: int, late_ns: int = 0, arrived: int = PACKETS) -> PathReport:
    """Return trains with given times of their later halves."""
    report = PathReport()
    for number, span_ns in enumerate(spans_ns):
        report.sent[number, 0] = PACKETS
        report.arrived[number, 0] = arrived
        report.late_ns[number, 0] = late_ns
        report.spans[number, 0] = (47, span_ns)
    return report


def judged(report: PathReport) -> tuple[float | None, float | None]:
    return train_evidence(report, size_bytes=1088, packets=PACKETS, rate_bps=100 * MBIT)


def test_trains_measure_the_rate_of_a_link() -> None:
    full, half = 47 * WIRE_NS, 2 * 47 * WIRE_NS

    assert judged(trains(full, half, half)) == (1.0, 0.5)
    # Too few agree.
    assert judged(trains(half, half)) == (0.5, None)
    # The sender fell behind: only that the link is fast has been shown.
    late_ns = PACKETS * WIRE_NS // 20
    assert judged(trains(half, half, half, late_ns=late_ns)) == (0.5, 0.5)
    assert judged(trains(half, half, full, late_ns=late_ns + 1)) == (1.0, None)
    # A train that has lost packets may have had gaps.
    assert judged(trains(half, half, half, arrived=PACKETS - 1)) == (None, None)
    # Nothing stamps them apart on a link that is faster than clocks.
    assert judged(trains(0, 0, 0)) == (1.0, 1.0)


@pytest.mark.parametrize(
    ("rate_bps", "expected"),
    [(20 * MBIT, (1088, 96)), (5 * MBIT, (1088, 57)), (MBIT, (1088, 24))],
)
def test_trains_of_slow_links_are_shorter(
    rate_bps: int, expected: tuple[int, int]
) -> None:
    packet, count = train_packet("198.18.0.1", TRANSPORT, rate_bps)

    assert (packet.size_bytes, count) == expected
    assert packet.tos == 106


def test_loss_is_distinguished_from_chance() -> None:
    def loses(lost: int) -> bool | None:
        return Evidence(probed=LOSS_PROBES, lost=lost).loses(0.001)

    assert [loses(lost) for lost in (0, 1, 2, 7, 8, 1200)] == [
        *(False, False, None, None, True, True)
    ]
    assert Evidence().loses(0.001) is None
    assert Evidence(naks=True).loses(0.001) is True
    # Where nothing may be lost, one packet is too many.
    assert Evidence(probed=10, lost=1).loses(0.0) is True
    assert Evidence(probed=10, lost=0).loses(0.0) is False


@pytest.mark.parametrize(
    ("figures", "expected"),
    [
        ({}, False),
        ({"max_lag_ns": 5_000_000}, False),
        ({"max_lag_ns": 5_000_001}, True),
        # Of 100 ms that it wanted a core for, it waited 5, or 6.
        ({"cpu_ns": 95_000_000, "queued_ns": 5_000_000}, False),
        ({"cpu_ns": 94_000_000, "queued_ns": 6_000_000}, True),
        # Most of the time it wanted none.
        ({"wall_ns": 10**10, "cpu_ns": 1_000, "queued_ns": 1_000}, True),
    ],
)
def test_hosts_that_wait_for_cores_are_late(
    figures: dict[str, int], expected: bool
) -> None:
    load = ShardLoad(
        shard=0, wall_ns=0, cpu_ns=0, max_lag_ns=0, late_rounds=0, rounds=0
    )

    assert is_late(replace(load, **figures)) is expected


def row(names: tuple[str, ...], **values: int) -> array[int]:
    return array("q", [values.get(name, 0) for name in names])


def test_a_nak_proves_a_loss_unless_the_receivers_socket_dropped_packets() -> None:
    found = ports(3)
    queue_pairs = (
        row(QUEUE_PAIR_FIELDS, rank=0, peer=1, retransmitted_nak=1)
        + row(QUEUE_PAIR_FIELDS, rank=1, peer=0, retransmitted_timeout=3)
        + row(QUEUE_PAIR_FIELDS, rank=1, peer=2, retransmitted_nak=4)
        + row(QUEUE_PAIR_FIELDS, rank=9, peer=0, retransmitted_nak=4)
    )
    dropped = row(PORT_FIELDS, port=found[2].number, socket_drops=1)

    def pairs(places: list[int]) -> set[tuple[int, int]]:
        return resent_for_naks(queue_pairs, dropped, places=places, ports=found)

    assert pairs([0, 1, 2]) == {(0, 1)}
    # Ranks are those of the plan; ports may lie elsewhere.
    assert pairs([2, 1, 0]) == {(2, 1), (1, 0)}


def test_socket_drops_and_trains_are_read_from_rows() -> None:
    packets = probe_packets(ports(2), TRANSPORT, SETTINGS)
    rows = array(
        "q",
        (
            *(ProbeEvent.DROPPED, 11, 11, 0, 0, 2, 0, 0),
            *(ProbeEvent.SENT, 10, 11, 0, 0, 96, 0, 0),
            *(ProbeEvent.ARRIVED, 10, 11, 0, 0, 96, 106, 0),
            *(ProbeEvent.OFFERED, 10, 11, 0, 0, 1, 77, 0),
            *(ProbeEvent.SPAN, 10, 11, 0, 0, 20, 300, 0),
            *(ProbeEvent.SPAN, 10, 11, 0, 0, 47, 800, 0),
            *(ProbeEvent.DROPPED, 11, 11, 0, 0, 3, 0, 0),
            *(ProbeEvent.SENT, 11, 10, 0, 0, 1, 0, 0),
        ),
    )

    reports = read_probes(rows, packets, paths=2)

    assert set(reports) == {(10, 11), (11, 10)}
    assert (reports[10, 11].drops, reports[11, 10].drops) == (5, 0)
    assert reports[10, 11].late_ns == {(0, 0): 77}
    # The last report of a train includes everything.
    assert reports[10, 11].spans == {(0, 0): (47, 800)}


def test_repeated_probes_are_summed() -> None:
    report = PathReport(
        sent=Counter({(0, 0): 2, (1, 0): 2}),
        arrived=Counter({(1, 0): 1}),
        refused={(2, 0): 90},
        drops=2,
    )
    assert report.missing == [(0, 0), (2, 0)]
    assert not report.is_proof([(0, 0)])
    assert report.is_proof([(2, 0)])

    report.merge(PathReport(sent=Counter({(0, 0): 2}), drops=1))
    assert report.is_proof([(0, 0)])

    report.merge(PathReport(sent=report.sent, arrived=Counter({(0, 0): 1})))
    assert report.missing == [(2, 0)]


def test_a_train_leaves_when_a_slow_link_has_sent_the_one_before() -> None:
    found = ports(3, rates_bps=[100 * MBIT] * 3)
    packet, count = train_packet("198.18.0.1", TRANSPORT, 100 * MBIT)
    plan = plan_probes(
        found,
        TRANSPORT,
        PreflightSettings(path_mtu=1024, copies=count),
        run_id="r",
        packets=(packet,) * 4,
        rounds=[[(0, 1)], [(2, 1), (1, 2)]],
        is_train=True,
    )

    offsets = {}
    for agent in plan.agents:
        assert agent.probes is not None
        assert agent.probes.is_train
        assert agent.probes.gap_ns == 4 * count * WIRE_NS
        for target in agent.probes.targets:
            ends = (target.source - 10, target.destination - 10)
            offsets[ends] = target.offset_ns
    assert offsets[0, 1] == 0
    assert offsets[2, 1] == offsets[1, 2] > 4 * agent.probes.gap_ns


def test_pairs_of_both_ports_identify_the_lossy_one() -> None:
    pairs = {(a, b) for a in range(4) for b in range(4) if a != b}
    near = {(2, 0), (2, 1), (2, 3), (0, 1), (3, 1)}
    assert may_lose(pairs, resent={(2, 1)}, naks=set()) == near
    assert may_lose(pairs, resent=set(), naks={(2, 1)}) == near
    assert may_lose(pairs, resent={(2, 1)}, naks={(2, 1)}) == near - {(2, 1)}
    assert may_lose({(0, 1)}, resent=set(), naks=set()) == set()


@pytest.mark.parametrize("npaths", [1, 2, 7, 64])
def test_loss_probes_respect_the_limits_of_a_plan(npaths: int) -> None:
    copies = loss_copies(npaths)
    assert npaths * copies >= min(LOSS_PROBES, 1000 * npaths)
    plan = ProbePlan(
        packets=(ProbePacket(size_bytes=100, tos=0),),
        source_ports=tuple(range(20_000, 20_000 + npaths)),
        copies=copies,
        gap_ns=1000,
        end_ns=10**9,
        targets=(),
    )
    check_fields(plan)  # raises where a field is out of bounds
