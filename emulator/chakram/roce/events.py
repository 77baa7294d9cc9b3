# cython: annotation_typing=False, language_level=3
"""What a queue pair reports: completions, receptions, its own failure.

These are plain classes because they are made once per message in compiled code; they
are not changed after that.
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
    """Where the time of a message went: disjoint parts, in ns.

    Those until its last packet left the queue pair for the first time are the
    requester's: it keeps clocks of its states, and a message holds what they showed
    when it was posted, and then the differences.  What happened to the packet that made
    the message complete is known in virtual time alone: there it is noted by the one
    who brings packets, and the receiver.

    Attributes:
        own_port_ns: The port sent other messages, of other queue pairs or before it.
        window_ns: The window of its queue pair was full.
        pace_ns: Congestion control held it back.
        pause_ns: Its own port was paused.
        transfer_ns: The port sent earlier packets of the message.
        repair_ns: Packets were sent again, or waited for: of its queue pair before its
            last one left, then of itself.
        left_ns: When its last packet left the queue pair for the first time.
        sent_ns: When the packet that completed it did.
        departed_ns: When that began to leave its host; where that is not known, when
            the last packet last left the queue pair.
        received_ns: When it was complete at its receiver.
        queue_ns: In the queues of switches, ...
        switch_pause_ns: ... because the port was paused.
        serialise_ns: On the wires of all links, without their length.
        queue_port: Port where it was longest in a queue, by its number there.
        pause_port: Likewise, of pauses.
        slow_ns: Of *serialise_ns*, what links took that had lost a part of their rate.
        slow_port: The port of the last such one.
        host_pause_ns: How long its host's port was paused after it left the queue pair.
        host_own_ns: What packets of the message before it, that left the queue pair
            with it, took of its host's port.
    """

    __slots__ = (
        "departed_ns",
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
        """Know nothing."""
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

    def conclude(self) -> None:
        """Divide what lies between the two times that the last packet left."""
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
    """A message that was posted here has been acknowledged to its last byte.

    Attributes:
        owner: Of its queue pair: see `QueuePair.belong_to`.
        context: As posted.
        message_id: As posted.
        size_bytes: As posted.
        posted_ns: When it was posted.
        first_sent_ns: When its first packet left for the first time.
        last_acked_ns: When the ACK that covers its last packet came.
        packets: How many it has, not counting retransmissions.
        retransmitted: How many packets were sent again.
        cnps: CNPs that the queue pair got between first packet and completion.
        rate_at_start_bps: What congestion control allowed then; None: no limit.
        generator_wait_ns: How long its due packets waited for the data plane
            (`PortEngine` says what counts).
        parts: Where its time went; None: nobody knows.
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
    """A message of the peer is complete.

    WRITEs without immediate that came before it on its queue pair are part of it.

    Attributes:
        owner: Of its queue pair: see `QueuePair.belong_to`.
        message_id: Its immediate data; None for a SEND without.
        size_bytes: Its payload.
        packets: How many it had.
        ce: How many of them were marked "congestion experienced", counting only those
            that were accepted.
        wrong: How many of them had another payload than they should have had, of those
            that were looked at.
        first_received_ns: When its first packet came.
        received_ns: When its last packet came.
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
    """The queue pair is in the error state: it sends and accepts nothing any more.

    Attributes:
        owner: Of the queue pair: see `QueuePair.belong_to`.
        reason: What happened, as a clause.
        flushed: Messages posted here that will never complete.
        failed_ns: When.
        retried_for: The last of so many retries was for it, a FOR_* of
            ``chakram.roce.retries``; None: it failed for something else.
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
