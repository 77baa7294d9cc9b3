"""Delivery of messages over any wire."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chakram.roce.constants import Verb
from chakram.roce.events import (
    Event,
    MessageReceived,
    QueuePairFailed,
    SendCompleted,
)
from chakram.roce.packet_encoder import WireEncoder
from chakram.roce.port import PortEngine
from chakram.roce.queue_pair import QueuePair
from tests.strategies import (
    WireFaults,
    first_psns,
    message_sizes,
    path_mtus,
    verbs,
    wire_faults,
)
from tests.virtual_wire import Pair, make_queue_pair

LEFT, RIGHT = "198.18.0.1", "198.18.0.2"
# In these tests no wire is so bad that a requester should give up.
PATIENT = 1_000_000


def encoder(local: str, remote: str, path_mtu: int) -> WireEncoder:
    encoder = WireEncoder(
        local_address=local, path_mtu=path_mtu, max_burst_packets=15, slots=1
    )
    encoder.set_destination(0, remote)
    return encoder


def encoders(path_mtu: int) -> tuple[WireEncoder, WireEncoder]:
    return encoder(LEFT, RIGHT, path_mtu), encoder(RIGHT, LEFT, path_mtu)


def connected(
    *,
    path_mtu: int,
    psn: int,
    verb: Verb,
    window_bytes: int,
    ack_interval: int,
    reordering: int = 0,
) -> tuple[QueuePair, QueuePair]:
    sender = make_queue_pair(
        0x11,
        0x12,
        path_mtu=path_mtu,
        send_psn=psn,
        verb=verb,
        window_bytes=window_bytes,
        ack_interval_packets=ack_interval,
        retry_limit=PATIENT,
        reordering_packets=reordering,
    )
    receiver = make_queue_pair(
        0x12,
        0x11,
        path_mtu=path_mtu,
        receive_psn=psn,
        reordering_packets=reordering,
    )
    return sender, receiver


reorderings = st.sampled_from([0, 1, 2, 5, 16, 64])


def received(events: list[Event]) -> list[tuple[int | None, int]]:
    return [
        (event.message_id, event.size_bytes)
        for event in events
        if isinstance(event, MessageReceived)
    ]


@pytest.mark.parametrize("as_bytes", [False, True])
@given(
    path_mtu=path_mtus,
    psn=first_psns,
    verb=verbs,
    faults=wire_faults,
    window_packets=st.integers(0, 40),
    ack_interval=st.integers(1, 64),
    reordering=reorderings,
    data=st.data(),
)
def test_every_message_arrives_once_and_in_order(
    as_bytes: bool,
    path_mtu: int,
    psn: int,
    verb: Verb,
    faults: WireFaults,
    window_packets: int,
    ack_interval: int,
    reordering: int,
    data: st.DataObject,
) -> None:
    sizes = data.draw(message_sizes(path_mtu))
    sender, receiver = connected(
        reordering=reordering,
        path_mtu=path_mtu,
        psn=psn,
        verb=verb,
        window_bytes=window_packets * path_mtu + 1,
        ack_interval=ack_interval,
    )
    pair = Pair(
        sender,
        receiver,
        drop=faults.drop(),
        duplicate=faults.duplicate(),
        extra_delay_ns=faults.extra_delay_ns(),
        encoders=encoders(path_mtu) if as_bytes else None,
    )
    for number, size in enumerate(sizes):
        pair.post(number, size)
    pair.run()

    expected = list(enumerate(sizes))
    assert received(pair.right.events_of(0x12)) == expected
    completed = pair.left.events_of(0x11)
    assert [(event.message_id, event.size_bytes) for event in completed] == expected
    assert all(isinstance(event, SendCompleted) for event in completed)
    assert sender.unacknowledged_bytes() == 0
    statistics = sender.statistics()
    packets = sum(max(1, -(-size // path_mtu)) for size in sizes)
    assert statistics.packets_sent - statistics.packets_retransmitted == packets
    assert sum(event.packets for event in completed) == packets
    assert sum(event.retransmitted for event in completed) == (
        statistics.packets_retransmitted
    )
    assert receiver.statistics().bytes_received == sum(sizes)
    assert pair.right.port.statistics().malformed == 0


@given(
    path_mtu=path_mtus,
    verb=verbs,
    faults=wire_faults,
    reordering=reorderings,
    data=st.data(),
)
def test_bytes_and_bursts_have_equal_results(
    path_mtu: int,
    verb: Verb,
    faults: WireFaults,
    reordering: int,
    data: st.DataObject,
) -> None:
    sizes = data.draw(message_sizes(path_mtu))
    stories = []
    for as_bytes in (False, True):
        sender, receiver = connected(
            path_mtu=path_mtu,
            psn=2**24 - 3,
            verb=verb,
            window_bytes=20 * path_mtu,
            ack_interval=16,
            reordering=reordering,
        )
        pair = Pair(
            sender,
            receiver,
            drop=faults.drop(),
            duplicate=faults.duplicate(),
            extra_delay_ns=faults.extra_delay_ns(),
            encoders=encoders(path_mtu) if as_bytes else None,
        )
        for number, size in enumerate(sizes):
            pair.post(number, size)
        pair.run()
        stories.append((pair.now_ns, sender.statistics(), receiver.statistics()))

    assert stories[0] == stories[1]


@given(
    sizes=st.lists(st.integers(0, 100_000), min_size=1, max_size=8),
    window_bytes=st.integers(1, 40_000),
    faults=wire_faults,
)
def test_the_window_is_never_exceeded(
    sizes: list[int], window_bytes: int, faults: WireFaults
) -> None:
    sender, receiver = connected(
        path_mtu=1024, psn=7, verb=Verb.WRITE, window_bytes=window_bytes, ack_interval=8
    )
    pair = Pair(sender, receiver, drop=faults.drop(), duplicate=faults.duplicate())
    for number, size in enumerate(sizes):
        pair.post(number, size)
    # One packet is always allowed, or a small window would stop everything.
    allowed = max(window_bytes, 1024)
    while pair.step():
        assert sender.unacknowledged_bytes() <= allowed

    assert received(pair.right.events_of(0x12)) == list(enumerate(sizes))


@given(lost_from=st.integers(0, 30), retry_limit=st.integers(0, 7))
def test_a_dead_wire_ends_in_failure(lost_from: int, retry_limit: int) -> None:
    sender = make_queue_pair(retry_limit=retry_limit, window_bytes=8_192)
    receiver = make_queue_pair(0x12, 0x11)
    packets = iter(range(10**9))
    pair = Pair(sender, receiver, drop=lambda: next(packets) >= lost_from)
    for number in range(3):
        pair.post(number, 20_000)
    pair.run()

    failure = pair.left.events_of(0x11)[-1]
    assert isinstance(failure, QueuePairFailed)
    assert str(retry_limit) in failure.reason
    statistics = sender.statistics()
    assert statistics.timeouts == retry_limit + 1 or statistics.naks_received > 0
    assert statistics.messages_completed + failure.flushed == 3
    assert statistics.failure == failure.reason
    # Nothing is left to be done, and nothing more is taken.
    pair.post(9, 100)
    assert not pair.step()
    assert sender.statistics().messages_flushed == failure.flushed + 1


@given(
    loads=st.lists(
        st.lists(st.integers(1, 60_000), max_size=6), min_size=2, max_size=6
    ),
    faults=wire_faults,
)
def test_queue_pairs_of_one_port_do_not_mix(
    loads: list[list[int]], faults: WireFaults
) -> None:
    ports = [
        PortEngine(rate_bps=10**10, burst_bound_ns=10_000, max_burst_packets=7)
        for _ in range(2)
    ]
    for number in range(len(loads)):
        ports[0].add_queue_pair(
            make_queue_pair(number, 100 + number, retry_limit=PATIENT)
        )
        ports[1].add_queue_pair(
            make_queue_pair(100 + number, number, retry_limit=PATIENT)
        )
    pair = Pair(*ports, drop=faults.drop(), encoders=encoders(1024))
    for qpn, sizes in enumerate(loads):
        for number, size in enumerate(sizes):
            pair.post(number, size, qpn=qpn)
    pair.run()

    for qpn, sizes in enumerate(loads):
        assert received(pair.right.events_of(100 + qpn)) == list(enumerate(sizes))


@given(
    sizes=st.lists(st.integers(0, 30_000), min_size=1, max_size=5),
    back=st.lists(st.integers(0, 30_000), min_size=1, max_size=5),
    faults=wire_faults,
)
def test_both_directions_work_at_once(
    sizes: list[int], back: list[int], faults: WireFaults
) -> None:
    left = make_queue_pair(0x11, 0x12, send_psn=5, receive_psn=9, retry_limit=PATIENT)
    right = make_queue_pair(0x12, 0x11, send_psn=9, receive_psn=5, retry_limit=PATIENT)
    pair = Pair(left, right, drop=faults.drop(), duplicate=faults.duplicate())
    for number, size in enumerate(sizes):
        pair.post(number, size)
    for number, size in enumerate(back):
        pair.right.port.post_send(0x12, number, size, 0)
    pair.run()

    assert received(pair.right.events_of(0x12)) == list(enumerate(sizes))
    assert received(pair.left.events_of(0x11)) == list(enumerate(back))


@given(
    path_mtu=path_mtus,
    psn=first_psns,
    verb=verbs,
    delays=st.lists(st.integers(0, 40_000), max_size=200),
    duplicates=st.lists(st.booleans(), max_size=60),
    data=st.data(),
)
def test_reordering_within_the_window_causes_no_retransmission(
    path_mtu: int,
    psn: int,
    verb: Verb,
    delays: list[int],
    duplicates: list[bool],
    data: st.DataObject,
) -> None:
    sizes = data.draw(message_sizes(path_mtu))
    sender, receiver = connected(
        path_mtu=path_mtu,
        psn=psn,
        verb=verb,
        window_bytes=20 * path_mtu,
        ack_interval=4,
        # Empty messages are packets, too, but no bytes of the window.
        reordering=1000,
    )
    faults = WireFaults(
        drops=(), duplicates=tuple(duplicates), extra_delays_ns=tuple(delays)
    )
    pair = Pair(
        sender,
        receiver,
        duplicate=faults.duplicate(),
        extra_delay_ns=faults.extra_delay_ns(),
    )
    for number, size in enumerate(sizes):
        pair.post(number, size)
    pair.run()

    assert received(pair.right.events_of(0x12)) == list(enumerate(sizes))
    assert sender.statistics().packets_retransmitted == 0
    statistics = receiver.statistics()
    assert statistics.naks_sent == statistics.beyond_window == 0
    assert statistics.packets_received == sender.statistics().packets_sent + (
        statistics.duplicates
    )
