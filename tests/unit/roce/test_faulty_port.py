"""Faults in both directions through a port, as bytes and as bursts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chakram.plan.packet_faults import FaultAction, PacketFault
from chakram.roce.constants import BurstKind
from chakram.roce.events import MessageReceived, SendCompleted
from chakram.roce.fault_selection import (
    FaultRule,
    PacketFaults,
    bits_of_burst,
    bits_of_datagram,
)
from chakram.roce.faulty_port import FaultyPort, flip_bit
from chakram.roce.packet_encoder import WireEncoder
from chakram.roce.port import PortEngine
from tests.virtual_wire import Pair, make_queue_pair

MTU = 1024
LEFT, RIGHT = "198.18.0.1", "198.18.0.2"
both_ways = pytest.mark.parametrize("as_bytes", [False, True])
everywhere = pytest.mark.parametrize("at_send", [False, True])


def faulty(*faults: PacketFault, seed: int = 1, **settings: Any) -> FaultyPort:
    rules: dict[bool, list[FaultRule]] = {False: [], True: []}
    for index, fault in enumerate(faults):
        rules[fault.at_send].append(FaultRule(fault, index=index))
    return FaultyPort(
        **({"rate_bps": None, "burst_bound_ns": 0, "max_burst_packets": 15} | settings),
        at_receive=PacketFaults(rules[False], seed),
        at_send=PacketFaults(rules[True], seed),
    )


def encoders() -> tuple[WireEncoder, WireEncoder]:
    def encoder(local: str, remote: str) -> WireEncoder:
        made = WireEncoder(local_address=local, path_mtu=MTU, max_burst_packets=15)
        made.set_destination(0, remote)
        return made

    return encoder(LEFT, RIGHT), encoder(RIGHT, LEFT)


def joined(*faults: PacketFault, as_bytes: bool, **settings: Any) -> Pair:
    """A sender on the left and a receiver on the right; faults at their place."""
    usual: dict[str, Any] = {"window_bytes": 10**6, "cnp_interval_ns": 0}
    ports: list[PortEngine] = []
    for is_left in (True, False):
        port = faulty(*(each for each in faults if each.at_send is is_left))
        mine, other = (0x11, 0x12) if is_left else (0x12, 0x11)
        port.add_queue_pair(make_queue_pair(mine, other, **(usual | settings)))
        ports.append(port)
    left, right = ports
    return Pair(left, right, encoders=encoders() if as_bytes else None)


def injected(pair: Pair) -> dict[str, int]:
    totals: dict[str, int] = {}
    for side in (pair.left, pair.right):
        statistics = side.port.statistics()
        for action in FaultAction:
            name = action.name.lower()
            field = {
                "drop": "dropped", "delay": "delayed", "duplicate": "duplicated",
                "reorder": "reordered", "mark": "marked", "not_ready": "not_ready",
                    "corrupt": "corrupted",
            }[name]  # fmt: skip
            totals[name] = totals.get(name, 0) + getattr(statistics, f"faults_{field}")
    return {name: total for name, total in totals.items() if total}


def assert_delivered(pair: Pair, sizes: list[int]) -> None:
    expected = list(enumerate(sizes))
    for events, kind in (
        (pair.right.events_of(0x12), MessageReceived),
        (pair.left.events_of(0x11), SendCompleted),
    ):
        assert all(isinstance(event, kind) for event in events)
        assert [
            (event.message_id, event.size_bytes)
            for event in events
            if isinstance(event, MessageReceived | SendCompleted)
        ] == expected


@both_ways
@everywhere
def test_named_packet_is_lost(as_bytes: bool, at_send: bool) -> None:
    fault = PacketFault(
        action=FaultAction.DROP, packets="middle", nth=3, at_send=at_send
    )
    pair = joined(fault, as_bytes=as_bytes)
    pair.post(0, 10 * MTU)
    pair.run()

    assert_delivered(pair, [10 * MTU])
    assert injected(pair) == {"drop": 1}
    sender = pair.left.port.queue_pair(0x11).statistics()
    receiver = pair.right.port.queue_pair(0x12).statistics()
    # FIRST is packet 0, so MIDDLE number 3 is packet 3; 3 to 9 are sent again.
    assert sender.retransmitted_for_nak == sender.packets_retransmitted == 7
    assert (receiver.naks_sent, receiver.out_of_sequence) == (1, 6)


@both_ways
@everywhere
def test_packet_is_duplicated(as_bytes: bool, at_send: bool) -> None:
    fault = PacketFault(
        action=FaultAction.DUPLICATE, packets="only", nth=2, at_send=at_send
    )
    pair = joined(fault, as_bytes=as_bytes)
    for number in range(3):
        pair.post(number, 100)
    pair.run()

    assert_delivered(pair, [100] * 3)
    assert injected(pair) == {"duplicate": 1}
    assert pair.right.port.queue_pair(0x12).statistics().duplicates == 1


def reordered(packets: str, *, behind: int, as_bytes: bool, at_send: bool) -> Pair:
    """Return a conversation of one message with a delayed packet."""
    fault = PacketFault(
        action=FaultAction.REORDER,
        packets=packets,
        nth=1,
        behind=behind,
        at_send=at_send,
        delay_ns=100_000,
    )
    pair = joined(fault, as_bytes=as_bytes, retransmit_timeout_ns=10_000_000)
    pair.post(0, 8 * MTU)
    pair.run()
    assert_delivered(pair, [8 * MTU])
    return pair


@both_ways
@everywhere
def test_a_packet_is_overtaken(as_bytes: bool, at_send: bool) -> None:
    pair = reordered("middle", behind=2, as_bytes=as_bytes, at_send=at_send)
    assert injected(pair) == {"reorder": 1}
    receiver = pair.right.port.queue_pair(0x12).statistics()
    # Two came before it, and what came after it had to wait for the retry of those.
    assert receiver.out_of_sequence >= 2
    assert receiver.naks_sent >= 1
    assert pair.left.port.queue_pair(0x11).statistics().timeouts == 0


@both_ways
@everywhere
@pytest.mark.parametrize("behind", [1, 2, 4])
def test_reordered_packet_follows_the_overtaking_ones(
    as_bytes: bool, at_send: bool, behind: int
) -> None:
    fault = PacketFault(
        action=FaultAction.REORDER,
        packets="middle",
        nth=1,
        behind=behind,
        at_send=at_send,
        delay_ns=100_000,
    )
    pair = joined(fault, as_bytes=as_bytes, reordering_packets=64)
    pair.post(0, 8 * MTU)
    pair.run()

    assert_delivered(pair, [8 * MTU])
    receiver = pair.right.port.queue_pair(0x12).statistics()
    # Who keeps what comes early needs nothing again: all of it came once.
    assert pair.left.port.queue_pair(0x11).statistics().packets_retransmitted == 0
    assert receiver.kept_out_of_order == behind
    assert receiver.duplicates == 0
    (event,) = pair.left.events_of(0x11)
    assert isinstance(event, SendCompleted)
    assert event.last_acked_ns < 100_000


@both_ways
@everywhere
def test_reordered_packet_without_followers_is_sent_after_its_time(
    as_bytes: bool, at_send: bool
) -> None:
    pair = reordered("last", behind=1, as_bytes=as_bytes, at_send=at_send)
    (event,) = pair.left.events_of(0x11)
    assert isinstance(event, SendCompleted)
    assert event.last_acked_ns == 102_000  # the wire takes 1 us each way
    assert pair.left.port.queue_pair(0x11).statistics().packets_retransmitted == 0


@both_ways
@everywhere
def test_packet_is_delayed(as_bytes: bool, at_send: bool) -> None:
    fault = PacketFault(
        action=FaultAction.DELAY,
        packets="only",
        nth=1,
        delay_ns=400_000,
        at_send=at_send,
    )
    pair = joined(fault, as_bytes=as_bytes)
    pair.post(0, 100)
    pair.run()

    assert_delivered(pair, [100])
    (event,) = pair.left.events_of(0x11)
    assert isinstance(event, SendCompleted)
    assert event.last_acked_ns == 402_000  # the wire takes 1 us each way
    assert injected(pair) == {"delay": 1}


@both_ways
def test_lost_ack_is_requested_again(as_bytes: bool) -> None:
    # The receiver sends it, the sender receives it: here the latter loses it.
    fault = PacketFault(action=FaultAction.DROP, packets="ack", nth=1)
    left = faulty(fault)
    left.add_queue_pair(make_queue_pair(0x11, 0x12))
    pair = Pair(
        left,
        make_queue_pair(0x12, 0x11),
        encoders=encoders() if as_bytes else None,
    )
    pair.post(0, 100)
    pair.run()

    assert_delivered(pair, [100])
    assert left.queue_pair(0x11).statistics().retransmitted_for_timeout == 1
    assert pair.right.port.queue_pair(0x12).statistics().duplicates == 1


@both_ways
@everywhere
def test_marks_are_per_packet_and_answered(as_bytes: bool, at_send: bool) -> None:
    fault = PacketFault(action=FaultAction.MARK, nth=2, count=3, at_send=at_send)
    pair = joined(fault, as_bytes=as_bytes)
    pair.post(0, 10 * MTU)
    pair.run()

    assert_delivered(pair, [10 * MTU])
    receiver = pair.right.port.queue_pair(0x12).statistics()
    assert receiver.ce == 3
    assert pair.left.port.queue_pair(0x11).statistics().cnps_received >= 1
    assert injected(pair) == {"mark": 3}


@both_ways
def test_receiver_is_not_ready_by_a_rule(as_bytes: bool) -> None:
    fault = PacketFault(action=FaultAction.NOT_READY, packets="last", nth=1, count=2)
    pair = joined(fault, as_bytes=as_bytes, rnr_timer=14)
    pair.post(0, 4 * MTU)
    pair.post(1, 10)
    pair.run()

    assert_delivered(pair, [4 * MTU, 10])
    sender = pair.left.port.queue_pair(0x11).statistics()
    assert sender.receiver_not_ready == 2
    assert sender.retransmitted_for_rnr == sender.packets_retransmitted == 4
    assert injected(pair) == {"not_ready": 2}
    first, _ = pair.left.events_of(0x11)
    assert isinstance(first, SendCompleted)
    assert first.last_acked_ns > 2 * 1_280_000  # code 14, twice


def test_faults_apply_once_to_a_refused_burst() -> None:
    port = faulty(
        PacketFault(action=FaultAction.DROP, packets="only", nth=2, at_send=True)
    )
    port.add_queue_pair(make_queue_pair(0x11, 0x12))
    for number in range(3):
        port.post_send(0x11, number, 10, 0)
    for _ in range(5):
        first = port.peek_burst(0)
        assert first is not None
        assert first.message_id == 0
    port.commit_burst(first, 0)
    second = port.peek_burst(0)
    assert second is not None
    assert second.message_id == 2
    assert port.statistics().faults_dropped == 1


def test_faults_apply_once_when_an_answer_overtakes() -> None:
    port = faulty(
        PacketFault(action=FaultAction.DROP, packets="data", nth=2, at_send=True)
    )
    port.add_queue_pair(make_queue_pair(0x11, 0x12))
    port.post_send(0x11, 0, 10, 0)
    refused = port.peek_burst(0)
    # While the socket is full, more is posted, and an ACK becomes due.
    port.post_send(0x11, 1, 10, 0)
    peer = faulty()
    peer.add_queue_pair(make_queue_pair(0x12, 0x11))
    peer.post_send(0x12, 7, 10, 0)
    request = peer.next_burst(0)
    assert request is not None
    port.receive_burst(request, 0)

    left = []
    while (burst := port.next_burst(1)) is not None:
        left.append(burst)
    # The first one passes and the second one is dropped, whatever leaves when.
    assert refused is left[0]
    assert [BurstKind(burst.kind) for burst in left] == [BurstKind.DATA, BurstKind.ACK]
    assert port.statistics().faults_dropped == 1


def test_socket_delay_is_not_charged_to_the_data_plane() -> None:
    port = faulty(
        PacketFault(action=FaultAction.DROP, nth=10**6, at_send=True),
        rate_bps=10**9,
        burst_bound_ns=15_000,
        max_burst_packets=4,
    )
    port.add_queue_pair(make_queue_pair(0x11, 0x12, window_bytes=10**6))
    port.post_send(0x11, 1, 64 * MTU, 0)
    now_ns, left = 0, 0
    while left < 12:
        now_ns = max(now_ns, port.next_wakeup_ns())
        burst = port.peek_burst(now_ns)
        assert burst is not None
        if left == 5:
            # It has none for five milliseconds.
            for _ in range(100):
                now_ns += 50_000
                assert port.peek_burst(now_ns) is burst
        port.commit_burst(burst, now_ns)
        left += 1

    assert port.statistics().generator_wait_ns == 0


def test_rest_of_a_burst_waits_for_the_socket() -> None:
    port = faulty(
        PacketFault(action=FaultAction.DROP, packets="middle", nth=2, at_send=True)
    )
    port.add_queue_pair(make_queue_pair(0x11, 0x12, window_bytes=10**6))
    port.post_send(0x11, 1, 8 * MTU, 0)
    left: list[tuple[int, int]] = []
    while (burst := port.peek_burst(0)) is not None:
        assert port.next_wakeup_ns() <= 0
        assert port.peek_burst(0) is not None
        burst = port.peek_burst(0)
        assert burst is not None
        port.commit_burst(burst, 0)
        left.append((burst.packet_index, burst.count))

    assert left == [(0, 2), (3, 4), (7, 1)]


@given(
    sizes=st.lists(st.integers(0, 9_000), min_size=1, max_size=5),
    seed=st.integers(0, 999),
    as_bytes=st.booleans(),
)
def test_every_message_arrives_once_with_any_fault(
    sizes: list[int], seed: int, as_bytes: bool
) -> None:
    faults = [
        PacketFault(
            action=action,
            packets="any",
            probability=0.08,
            at_send=at_send,
            delay_ns=30_000,
            behind=2,
        )
        for action in FaultAction
        for at_send in (False, True)
        if not at_send or action is not FaultAction.NOT_READY
        # The ICRC of bytes is not checked here.
        if not as_bytes or action is not FaultAction.CORRUPT
    ]
    ports = []
    for mine, other in ((0x11, 0x12), (0x12, 0x11)):
        port = faulty(*faults, seed=seed)
        port.add_queue_pair(make_queue_pair(mine, other, retry_limit=10**6))
        ports.append(port)
    pair = Pair(*ports, encoders=encoders() if as_bytes else None)
    for number, size in enumerate(sizes):
        pair.post(number, size)
    pair.run()

    assert_delivered(pair, sizes)
    received = sum(port.statistics().packets_received for port in ports)
    sent = sum(port.statistics().packets_sent for port in ports)
    at_send = {
        name: sum(
            getattr(side.port.statistics(), f"faults_{name}")
            for side in (pair.left, pair.right)
        )
        for name in ("dropped", "duplicated")
    }
    # Nothing is lost without being counted.
    assert sent - at_send["dropped"] <= received
    assert received <= sent + at_send["duplicated"]


@both_ways
@everywhere
def test_each_rule_counts_its_own_hits(as_bytes: bool, at_send: bool) -> None:
    rules = [
        PacketFault(action=FaultAction.DROP, nth=2, at_send=at_send),
        # The first of those that hit a packet counts: this one never comes to it.
        PacketFault(action=FaultAction.DELAY, nth=2, at_send=at_send),
        PacketFault(action=FaultAction.DUPLICATE, nth=4, count=2, at_send=at_send),
        PacketFault(action=FaultAction.DROP, nth=10**6, at_send=at_send),
    ]
    pair = joined(*rules, as_bytes=as_bytes)
    pair.post(0, 10 * MTU)
    pair.run()

    assert_delivered(pair, [10 * MTU])
    side = pair.left if at_send else pair.right
    assert side.port.faults_disturbed() == {0: 1, 1: 0, 2: 2, 3: 0}


@everywhere
@pytest.mark.parametrize("part", ["any", "header", "payload"])
def test_a_corrupted_burst_is_a_packet_with_a_wrong_icrc(
    at_send: bool, part: str
) -> None:
    """A simulation has no bytes; what a bit does to them is known."""
    fault = PacketFault(
        action=FaultAction.CORRUPT, packets="data", nth=2, part=part, at_send=at_send
    )
    pair = joined(fault, as_bytes=False)
    pair.left.port.post_send(0x11, 1, 5 * MTU, 0)
    pair.run()

    left, right = (side.port.statistics() for side in (pair.left, pair.right))
    assert left.faults_corrupted + right.faults_corrupted == 1
    assert (right.icrc_errors, right.verified) == (1, 1)
    received = pair.right.port.queue_pair(0x12).statistics()
    assert (received.messages_received, received.naks_sent) == (1, 1)


def test_flipped_bits_are_in_the_named_part() -> None:
    port = faulty()
    port.add_queue_pair(make_queue_pair(0x11, 0x12, window_bytes=10**6))
    port.post_send(0x11, 1, 2 * MTU + 5, 0)
    encoder, _ = encoders()
    for burst in iter(lambda: port.next_burst(0), None):
        data = bytes(encoder.encode(burst)[0])
        start = 0
        for position in range(burst.count):
            size = burst.packet_wire_bytes(position) - 42
            headers = size - 4 - (burst.packet_payload_bytes(position) + 3) // 4 * 4
            expected = {
                "any": range(8 * size),
                "header": range(8 * headers),
                "payload": range(8 * headers, 8 * (size - 4)),
            }
            for part, bits in expected.items():
                assert bits_of_burst(burst, position, part) == bits
                assert bits_of_datagram(data, start, size, part) == bits
            start += size
    ack = bytes.fromhex("1140ffff0000001200000000") + bytes(8)
    for part in ("header", "payload"):
        assert bits_of_datagram(ack, 0, len(ack), part) == range(8 * 16)
    assert bits_of_datagram(b"?", 0, 1, "payload") == range(8)


@pytest.mark.parametrize("bit", [0, 1, 7, 8, 13, 31])
def test_one_bit_is_flipped_and_back(bit: int) -> None:
    data = bytearray(4)
    flip_bit(data, bit)
    assert int.from_bytes(data, "little") == 1 << bit
    flip_bit(data, bit)
    assert data == bytes(4)
