"""Two flows through one port that marks come to equal shares, with every profile."""

from __future__ import annotations

import pytest

from chakram._compiled import status
from chakram.config.dcqcn import ProfileName
from chakram.fabric.topology import EcnThresholds
from chakram.testing.plans import flow_rows
from tests.unit.simulate.test_marking import MS, dcqcn, two_flows

GIGABIT = 10**9


CASES = [
    ("dcqcn-paper", 10, 240),
    ("dcqcn-paper", 40, 240),
    ("dcqcn-intel", 10, 480),
    ("dcqcn-intel", 25, 480),
    ("dcqcn-hpcc-ns3", 10, 240),
    ("dcqcn-hpcc-ns3", 40, 240),
    # At the rates that the NIC is made for; docs/design/dcqcn.md says why.
    ("dcqcn-nvidia", 40, 240),
    ("dcqcn-nvidia", 100, 100),
]
SEEDS = [1, 2]
if not status().is_compiled():
    # They take seconds each: one of every profile is enough.
    CASES = [each for each in CASES if each[1] not in {25, 40}]
    SEEDS = SEEDS[:1]


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("profile", "gigabits", "messages"), CASES)
def test_two_flows_converge_to_fair_shares(
    profile: ProfileName, gigabits: int, messages: int, seed: int
) -> None:
    line_bps = gigabits * GIGABIT
    result = two_flows(
        dcqcn(profile, line_bps=line_bps),
        # As HPCC's model sets them for a rate.
        ecn=EcnThresholds(
            kmin_bytes=gigabits * 4_000, kmax_bytes=gigabits * 16_000, probability=0.2
        ),
        messages=messages,
        line_bps=line_bps,
        size=gigabits * 25_000,
        seed=seed,
    )
    flows = flow_rows(result.records)
    ends = [
        max(flow.last_acked_ns for flow in flows if flow.rank == rank)
        for rank in (1, 2)
    ]
    start_ns, end_ns = 10 * MS, min(ends)
    bits = [
        sum(
            8 * flow.size_bytes
            for flow in flows
            if flow.rank == rank and start_ns < flow.last_acked_ns <= end_ns
        )
        for rank in (1, 2)
    ]
    fair = sum(bits) / 2

    assert bits == pytest.approx([fair, fair], rel=0.1)
    # Fair and not idle: the bottleneck carries most of what it can.
    assert sum(bits) > 0.8 * line_bps * (end_ns - start_ns) / 1e9
    assert sum(flow.cnp for flow in flows if flow.rank == 2) > 10
    assert result.marked_packets["s0:h0"] > 10
    assert sum(result.marked_packets.values()) == result.marked_packets["s0:h0"]
    # What a flow has learnt, its next message begins with.
    assert min(flow.rate_at_start_bps for flow in flows) < line_bps
