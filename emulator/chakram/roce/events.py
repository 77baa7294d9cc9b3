# cython: annotation_typing=False, language_level=3
"""Events of a queue pair: completed sends, received messages, failures.

These are plain classes, because compiled code creates them once per message. Events do
not change after their creation.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "Event",
    "MessageParts",
    "MessageReceived",
    "QueuePairFailed",
    "SendCompleted",
]

_UNKNOWN = -1


class MessageParts:
    """Breakdown of the time of a message into disjoint parts, in ns.

    The requester measures the time until the last packet left the queue pair for the
    first time. It accumulates the total time in each of its states. A message stores
    these totals when it is posted, and later replaces them with the differences.

    The other attributes describe the packet that completed the message. They are known
    only in simulations (virtual time), where the simulator and the receiver record
    them.

    Attributes:
        own_port_ns: Time during which the port sent messages of other queue pairs, or
            earlier messages of the same queue pair.
        window_ns: Time during which the window of the queue pair was full.
        pace_ns: Time during which congestion control delayed the message.
        pause_ns: Time during which the sender's port was paused.
        transfer_ns: Time during which the port sent earlier packets of the message.
        repair_ns: Time for retransmissions, including the wait for them. Until the last
            packet leaves, this time covers the whole queue pair. After that, it covers
            only the message.
        left_ns: When the last packet left the queue pair for the first time.
        sent_ns: When the packet that completed the message left the queue pair. The
            attributes from *queue_ns* on refer to this packet.
        departed_ns: When that packet began to leave its host; if unknown, when the last
            packet left the queue pair for the last time.
        received_ns: When the message was complete at the receiver.
        queue_ns: Time that the packet spent in switch queues, excluding pauses.
        switch_pause_ns: Time that the packet spent in switch queues while the port was
            paused.
        serialise_ns: Serialization delay of the packet on all links, without
            propagation delay.
        queue_port: Number of the switch port where the packet queued longest.
        pause_port: Number of the switch port where pauses delayed the packet longest.
        slow_ns: Part of *serialise_ns* that is due to links with a reduced rate.
        slow_port: Port of the last link with a reduced rate.
        host_pause_ns: How long the port of the host was paused while the packet waited
            there.
        host_own_ns: Part of the packet's wait at the host's port that earlier packets
            of the message would have caused in the absence of other messages.
        host_alone_ns: When the host's port would have sent all packets of the message
            that left the queue pair so far, in the absence of other messages.
    """

    __slots__ = (
        "departed_ns",
        "host_alone_ns",
        "host_own_ns",
        "host_pause_ns",
        "left_ns",
        "own_port_ns",
        "pace_ns",
        "pause_ns",
        "pause_port",
        "queue_ns",
        "queue_port",
        "received_ns",
        "repair_ns",
        "sent_ns",
        "serialise_ns",
        "slow_ns",
        "slow_port",
        "switch_pause_ns",
        "transfer_ns",
        "window_ns",
    )

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Reset all fields."""
        self.own_port_ns = 0
        self.window_ns = 0
        self.pace_ns = 0
        self.pause_ns = 0
        self.transfer_ns = 0
        self.repair_ns = 0
        self.left_ns = _UNKNOWN
        self.sent_ns = _UNKNOWN
        self.departed_ns = _UNKNOWN
        self.received_ns = _UNKNOWN
        self.queue_ns = _UNKNOWN
        self.switch_pause_ns = _UNKNOWN
        self.serialise_ns = _UNKNOWN
        self.queue_port = _UNKNOWN
        self.pause_port = _UNKNOWN
        self.slow_ns = _UNKNOWN
        self.slow_port = _UNKNOWN
        self.host_pause_ns = 0
        self.host_own_ns = 0
        self.host_alone_ns = 0

    def conclude(self) -> None:
        """Add the time from the first to the last departure of the last packet.

        Most of that time counts as repair.
        """
        if self.left_ns < 0:
            return
        if self.received_ns < 0 or self.sent_ns < 0:
            self.repair_ns += self.departed_ns - self.left_ns
            return
        self.repair_ns += self.sent_ns - self.left_ns
        rest_ns = self.departed_ns - self.sent_ns - self.host_pause_ns
        own_ns = self.host_own_ns if self.host_own_ns < rest_ns else rest_ns
        self.pause_ns += self.host_pause_ns
        self.transfer_ns += own_ns
        self.own_port_ns += rest_ns - own_ns


class SendCompleted:
    """Event: a posted message is completely acknowledged.

    Attributes:
        owner: Owner of the queue pair: see `QueuePair.belong_to`.
        context: User object that was posted with the message.
        message_id: Message ID that the user assigned.
        size_bytes: Size of the posted payload.
        posted_ns: When the message was posted.
        first_sent_ns: When the first packet of the message was first sent.
        last_acked_ns: When the ACK that covers the last packet of the message arrived.
        packets: Number of packets, not counting retransmissions.
        retransmitted: Number of retransmitted packets.
        cnps: Number of CNPs that the queue pair received between the first packet and
            completion.
        rate_at_start_bps: Rate that congestion control allowed when the first packet
            left; None: no limit.
        generator_wait_ns: How long packets that were due waited for the data plane (see
            `chakram.roce.pacing`).
        parts: Time breakdown of the message; None: unknown.
    """

    __slots__ = (
        "cnps",
        "context",
        "first_sent_ns",
        "generator_wait_ns",
        "last_acked_ns",
        "message_id",
        "owner",
        "packets",
        "parts",
        "posted_ns",
        "rate_at_start_bps",
        "retransmitted",
        "size_bytes",
    )

    def __init__(
        self,
        message_id: int,
        size_bytes: int,
        posted_ns: int,
        first_sent_ns: int,
        last_acked_ns: int,
        packets: int,
        retransmitted: int,
        cnps: int,
        rate_at_start_bps: int | None,
        generator_wait_ns: int,
        parts: MessageParts | None = None,
    ) -> None:
        self.message_id = message_id
        self.size_bytes = size_bytes
        self.posted_ns = posted_ns
        self.first_sent_ns = first_sent_ns
        self.last_acked_ns = last_acked_ns
        self.packets = packets
        self.retransmitted = retransmitted
        self.cnps = cnps
        self.rate_at_start_bps = rate_at_start_bps
        self.generator_wait_ns = generator_wait_ns
        self.parts = parts
        self.owner: Any = None
        self.context: Any = None

    def __repr__(self) -> str:
        return (
            f"SendCompleted(message_id={self.message_id}, "
            f"size_bytes={self.size_bytes}, posted_ns={self.posted_ns}, "
            f"last_acked_ns={self.last_acked_ns})"
        )


class MessageReceived:
    """Event: a message from the peer is complete.

    The message includes the WRITEs without immediate data that preceded it on the queue
    pair.

    Attributes:
        owner: Owner of the queue pair: see `QueuePair.belong_to`.
        message_id: Immediate data; None: a SEND without immediate data.
        size_bytes: Size of the payload.
        packets: Number of packets.
        ce: Number of accepted packets that were marked "congestion experienced".
        wrong: Number of packets with a wrong payload, among the verified packets.
        first_received_ns: When the first packet of the message arrived.
        received_ns: When the last packet of the message arrived.
    """

    __slots__ = (
        "ce",
        "first_received_ns",
        "message_id",
        "owner",
        "packets",
        "received_ns",
        "size_bytes",
        "wrong",
    )

    def __init__(
        self,
        message_id: int | None,
        size_bytes: int,
        packets: int,
        ce: int,
        first_received_ns: int,
        received_ns: int,
        wrong: int = 0,
    ) -> None:
        self.message_id = message_id
        self.size_bytes = size_bytes
        self.packets = packets
        self.ce = ce
        self.first_received_ns = first_received_ns
        self.received_ns = received_ns
        self.wrong = wrong
        self.owner: Any = None

    def __repr__(self) -> str:
        return (
            f"MessageReceived(message_id={self.message_id}, "
            f"size_bytes={self.size_bytes}, received_ns={self.received_ns})"
        )


class QueuePairFailed:
    """Event: the queue pair is in the error state and no longer sends or receives.

    Attributes:
        owner: Owner of the queue pair: see `QueuePair.belong_to`.
        reason: Cause of the failure, as a clause.
        flushed: Number of messages posted to the queue pair that will never complete.
        failed_ns: When the queue pair failed.
        retried_for: If the retry limit was reached, the reason for the last retry: a
            ``FOR_*`` constant of ``chakram.roce.retries``. None: the failure has
            another cause.
    """

    __slots__ = ("failed_ns", "flushed", "owner", "reason", "retried_for")

    def __init__(
        self,
        reason: str,
        flushed: int,
        failed_ns: int,
        retried_for: int | None = None,
    ) -> None:
        self.reason = reason
        self.flushed = flushed
        self.failed_ns = failed_ns
        self.retried_for = retried_for
        self.owner: Any = None

    def __repr__(self) -> str:
        return f"QueuePairFailed(reason={self.reason!r}, flushed={self.flushed})"


Event = SendCompleted | MessageReceived | QueuePairFailed
