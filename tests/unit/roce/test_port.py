"""A port: its queue pairs and their order."""

from __future__ import annotations

from typing import Any

import pytest

from chakram.roce.burst import Burst
from chakram.roce.constants import BurstKind
from chakram.roce.port import PortEngine
from chakram.roce.send_order import SendOrder
from tests.unit.roce.ports import MTU, drained, make_port, nak_of
from tests.virtual_wire import make_queue_pair


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rate_bps": 0}, "rate of 0 bit/s is not positive"),
        ({"burst_bound_ns": -1}, "burst bound of -1 ns is negative"),
        ({"max_burst_packets": 0}, "0 packets in a burst"),
        ({"max_burst_packets": 129}, "129 packets in a burst"),
    ],
)
def test_settings_out_of_range_are_refused(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        make_port(**settings)


def test_queue_pairs_are_found_by_number() -> None:
    port = make_port(qpns=(3, 1))

    assert port.queue_pair(3).qpn == 3
    assert [each.qpn for each in port.queue_pairs()] == [3, 1]
    with pytest.raises(KeyError):
        port.queue_pair(2)
    with pytest.raises(KeyError):
        port.post_send(2, 0, 0, 0)
    with pytest.raises(ValueError, match="queue pair 3 already exists"):
        port.add_queue_pair(make_queue_pair(3))


def test_earlier_events_move_to_the_port() -> None:
    port = make_port(qpns=())
    queue_pair = make_queue_pair(5)
    queue_pair.arrivals.receive_run(0, 1, 0, True, True, 3, 3, 8, False, 0, 0)
    port.add_queue_pair(queue_pair)

    qpn, event = port.next_event()
    assert (qpn, event.message_id) == (5, 8)
    assert port.next_event() is None


def test_queue_pairs_are_served_round_robin() -> None:
    port = make_port(qpns=(1, 2, 3))
    for qpn in (1, 2, 3):
        port.post_send(qpn, 0, 4 * MTU, 0)
    order = [port.next_burst(0).source_qpn for _ in range(9)]

    # The RETH of the first packets is paid back: their queue pairs are in debt.
    assert sorted(order[:3]) == sorted(order[3:6]) == [1, 2, 3]


def in_one_order(**port: Any) -> PortEngine:
    """Return a port with queue pairs 1 and 2 in one order, and 3 by itself."""
    engine = make_port(qpns=(), **port)
    shared = SendOrder()
    for qpn in (1, 2, 3):
        engine.add_queue_pair(
            make_queue_pair(qpn, 100 + qpn, window_bytes=8 * MTU),
            shared if qpn < 3 else None,
        )
    return engine


def test_earlier_message_of_a_common_order_is_sent_first() -> None:
    port = in_one_order()
    port.post_send(2, 0, 3 * MTU, 0, 7)
    port.post_send(1, 0, 2 * MTU, 0, 6)
    port.post_send(1, 1, 2 * MTU, 0, 8)
    port.post_send(2, 1, 1 * MTU, 0, 8)

    left = [(burst.source_qpn, burst.message_id) for burst in drained(port)]
    assert left[:5] == [(1, 0)] * 2 + [(2, 0)] * 3
    assert sorted(left[5:]) == [(1, 1), (1, 1), (2, 1)]


def test_later_message_is_sent_while_the_earlier_one_is_blocked() -> None:
    port = in_one_order()
    port.post_send(1, 0, 12 * MTU, 0, 1)
    port.post_send(2, 0, 12 * MTU, 0, 2)

    left = [burst.source_qpn for burst in drained(port)]
    assert left == [1] * 8 + [2] * 8  # a window each


def test_common_order_shares_the_port_by_its_active_queue_pairs() -> None:
    port = in_one_order()
    for qpn, order in ((1, 1), (2, 2), (3, 0)):
        port.post_send(qpn, 0, 8 * MTU, 0, order)

    left = [port.next_burst(0).source_qpn for _ in range(14)]
    assert abs(left.count(1) - left.count(3)) <= 1
    assert not left.count(2)


def test_idle_queue_pair_accumulates_no_credit() -> None:
    port = make_port(qpns=(1, 2))
    port.post_send(1, 0, 40 * MTU, 0)
    for _ in range(20):
        port.next_burst(0)
    port.post_send(2, 0, 40 * MTU, 0)
    order = [port.next_burst(0).source_qpn for _ in range(20)]

    assert 9 <= order.count(1) <= 11


def test_a_large_quantum_gives_whole_bursts() -> None:
    port = make_port(qpns=(1, 2), max_burst_packets=4)
    for qpn in (1, 2):
        port.post_send(qpn, 0, 100 * MTU, 0)
    bursts = [port.next_burst(0) for _ in range(10)]

    assert [each.count for each in bursts[4:]] == [4] * 6


def test_only_the_offered_burst_can_be_committed() -> None:
    port = make_port()
    port.post_send(1, 0, 3 * MTU, 0)
    offered = port.peek_burst(0)
    assert offered is not None
    with pytest.raises(ValueError, match="is not the burst that was offered last"):
        port.commit_burst(Burst(), 0)
    port.commit_burst(offered, 0)
    with pytest.raises(ValueError, match="is not the burst that was offered last"):
        port.commit_burst(offered, 0)


def test_queue_pair_with_a_large_deficit_skips_a_turn() -> None:
    port = make_port(qpns=(1, 2), max_burst_packets=2)
    # Two messages leave 8 bytes of the quantum of 2164; the next burst takes 2180.
    for size in (1_004, 996, 2 * MTU):
        port.post_send(1, 0, size, 0)
    port.post_send(1, 0, 99 * MTU, 0)
    port.post_send(2, 0, 99 * MTU, 0)
    order = [port.next_burst(0).source_qpn for _ in range(6)]

    assert order == [1, 1, 1, 2, 2, 1]


def test_a_queue_pair_that_fails_in_the_ring_is_skipped() -> None:
    port = make_port(qpns=(1, 2))
    for qpn in (1, 2):
        port.post_send(qpn, 0, 10 * MTU, 0)
        port.next_burst(0)
    port.receive_burst(nak_of(0, code=0x61), 0)

    assert {each.source_qpn for each in drained(port)} == {2}


@pytest.mark.parametrize(
    ("leads", "size", "order"),
    [
        (False, 10, "AADD"),
        (True, 10, "DADA"),
        (True, 512, "DADA"),
        (True, 513, "AADD"),
    ],
)
def test_short_data_and_responses_alternate_if_short_data_leads(
    leads: bool, size: int, order: str
) -> None:
    port, peer = (
        make_port(qpns=(1, 2, 3)),
        PortEngine(rate_bps=None, burst_bound_ns=0, max_burst_packets=1),
    )
    if leads:
        port.lead_with_short_data()
    for qpn in (1, 2):
        peer.add_queue_pair(make_queue_pair(100 + qpn, qpn))
        peer.post_send(100 + qpn, 0, 10, 0)
        port.receive_burst(peer.next_burst(0), 0)
        port.post_send(3, 0, size, 0)

    kinds = [BurstKind(each.kind).name[0] for each in drained(port)]
    assert "".join(kinds) == order
