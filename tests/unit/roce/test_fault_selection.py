"""Packets that faults affect."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from chakram.plan.packet_faults import PACKET_CLASSES, FaultAction, PacketFault
from chakram.roce.fault_selection import (
    FaultRule,
    PacketFaults,
    class_of_burst,
    class_of_datagram,
)
from chakram.roce.packet_encoder import WireEncoder
from tests.virtual_wire import make_queue_pair, split

ONLY = PACKET_CLASSES["only"]
DROP = FaultAction.DROP


def rule_of(faults: PacketFaults, qpn: int, packet_class: int) -> FaultRule | None:
    """Return the rule that hits the next packet."""
    hit = faults.judge(qpn, packet_class)
    return None if hit is None else hit.rule


def hits(fault: PacketFault, packets: int, seed: int = 1) -> list[int]:
    faults = PacketFaults([FaultRule(fault)], seed)
    return [
        number for number in range(1, packets + 1) if faults.judge(7, ONLY) is not None
    ]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"nth": 1}, [1]),
        ({"nth": 4}, [4]),
        ({"nth": 4, "count": 3}, [4, 5, 6]),
        ({"nth": 2, "every": 5}, [2, 7, 12, 17]),
        ({"nth": 2, "count": 2, "every": 5}, [2, 3, 7, 8, 12, 13, 17, 18]),
        ({"nth": 21}, []),
        ({"probability": 1.0}, list(range(1, 21))),
    ],
)
def test_nth_packet_is_hit(settings: dict[str, Any], expected: list[int]) -> None:
    assert hits(PacketFault(action=DROP, **settings), 20) == expected


def test_probability_has_its_share_and_repeats_with_its_seed() -> None:
    fault = PacketFault(action=DROP, probability=0.01)

    assert 900 < len(hits(fault, 100_000)) < 1_100
    assert hits(fault, 1_000, seed=5) == hits(fault, 1_000, seed=5)
    assert hits(fault, 1_000, seed=5) != hits(fault, 1_000, seed=6)


def lost_of(faults: PacketFaults, *flows: int, packets: int = 2_000) -> list[int]:
    """Return which packets of the first flow are lost, with others between them."""
    lost = []
    for psn in range(packets):
        for flow in flows:
            hit = faults.judge(flow, ONLY, psn, flow)
            if hit is not None and flow == flows[0] and hit.rule.fault.part == "any":
                lost.append(psn)
    return lost


def test_probability_is_independent_of_other_flows_and_faults() -> None:
    drop = PacketFault(action=DROP, probability=0.05)
    corrupt = PacketFault(
        action=FaultAction.CORRUPT, probability=0.2, packets="ack", part="header"
    )
    alone = lost_of(PacketFaults([FaultRule(drop)], 1), 7)

    assert 60 < len(alone) < 140
    assert lost_of(PacketFaults([FaultRule(drop)], 1), 7, 8, 9) == alone
    assert lost_of(PacketFaults([FaultRule(corrupt), FaultRule(drop)], 1), 7) == alone
    more = replace(drop, probability=0.1)
    assert set(alone) < set(lost_of(PacketFaults([FaultRule(more)], 1), 7))
    # Of a run that begins with other PSNs, too.
    begun = PacketFaults([FaultRule(drop)], 1, {7: (0xFFFF00, 0)})
    assert [
        psn
        for psn in range(2_000)
        if begun.judge(7, ONLY, (psn + 0xFFFF00) & 0xFFFFFF, 7) is not None
    ] == alone
    # Faults that are alike are not one.
    twice = PacketFaults([FaultRule(drop), FaultRule(drop)], 1)
    assert 140 < len(lost_of(twice, 7)) < 260


def test_retransmitted_packet_is_drawn_again() -> None:
    faults = PacketFaults([FaultRule(PacketFault(action=DROP, probability=0.5))], 1)

    for psn in range(200):
        tries = 0
        while faults.judge(7, ONLY, psn, 7) is not None:
            tries += 1
            assert tries < 30


def test_only_matching_packets_count() -> None:
    fault = PacketFault(action=DROP, packets="last", nth=2)
    rule = FaultRule(fault, frozenset((3, 4)))
    faults = PacketFaults([rule], 1)
    last, first = PACKET_CLASSES["last"], PACKET_CLASSES["first"]

    assert faults.judge(3, last) is None
    assert faults.judge(5, last) is None  # another queue pair
    assert faults.judge(3, first) is None  # another class
    assert rule_of(faults, 4, last) is rule


def test_of_two_rules_the_first_wins_and_both_count() -> None:
    first = FaultRule(PacketFault(action=DROP, nth=1))
    second = FaultRule(PacketFault(action=FaultAction.MARK, nth=2))
    faults = PacketFaults([first, second], 1)

    assert rule_of(faults, 1, ONLY) is first
    assert rule_of(faults, 1, ONLY) is second


def test_of_two_rules_that_hit_one_packet_the_first_wins() -> None:
    rules = [
        FaultRule(PacketFault(action=action, nth=1, every=2))
        for action in (DROP, FaultAction.MARK)
    ]
    faults = PacketFaults(rules, 1)

    assert [rule_of(faults, 1, ONLY) for _ in range(3)] == [rules[0], None, rules[0]]


@pytest.mark.parametrize("size", [0, 1_024, 2_048, 5_000])
def test_a_packet_is_of_one_class_as_bytes_and_as_a_burst(size: int) -> None:
    queue_pair = make_queue_pair(window_bytes=10**6)
    queue_pair.post_send(1, size, 0)
    encoder = WireEncoder(local_address="10.0.0.1", path_mtu=1024, max_burst_packets=15)
    encoder.set_destination(0, "10.0.0.2")
    classes = []
    for burst in iter(lambda: queue_pair.next_burst(0, 15), None):
        for position, data in enumerate(split(*encoder.encode(burst))):
            found = class_of_burst(burst, position)
            assert found == class_of_datagram(b"xy" + data, 2, len(data))
            classes.append(found)
    packets = max(1, -(-size // 1024))
    names = ["only"] if packets == 1 else ["first", *["middle"] * (packets - 2), "last"]
    assert classes == [PACKET_CLASSES[name] for name in names]


@pytest.mark.parametrize(
    ("psn", "ce", "name"), [(0, 0, "ack"), (5, 0, "nak"), (0, 1, "cnp")]
)
def test_answers_have_separate_classes(psn: int, ce: int, name: str) -> None:
    queue_pair = make_queue_pair(cnp_interval_ns=0)
    queue_pair.arrivals.receive_run(psn, 1, 0, True, True, 1, 1, 1, True, ce, 0)
    burst = queue_pair.next_burst(0, 1)
    assert burst is not None
    encoder = WireEncoder(local_address="10.0.0.1", path_mtu=1024, max_burst_packets=15)
    encoder.set_destination(0, "10.0.0.2")
    data = bytes(encoder.encode(burst)[0])

    assert class_of_burst(burst, 0) == PACKET_CLASSES[name]
    assert class_of_datagram(data, 0, len(data)) == PACKET_CLASSES[name]


def test_invalid_packet_matches_only_rules_for_any_class() -> None:
    other = class_of_datagram(b"abc", 0, 3)

    assert other & PACKET_CLASSES["any"]
    assert not any(
        other & bits for name, bits in PACKET_CLASSES.items() if name != "any"
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "either nth or a probability"),
        ({"nth": 1, "probability": 0.1}, "either nth or a probability"),
        ({"nth": 1, "packets": "some"}, "packets: 'some' is not one of any, data"),
        ({"nth": 1, "count": 0}, "count: 0 is not in 1.."),
        (
            {"nth": 1, "count": 3, "every": 2},
            "count is 3, but must not exceed every, 2",
        ),
        ({"probability": 1.5}, "probability: 1.5 is not in 0.0..1.0"),
        ({"nth": 1, "delay_ns": 0}, "delay_ns: 0 is not in 1.."),
        (
            {"nth": 1, "at_send": True, "action": FaultAction.NOT_READY},
            "not_ready applies only to receivers",
        ),
    ],
)
def test_faults_that_contradict_themselves_are_refused(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        PacketFault(**({"action": DROP} | settings))


def test_faults_have_a_description() -> None:
    fault = PacketFault(
        action=FaultAction.DELAY, packets="ack", job="moe", source=1, destination=2,
        nth=5, count=2, every=9, at_send=True,
    )  # fmt: skip

    assert fault.describe() == (
        "delay number 5 and the next 1, again every 9 of the ack packets sent of job "
        "moe from rank 1 to rank 2"
    )
    assert PacketFault(action=DROP, probability=0.01).describe() == (
        "drop 1.00% at random of the data packets received"
    )
