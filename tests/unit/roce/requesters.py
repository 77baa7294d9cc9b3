"""Queue pairs whose requester is inspected packet by packet."""

from __future__ import annotations

from typing import Any

from chakram.roce.burst import Burst
from chakram.roce.queue_pair import QueuePair
from tests.virtual_wire import make_queue_pair

__all__ = [
    "FIRST_PSN",
    "MTU",
    "TIMEOUT_NS",
    "ack",
    "events",
    "nak",
    "psn",
    "requester",
    "sent",
]

MTU = 1024
FIRST_PSN = 2**24 - 2
TIMEOUT_NS = 1_000_000


def requester(**settings: Any) -> QueuePair:
    """Return a queue pair whose PSNs wrap after two packets."""
    return make_queue_pair(send_psn=FIRST_PSN, **settings)


def psn(sequence: int) -> int:
    """Return the PSN of a packet, counted from 0."""
    return (FIRST_PSN + sequence) % 2**24


def sent(qp: QueuePair, now_ns: int = 0, max_packets: int = 15) -> list[Burst]:
    """Send everything that may be sent now."""
    return list(iter(lambda: qp.next_burst(now_ns, max_packets), None))


def events(qp: QueuePair) -> list[Any]:
    """Return and remove the events."""
    return list(iter(qp.next_event, None))


def nak(qp: QueuePair, sequence: int, code: int = 0x60, now_ns: int = 0) -> None:
    """Deliver a NAK, by default one that requests a packet."""
    qp.arrivals.receive_ack(code, psn(sequence), now_ns)


def ack(qp: QueuePair, sequence: int, now_ns: int = 0) -> None:
    """Deliver an ACK."""
    qp.arrivals.receive_ack(0x1F, psn(sequence), now_ns)
