"""Ports with queue pairs for tests, and what their peers would answer."""

from __future__ import annotations

from typing import Any

from chakram.roce.burst import Burst
from chakram.roce.port import PortEngine
from tests.virtual_wire import make_queue_pair

__all__ = ["GIGABIT", "MIDDLE_NS", "MTU", "ack_of", "drained", "make_port", "nak_of"]

MTU = 1024
# A MIDDLE of 1024 bytes has 1082 on the wire: 8656 ns at 1 Gbit/s.
MIDDLE_NS = (MTU + 58) * 8
GIGABIT = 10**9


def make_port(
    *, qpns: tuple[int, ...] = (1,), settings: dict[str, Any] | None = None, **port: Any
) -> PortEngine:
    """Return a port without a rate whose queue pairs have the peers 100 + QPN."""
    defaults: dict[str, Any] = {
        "rate_bps": None,
        "burst_bound_ns": 0,
        "max_burst_packets": 1,
    }
    engine = PortEngine(**(defaults | port))
    for qpn in qpns:
        engine.add_queue_pair(
            make_queue_pair(
                qpn,
                100 + qpn,
                **(
                    {"window_bytes": 10**9, "ack_interval_packets": 99}
                    | (settings or {})
                ),
            )
        )
    return engine


def drained(port: PortEngine, now_ns: int = 0) -> list[Burst]:
    """Return all that may leave now."""
    return list(iter(lambda: port.next_burst(now_ns), None))


def ack_of(psn: int, qpn: int = 1) -> Burst:
    """Return an ACK from the peer of queue pair *qpn*."""
    peer = make_queue_pair(100 + qpn, qpn, receive_psn=psn)
    peer.arrivals.receive_run(psn, 1, 0, True, True, 1, 1, 1, True, 0, 0)
    burst = peer.next_burst(0, 1)
    assert burst is not None
    return burst


def nak_of(psn: int, code: int) -> Burst:
    """Return a NAK from the peer of queue pair 1."""
    peer = make_queue_pair(101, 1, receive_psn=psn)
    peer.arrivals.receive_run(psn, 1, 0, False, True, 1, 1, 1, True, 0, 0)
    burst = peer.next_burst(0, 1)
    assert burst is not None
    assert burst.syndrome == code
    return burst
