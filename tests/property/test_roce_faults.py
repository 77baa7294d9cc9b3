"""A law of faults: rules count independently, and the first match wins."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from chakram.plan.packet_faults import PACKET_CLASSES, FaultAction, PacketFault
from chakram.roce.fault_selection import FaultRule, PacketFaults

PACKETS = ("first", "middle", "last")

faults = st.builds(
    PacketFault,
    action=st.just(FaultAction.DROP),
    packets=st.sampled_from(("data", *PACKETS)),
    nth=st.integers(1, 4),
    count=st.integers(1, 2),
    every=st.sampled_from((0, 2, 3, 5)),
)


@given(
    given_faults=st.lists(faults, min_size=1, max_size=4),
    packets=st.lists(st.sampled_from(PACKETS), max_size=30),
)
def test_a_packet_is_for_the_first_rule_that_hits_it_alone(
    given_faults: list[PacketFault], packets: list[str]
) -> None:
    rules = [FaultRule(fault) for fault in given_faults]
    together = PacketFaults(rules, 1)
    each_alone = [PacketFaults([FaultRule(fault)], 1) for fault in given_faults]
    for name in packets:
        packet_class = PACKET_CLASSES[name]
        hits = [alone.judge(1, packet_class) is not None for alone in each_alone]
        expected = next(
            (rule for rule, hit in zip(rules, hits, strict=True) if hit), None
        )
        hit = together.judge(1, packet_class)
        assert (None if hit is None else hit.rule) is expected
