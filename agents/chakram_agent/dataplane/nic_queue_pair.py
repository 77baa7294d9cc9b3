"""A queue pair on an RDMA NIC, with the state that its port keeps for it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from chakram.foundation.errors import PlanError
from chakram.roce.constants import UDP_PORT

if TYPE_CHECKING:
    from chakram.plan.plan import QueuePairPlan
    from chakram.plan.transport import TransportPlan
    from chakram.rdma.libibverbs import QueuePair as DeviceQueuePair
    from chakram.records.counter_definitions import QueuePairStatistics
    from chakram.roce.queue_pair import QueuePair


@dataclass(slots=True, eq=False)
class PostedMessage:
    """A message that is not completely acknowledged."""

    message_id: int
    size_bytes: int
    posted_ns: int
    context: object
    unsent_bytes: int
    number: int
    handed_ns: int = -1
    wait_ns: int = 0


@dataclass(slots=True, eq=False)
class NicQueuePair:
    """A queue pair of the plan, with the device queue pair that carries messages."""

    plan: QueuePairPlan
    owner: object
    planned: QueuePair
    device: DeviceQueuePair
    index: int | None
    """Index among the verified queue pairs. None if the payload is not verified."""
    path_mtu: int
    piece_bytes: int
    slot_bytes: int = 0
    slots: int = 1
    has_nic_peer: bool = False
    has_failed: bool = False
    room: int = 0
    room_ns: int = 0
    """Time since which the send queue has had room."""
    last_context: object = None
    """Context of the last message that was passed to the NIC."""
    started: int = 0
    numbered: int = 0
    """Number of posted messages with immediate data. The receiver counts the same
    messages."""
    pending: deque[PostedMessage] = field(default_factory=deque)
    flying: deque[tuple[PostedMessage, bool]] = field(default_factory=deque)
    """For each posted piece, its message and whether the piece is the last of the
    message."""
    received: int = 0
    received_bytes: int = 0
    """Bytes of the current incoming message that have arrived."""
    consumed: int = 0
    next_slot: int = 0
    """Slot of the next receive that is posted for a SEND."""
    completed: int = 0
    flushed: int = 0
    total_sent_bytes: int = 0
    total_received_bytes: int = 0

    @property
    def qpn(self) -> int:
        """Number of the queue pair in the plan."""
        return self.plan.qpn

    def statistics(self) -> QueuePairStatistics:
        """Return the counters. Packet counters are 0, because the NIC keeps them."""
        return replace(
            self.planned.statistics(),
            bytes_sent=self.total_sent_bytes,
            bytes_received=self.total_received_bytes,
            messages_posted=self.started,
            messages_completed=self.completed,
            messages_received=self.received,
            messages_flushed=self.flushed,
            failure="the NIC reports an error" if self.has_failed else None,
        )


def check_sockets(
    plan: QueuePairPlan, transport: TransportPlan, where: str, slot_bytes: int
) -> None:
    """Check that sockets at the other end of a queue pair can communicate with a NIC.

    Raises:
        PlanError: If a message may be too long, or the NIC would drop all packets.
    """
    peer = f"the socket at {plan.remote_address}"
    if plan.remote_udp_port != UDP_PORT:
        raise PlanError(
            where,
            f"NICs send to UDP port {UDP_PORT}, but {peer} listens on "
            f"{plan.remote_udp_port}",
            "remove udp_port from the fabric, and turn RoCE off where sockets are used",
        )
    if transport.icrc == "off":
        raise PlanError(
            where,
            f"NICs drop packets without an ICRC, as {peer} sends them",
            "remove transport.icrc",
        )
    if transport.verb == "write" and 0 < transport.message_bytes <= slot_bytes:
        return
    raise PlanError(
        where,
        f"{peer} may send messages that do not fit the memory of the NIC",
        f"set verb: write and transport.queue_pairs.message_size: {slot_bytes}",
    )
