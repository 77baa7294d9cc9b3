"""Assembly of an endpoint from a plan."""

from __future__ import annotations

from array import array

import pytest

from chakram.plan.transport import TransportPlan
from chakram.replay.endpoint_builder import (
    CongestionSettings,
    burst_time_ns,
    make_queue_pair,
)
from chakram.roce.constants import IPV4_OVERHEAD_BYTES
from chakram.roce.cross_process_pacing import PART_WORDS, SharedLine
from chakram.roce.events import SendCompleted
from tests.plans import dcqcn_arguments
from tests.port_plans import pair_plan, port_plan
from tests.virtual_wire import Pair

GIGABIT = 10**9


def time_of_burst(rate_bps: int | None, max_burst_packets: int) -> int:
    return burst_time_ns(
        port_plan(rate_bps=rate_bps),
        TransportPlan(path_mtu=4096, max_burst_packets=max_burst_packets),
        overhead_bytes=IPV4_OVERHEAD_BYTES,
    )


@pytest.mark.parametrize(
    ("rate_bps", "max_burst_packets", "burst_ns"),
    [
        # 8 packets of 4154 bytes at 1 Gbit/s.
        (GIGABIT, 8, 8 * 4154 * 8),
        (400 * GIGABIT, 15, 15_000),
        (None, 15, 15_000),
        (10**6, 15, 1 << 23),
    ],
)
def test_a_paced_burst_takes_its_share_of_the_largest(
    rate_bps: int | None, max_burst_packets: int, burst_ns: int
) -> None:
    assert time_of_burst(rate_bps, max_burst_packets) == burst_ns


def test_a_message_after_a_pause_finds_the_rate_that_its_flow_was_cut_to() -> None:
    """What is seen of a short message is the congestion of those before it."""
    transport = TransportPlan(
        path_mtu=4096,
        window_bytes=1 << 20,
        congestion_control="dcqcn",
        congestion_parameters=dcqcn_arguments(),
    )
    ends = [
        make_queue_pair(
            pair_plan(qpn, remote_qpn, remote=port_plan(1), group="all", peer_rank=1),
            0,
            transport,
            CongestionSettings(transport, None),
            overhead_bytes=IPV4_OVERHEAD_BYTES,
            burst_ns=15_000,
        )
        for qpn, remote_qpn in ((1, 2), (2, 1))
    ]
    pair = Pair(*ends)
    pair.post(0, 4096)
    pair.run()
    for _ in range(11):
        pair.clock.advance_to(pair.now_ns + 50_000)
        ends[0].requester.handle_cnp(pair.now_ns)
    pair.clock.advance_to(pair.now_ns + 1_000_000)
    pair.post(1, 65_536)
    pair.run()

    message = pair.left.events_of(1)[-1]
    assert isinstance(message, SendCompleted)
    assert message.rate_at_start_bps < GIGABIT
    # It recovers meanwhile, but not at once.
    at_that_rate_ns = 65_536 * 8 * 10**9 // message.rate_at_start_bps
    assert message.last_acked_ns - message.posted_ns > at_that_rate_ns / 2


# QPN and destination: two of one host, one of another.
PLACES = [(1, 7), (2, 7), (3, 8)]


@pytest.mark.parametrize(
    ("scope", "notified"),
    [
        ("queue_pair", [True, True, True]),
        ("destination", [True, False, True]),
        ("port", [True, False, False]),
    ],
)
def test_notifications_are_limited_by_scope(scope: str, notified: list[bool]) -> None:
    transport = TransportPlan(
        congestion_control="dcqcn",
        congestion_parameters=dcqcn_arguments(scope),
    )
    settings = CongestionSettings(transport, None)
    found = []
    for qpn, destination in PLACES:
        queue_pair = make_queue_pair(
            pair_plan(qpn, qpn, remote=port_plan(1), source_port=50_000),
            destination,
            transport,
            settings,
            overhead_bytes=IPV4_OVERHEAD_BYTES,
            burst_ns=15_000,
        )
        queue_pair.arrivals.receive_run(0, 1, 0, True, True, 1, 1, 1, False, 1, 0)
        found.append(queue_pair.next_burst(0, 1) is not None)

    assert found == notified


@pytest.mark.parametrize(
    ("scope", "notifying"), [("port", 1), ("destination", 2), ("queue_pair", 2)]
)
def test_processes_of_one_port_share_its_limit_and_no_other(
    scope: str, notifying: int
) -> None:
    """Queue pairs of one peer in two processes, both marked at once."""
    transport = TransportPlan(
        congestion_control="dcqcn",
        congestion_parameters=dcqcn_arguments(scope),
    )
    words = array("q", bytes(8 * PART_WORDS * 2))
    limiters = [
        CongestionSettings(
            transport,
            SharedLine(rate_bps=GIGABIT, burst_bound_ns=0, words=words, index=index),
        ).limiter(qpn=1 + index, destination=7)
        for index in range(2)
    ]

    admitted = [limiter is not None and limiter.admits(100) for limiter in limiters]
    assert admitted.count(True) == notifying


def test_no_interval_disables_notifications() -> None:
    settings = CongestionSettings(TransportPlan(), None)
    assert settings.limiter(qpn=1, destination=1) is None
