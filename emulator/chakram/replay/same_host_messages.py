"""Messages between ranks of one host that bypass the fabric, as over NVLink.

Each rank sends its messages one after the other at a fixed rate. Both ends get the same
events as for messages through a port.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from chakram.plan.plan import QueuePairPlan
from chakram.replay.rank_progress import Flow
from chakram.roce.events import MessageParts, MessageReceived, SendCompleted

_BITS_PER_BYTE_NS = 8 * 10**9


class LocalEnd(Protocol):
    """The part of an endpoint that messages within its host use."""

    woken: list[Any]

    def expect(self, due_ns: int, qpn: int, event: Any) -> None:
        """Schedule an event of a queue pair for *due_ns*."""


@dataclass(slots=True)
class Lane:
    """The outgoing link of one rank within its host, which is free at ``free_ns``."""

    free_ns: int = 0


@dataclass(slots=True, eq=False)
class LocalLink:
    """One direction of a queue pair within a host."""

    sender: LocalEnd
    receiver: LocalEnd
    pair: QueuePairPlan
    lane: Lane

    def carry(self, flow: Flow, now_ns: int) -> None:
        """Schedule the arrival of a message and its completion at the sender."""
        immediate, size_bytes = flow.immediate, flow.size_bytes
        rate_bps = self.pair.local_rate_bps
        begin_ns = due_ns = now_ns
        if rate_bps:
            begin_ns = max(now_ns, self.lane.free_ns)
            due_ns = begin_ns - (-size_bytes * _BITS_PER_BYTE_NS // rate_bps)
            self.lane.free_ns = due_ns
        self.receiver.expect(
            due_ns,
            self.pair.remote_qpn,
            MessageReceived(immediate, size_bytes, 0, 0, due_ns, due_ns),
        )
        parts = MessageParts()
        parts.own_port_ns = begin_ns - now_ns
        parts.departed_ns, parts.received_ns = begin_ns, due_ns
        parts.queue_ns = parts.switch_pause_ns = parts.slow_ns = 0
        parts.serialise_ns = due_ns - begin_ns
        completed = SendCompleted(
            immediate, size_bytes, now_ns, now_ns, due_ns, 0, 0, 0, None, 0, parts
        )
        completed.context = flow
        self.sender.expect(due_ns, self.pair.qpn, completed)
        if self.receiver is not self.sender:
            self.sender.woken.append(self.receiver)
