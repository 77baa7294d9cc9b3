"""A law of joined packets: they count like single packets."""

from __future__ import annotations

from dataclasses import asdict
from itertools import groupby
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from chakram.roce.constants import Verb
from chakram.roce.packet_encoder import WireEncoder
from chakram.roce.port import PortEngine
from tests.virtual_wire import make_queue_pair, split

MTU = 256
QPNS = (1, 2)


def port_with(*, sends: bool, verb: Verb) -> PortEngine:
    port = PortEngine(rate_bps=None, burst_bound_ns=0, max_burst_packets=4)
    for qpn in QPNS:
        local, remote = (100 + qpn, qpn) if sends else (qpn, 100 + qpn)
        port.add_queue_pair(
            make_queue_pair(
                local,
                remote,
                path_mtu=MTU,
                verb=verb,
                window_bytes=10**9,
                ack_interval_packets=8,
                cnp_interval_ns=1_000,
            )
        )
    return port


def packets_of(verb: Verb, sizes: list[tuple[int, int]]) -> list[bytes]:
    """Return the packets of messages, each of a queue pair and so many bytes."""
    port = port_with(sends=True, verb=verb)
    for number, (qpn, size_bytes) in enumerate(sizes):
        port.post_send(100 + qpn, number, size_bytes, 0)
    encoder = WireEncoder(local_address="10.0.0.1", path_mtu=MTU, max_burst_packets=4)
    encoder.set_destination(0, "10.0.0.2")
    bursts = iter(lambda: port.next_burst(0), None)
    return [data for burst in bursts for data in split(*encoder.encode(burst))]


def seen_by(port: PortEngine) -> Any:
    """Return events, counters and answers."""
    events = [
        (qpn, event.message_id, event.size_bytes, event.packets, event.ce)
        for qpn, event in iter(port.next_event, None)
    ]
    counters = [port.queue_pair(qpn).statistics() for qpn in QPNS]
    answers = [
        (burst.kind, burst.source_qpn, burst.psn, burst.syndrome, burst.msn)
        for burst in iter(lambda: port.next_burst(0), None)
    ]
    return sorted(events), asdict(port.statistics()), counters, sorted(answers)


@given(
    verb=st.sampled_from(list(Verb)),
    sizes=st.lists(
        st.tuples(st.sampled_from(QPNS), st.integers(0, 9 * MTU)),
        min_size=1,
        max_size=6,
    ),
    # What the network makes of the packets: it loses some, sends some again, from a
    # little behind where it is, and marks some.
    lost=st.sets(st.integers(0, 30), max_size=2),
    again=st.lists(
        st.tuples(st.integers(0, 30), st.integers(0, 3), st.integers(1, 5)), max_size=3
    ),
    marks=st.lists(st.booleans(), min_size=1, max_size=6),
)
# No ACK is requested except for repeated packets, before new ones.
@example(
    verb=Verb.SEND, sizes=[(1, 6 * MTU)], lost={4, 5}, again=[(2, 1, 1)], marks=[False]
)
def test_packets_that_arrive_joined_count_as_those_that_arrive_alone(
    verb: Verb,
    sizes: list[tuple[int, int]],
    lost: set[int],
    again: list[tuple[int, int, int]],
    marks: list[bool],
) -> None:
    sent = packets_of(verb, sizes)
    arriving = [data for place, data in enumerate(sent) if place not in lost]
    for place, behind, count in again:
        first = max(0, place - behind)
        arriving[place:place] = sent[first : first + count]
    # The kernel joins what is alike in size and mark; marks change every few packets.
    marked = [
        (data, marks[place // 4 % len(marks)]) for place, data in enumerate(arriving)
    ]
    joined, alone = (port_with(sends=False, verb=verb) for _ in range(2))
    for (_, ce), group in groupby(marked, key=lambda each: (len(each[0]), each[1])):
        packets = [data for data, _ in group]
        whole = b"".join(packets)
        joined.receive_datagrams(whole, len(whole), len(packets[0]), 0, ce)
        for data in packets:
            alone.receive_datagrams(data, len(data), 0, 0, ce)

    assert seen_by(joined) == seen_by(alone)
