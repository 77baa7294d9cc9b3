"""Messages between ranks of one host that never meet the fabric, as over NVLink.

They take their bytes at a rate, one after the other from each rank, and arrive; both
ends hear of them as of messages that went through a port.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from chakram.foundation.errors import PlanError
from chakram.roce.events import MessageParts, MessageReceived, SendCompleted

if TYPE_CHECKING:
    from chakram.plan.plan import QueuePairPlan
    from chakram.replay.endpoint import Endpoint
    from chakram.replay.rank_progress import Flow


_BITS_PER_BYTE_NS = 8 * 10**9


@dataclass(slots=True)
class Lane:
    """The way out of one rank within its host; ``free_ns``: when it is free again."""

    free_ns: int = 0


@dataclass(slots=True, eq=False)
class LocalLink:
    """One direction of a queue pair within a host."""

    sender: Endpoint
    receiver: Endpoint
    pair: QueuePairPlan
    lane: Lane

    def carry(self, flow: Flow, now_ns: int) -> None:
        """Bring a message to its receiver, and its sender to know of it."""
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


def connect_local(endpoints: Sequence[Endpoint]) -> None:
    """Connect the queue pairs of hosts among all *endpoints* of a process.

    Raises:
        PlanError: If the other end of one is elsewhere.
    """
    by_port = {endpoint.port.number: endpoint for endpoint in endpoints}
    for endpoint in endpoints:
        for pair in endpoint.local_pairs:
            other = by_port.get(pair.remote_port)
            if other is None:
                raise PlanError(
                    f"plan: port {endpoint.port.number}",
                    f"port {pair.remote_port} of the same host is served elsewhere",
                    "ports of a host with same_host: skip share a shard",
                )
            endpoint.link(pair, other)
