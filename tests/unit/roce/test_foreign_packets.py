"""Packets for a queue pair from an address that is not its peer's."""

from __future__ import annotations

import pytest

from chakram.foundation.ip_addresses import address_halves, address_of_halves, is_ipv6
from chakram.plan.packet_faults import FaultAction, PacketFault
from chakram.roce.fault_selection import FaultRule, PacketFaults
from chakram.roce.faulty_port import FaultyPort
from chakram.roce.port import PortEngine
from tests.forged_packets import FORGERIES, Way, sealed
from tests.unit.roce.ports import MTU, drained, make_port
from tests.virtual_wire import make_queue_pair

families = pytest.mark.parametrize(
    ("local", "peer", "stranger"),
    [
        ("198.18.0.1", "198.18.0.2", "198.18.0.3"),
        ("2001:2::1", "2001:2::2", "2001:2::3"),
        # They differ in the first half alone.
        ("2001:2::1", "2001:2::2", "2001:2:0:1::2"),
    ],
)


def bound_port(peer: str) -> PortEngine:
    """Return a port with one queue pair, whose peer is at an address."""
    port = make_port(settings={"cnp_interval_ns": 0})
    port.queue_pair(1).bind_to(*address_halves(peer))
    return port


def arrive(
    port: PortEngine, data: bytes, source: str, source_port: int = 0xC000
) -> None:
    high, low = address_halves(source)
    port.receive_datagrams(data, len(data), 0, 0, True, source_port, high, low)


@families
@pytest.mark.parametrize("name", FORGERIES)
def test_foreign_packets_are_counted_and_ignored(
    local: str, peer: str, stranger: str, name: str
) -> None:
    port = bound_port(peer)
    port.post_send(1, 7, 3 * MTU, 0)
    drained(port)
    before = port.queue_pair(1).statistics()
    for psn in range(4):
        data = sealed(FORGERIES[name](1, psn), Way(stranger, local))
        arrive(port, data, stranger)

    assert port.queue_pair(1).statistics() == before
    assert port.next_event() is None
    assert port.next_burst(0) is None
    statistics = port.statistics()
    assert (statistics.packets_received, statistics.foreign_address) == (4, 4)
    assert statistics.unsupported == 0
    pair = port.queue_pair(1)
    seen = (pair.foreign_high, pair.foreign_low)
    assert (pair.foreign_packets, pair.is_heard) == (4, False)
    assert address_of_halves(*seen, is_ipv6=is_ipv6(stranger)) == stranger


@families
def test_peer_can_send_from_any_port(local: str, peer: str, stranger: str) -> None:
    port = bound_port(peer)
    for psn, source_port in enumerate((0xC000, 49152, 1, 4791)):
        data = sealed(FORGERIES["data"](1, psn), Way(peer, local, source_port))
        arrive(port, data, peer, source_port)

    assert port.queue_pair(1).statistics().messages_received == 4
    assert port.statistics().foreign_address == 0
    assert port.queue_pair(1).is_heard


def test_joined_packets_are_delivered_to_their_queue_pairs() -> None:
    port = make_port(qpns=(1, 2, 3))
    port.queue_pair(1).bind_to(*address_halves("198.18.0.2"))
    port.queue_pair(2).bind_to(*address_halves("198.18.0.9"))
    way = Way("198.18.0.2", "198.18.0.1")
    qpns = (1, 2, 2, 1, 3, 99)
    data = [sealed(FORGERIES["data"](qpn, 0), way) for qpn in qpns]
    joined = b"".join(data)
    high, low = address_halves("198.18.0.2")
    port.receive_datagrams(
        joined, len(joined), len(data[0]), 0, False, 0xC000, high, low
    )

    received = [port.queue_pair(n).statistics().messages_received for n in (1, 2, 3)]
    assert received == [1, 0, 1]
    assert port.queue_pair(1).statistics().duplicates == 1
    assert port.statistics().foreign_address == 2
    assert port.statistics().unknown_queue_pair == 1


def test_faults_ignore_foreign_packets() -> None:
    """Else a stranger's packet would be answered, or the wrong one be lost."""
    rules = [
        FaultRule(PacketFault(action=FaultAction.NOT_READY, packets="any", nth=1)),
        FaultRule(PacketFault(action=FaultAction.DROP, packets="any", nth=2)),
    ]
    port = FaultyPort(
        rate_bps=None,
        burst_bound_ns=0,
        max_burst_packets=1,
        at_receive=PacketFaults(rules, 1),
        at_send=PacketFaults((), 1),
    )
    port.add_queue_pair(make_queue_pair(1, 101))
    port.queue_pair(1).bind_to(*address_halves("198.18.0.2"))
    data = sealed(FORGERIES["data"](1, 0), Way("198.18.0.3", "198.18.0.1"))
    for _ in range(3):
        arrive(port, data, "198.18.0.3")
    assert port.next_burst(0) is None
    assert port.statistics().foreign_address == 3
    assert port.statistics().faults_dropped == port.statistics().faults_not_ready == 0
    arrive(port, data, "198.18.0.2")

    assert port.statistics().faults_not_ready == 1
