"""Matching of receives and arrivals at ranks of ASTRA-sim."""

from __future__ import annotations

from itertools import pairwise

import pytest

from chakram._compiled import status
from chakram.formats.ns3 import FlowTime
from tests.ns3_runs import GROUPS, mix, of_job

# A million events: too long uncompiled, and what they ask is what the hosts do.
pytestmark = [] if status().is_compiled() else [pytest.mark.soak]

SIZE_BYTES = 1 << 20
STEPS = 14
ENDPOINT_NS = 10
REDUCTION_NS = 3 * (SIZE_BYTES // 8 * 10**9 // 1_600_000_000_000)


def between(flows: list[FlowTime], source: int, target: int) -> list[list[FlowTime]]:
    """Return the messages of a pair by collective, in the order of their start."""
    found = [flow for flow in flows if (flow.src, flow.dst) == (source, target)]
    each = len(found) // 4
    return [found[first : first + each] for first in range(0, len(found), each)]


def test_nth_receive_in_a_ring_takes_the_nth_arrival() -> None:
    flows = of_job(mix("all_reduce", size_bytes=SIZE_BYTES).run().flows, "all_reduce")
    ring = GROUPS["all_reduce"]
    overtaken = early = 0
    for place, rank in enumerate(ring):
        sends = between(flows, rank, ring[(place + 1) % len(ring)])
        comes = between(flows, ring[place - 1], rank)
        for sent, came in zip(sends, comes, strict=True):
            assert len(sent) == STEPS
            ends = sorted(flow.end_ns for flow in came)
            overtaken += ends != [flow.end_ns for flow in came]
            for step, (before, after) in enumerate(pairwise(sent)):
                # A receive is posted with the send of its step.
                early += ends[step] < before.start_ns
                taken_ns = max(ends[step], before.start_ns) + ENDPOINT_NS
                if step < STEPS // 2:
                    taken_ns += REDUCTION_NS
                assert after.start_ns == taken_ns
    assert overtaken
    assert early


def test_a_collective_follows_when_its_rank_is_done_whatever_packets_do() -> None:
    flows = of_job(mix("all_to_all").run().flows, "all_to_all")
    ranks = GROUPS["all_to_all"]
    for rank in ranks:
        others = [other for other in ranks if other != rank]
        comes = zip(*(between(flows, other, rank) for other in others), strict=True)
        sends = zip(*(between(flows, rank, other) for other in others), strict=True)
        last_ns = [max(flow[0].end_ns for flow in each) for each in comes]
        starts_ns = [{flow[0].start_ns for flow in each} for each in sends]
        # Taken up, then sent: an endpoint delay each.
        assert starts_ns[1:] == [{ns + 2 * ENDPOINT_NS} for ns in last_ns[:-1]]
