"""The virtual wire."""

from __future__ import annotations

import pytest

from chakram.roce.packet_encoder import WireEncoder
from chakram.roce.port import PortEngine
from tests.virtual_wire import Livelock, Pair, VirtualClock, make_queue_pair


def test_a_clock_never_runs_back() -> None:
    clock = VirtualClock(5)
    clock.advance_to(3)
    assert clock.now_ns == 5
    clock.advance_to(9)
    assert clock.now_ns == 9


def test_nothing_to_do_takes_no_time() -> None:
    pair = Pair(make_queue_pair(), make_queue_pair(0x12, 0x11))
    pair.run()

    assert not pair.step()
    assert pair.now_ns == 0


def test_time_jumps_from_event_to_event() -> None:
    pair = Pair(make_queue_pair(), make_queue_pair(0x12, 0x11), delay_ns=700)
    pair.post(1, 10, qpn=0x11)
    pair.run()

    (completed,) = pair.left.events_of(0x11)
    assert completed.last_acked_ns == 1_400
    assert [each.time_ns for each in pair.left.departures] == [0]
    assert [each.time_ns for each in pair.right.departures] == [700]


def test_endless_work_is_detected() -> None:
    sender = make_queue_pair(retry_limit=10**9)
    pair = Pair(sender, make_queue_pair(0x12, 0x11), drop=lambda: True)
    pair.post(1, 10)
    with pytest.raises(Livelock, match="still busy"):
        pair.run(limit_ns=10**8)
    assert pair.dropped > 50


@pytest.mark.parametrize("as_bytes", [False, True])
def test_marks_arrive(as_bytes: bool) -> None:
    ports = []
    for qpn, remote in ((0x11, 0x12), (0x12, 0x11)):
        port = PortEngine(rate_bps=None, burst_bound_ns=0, max_burst_packets=15)
        port.add_queue_pair(make_queue_pair(qpn, remote, cnp_interval_ns=0))
        ports.append(port)
    encoders = []
    for local, remote in (("198.18.0.1", "198.18.0.2"), ("198.18.0.2", "198.18.0.1")):
        encoder = WireEncoder(local_address=local, path_mtu=1024, max_burst_packets=15)
        encoder.set_destination(0, remote)
        encoders.append(encoder)
    marks = iter([False, False, True, True, False, True])
    pair = Pair(
        *ports,
        ce=lambda: next(marks, False),
        encoders=(encoders[0], encoders[1]) if as_bytes else None,
    )
    pair.post(1, 6 * 1024)
    pair.run()

    (event,) = pair.right.events_of(0x12)
    assert event.ce == 3
    assert ports[0].queue_pair(0x11).statistics().cnps_received > 0
