"""Flows through one marking port converge to equal shares with every profile."""

from __future__ import annotations

import statistics

import pytest

from chakram._compiled import status
from chakram.predict.simulator.run_plan import SimulationResult
from chakram.topology.topology import EcnThresholds
from tests.made_plans import flow_rows
from tests.unit.predict.simulator.test_marking import MS, dcqcn, flows_into_one

GIGABIT = 10**9
MESSAGE_US = 200
"""What one takes at the rate of the line."""

# Two of them, over some ms.
PAIRS: list[tuple[str, int, int, dict[str, str]]] = [
    ("dcqcn-paper", 10, 120, {}),
    ("dcqcn-intel", 10, 190, {}),
    ("dcqcn-hpcc-ns3", 10, 120, {}),
    # Shares of 50 ms differ by up to a quarter there.
    ("dcqcn-nvidia", 10, 600, {}),
    ("dcqcn-paper", 40, 90, {}),
    ("dcqcn-intel", 25, 190, {}),
    ("dcqcn-hpcc-ns3", 100, 130, {}),
    ("dcqcn-nvidia", 25, 150, {}),
    ("dcqcn-nvidia", 100, 80, {}),
    # Its own byte counter leads; see docs/design/dcqcn.md.
    ("dcqcn-intel", 100, 120, {"byte_counter": "600kB"}),
]
LATE = [case for case in PAIRS if case[1] < 40 and case[2] < 200]
# More of them, one joining each 2 ms.
CROWDS: list[tuple[str, int, int, int]] = [
    ("dcqcn-paper", 10, 4, 120),
    ("dcqcn-paper", 40, 8, 90),
    ("dcqcn-intel", 25, 4, 100),
    ("dcqcn-hpcc-ns3", 25, 4, 250),
    ("dcqcn-nvidia", 25, 3, 90),
    ("dcqcn-nvidia", 25, 8, 200),
]
# They take seconds each uncompiled, and ask what profiles do, not what the plain form
# does: there they are left to soak.
IF_COMPILED = () if status().is_compiled() else pytest.mark.soak
if IF_COMPILED:
    PAIRS = [min(PAIRS, key=lambda case: case[1] * case[2])]
    LATE = []


def congested(
    profile: str,
    gigabits: int,
    during_ms: int,
    *,
    senders: int = 2,
    late_ns: int = 2 * MS,
    seed: int = 1,
    **overrides: object,
) -> SimulationResult:
    """Fill a port of *gigabits* for some *during_ms*."""
    return flows_into_one(
        dcqcn(profile, line_bps=gigabits * GIGABIT, **overrides),
        senders=senders,
        # As HPCC's model sets them for a rate.
        ecn=EcnThresholds(
            kmin_bytes=gigabits * 4_000, kmax_bytes=gigabits * 16_000, probability=0.2
        ),
        messages=during_ms * 1_000 // MESSAGE_US // senders,
        late_ns=late_ns,
        line_bps=gigabits * GIGABIT,
        size=gigabits * 125 * MESSAGE_US,
        seed=seed,
    )


def shares_of(
    result: SimulationResult, *, senders: int, start_ns: int
) -> tuple[list[float], float]:
    """Return each sender's part of its fair share, and the total in bit/s.

    From *start_ns* on, as long as all have something to send.
    """
    flows = flow_rows(result.records)
    ranks = range(1, senders + 1)
    end_ns = min(
        max(flow.last_acked_ns for flow in flows if flow.rank == rank) for rank in ranks
    )
    bits = [
        sum(
            8 * flow.size_bytes
            for flow in flows
            if flow.rank == rank and start_ns < flow.last_acked_ns <= end_ns
        )
        for rank in ranks
    ]
    fair = sum(bits) / senders
    return [each / fair for each in bits], 1e9 * sum(bits) / (end_ns - start_ns)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("profile", "gigabits", "during_ms", "overrides", "late_ms"),
    [
        # The faster the line, the longer it takes: that is left to soak.
        *(
            pytest.param(*case, 2, marks=pytest.mark.soak if case[1] >= 100 else ())
            for case in PAIRS
        ),
        # The first has long had the line for itself.
        *((*case, 30) for case in LATE),
    ],
)
def test_two_flows_converge_to_fair_shares(
    profile: str,
    gigabits: int,
    during_ms: int,
    overrides: dict[str, str],
    late_ms: int,
) -> None:
    result = congested(
        profile,
        gigabits,
        during_ms,
        late_ns=late_ms * MS,
        seed=late_ms,
        **overrides,
    )
    start_ns = late_ms * MS + during_ms * MS // 5
    shares, rate_bps = shares_of(result, senders=2, start_ns=start_ns)

    # Marks are random: over seeds, shares have a standard deviation of 0.08.
    assert shares == pytest.approx([1, 1], abs=0.2)
    # Fair and not idle: the bottleneck carries most of what it can.
    assert rate_bps > 0.8 * gigabits * GIGABIT
    flows = flow_rows(result.records)
    assert sum(flow.cnp for flow in flows if flow.rank == 2) > 10
    assert result.marked_packets["s0:h0"] > 10
    assert sum(result.marked_packets.values()) == result.marked_packets["s0:h0"]
    # What a flow has learnt, its next message begins with.
    assert min(flow.rate_at_start_bps for flow in flows) < gigabits * GIGABIT


@pytest.mark.slow
@pytest.mark.parametrize(
    ("profile", "gigabits", "senders", "during_ms"),
    [pytest.param(*case, marks=IF_COMPILED) for case in CROWDS],
)
def test_flows_that_join_one_by_one_share_fairly(
    profile: str, gigabits: int, senders: int, during_ms: int
) -> None:
    result = congested(profile, gigabits, during_ms, senders=senders)
    shares, rate_bps = shares_of(
        result, senders=senders, start_ns=2 * MS * senders + during_ms * MS // 4
    )
    jain = sum(shares) ** 2 / senders / sum(share**2 for share in shares)

    assert jain > 0.95
    assert rate_bps > 0.7 * gigabits * GIGABIT


@pytest.mark.slow
@pytest.mark.parametrize("profile", [pytest.param("dcqcn-intel", marks=IF_COMPILED)])
def test_two_that_begin_equal_do_not_starve_though_a_byte_counter_leads(
    profile: str,
) -> None:
    # At 50 Gbit/s 150 kB take 24 us: the flow that is ahead recovers oftener between
    # cuts, so they drift apart, with each seed to another share.
    least = [
        min(shares_of(result, senders=2, start_ns=10 * MS)[0])
        for result in (
            congested(profile, 100, 60, late_ns=0, seed=seed) for seed in range(1, 6)
        )
    ]
    assert statistics.median(least) > 0.25
