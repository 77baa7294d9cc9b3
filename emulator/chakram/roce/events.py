# cython: annotation_typing=False, language_level=3
"""What a queue pair reports: completions, receptions, its own failure.

These are plain classes because they are made once per message in compiled code; they
are not changed after that.
"""

from __future__ import annotations

__all__ = ["Event", "MessageReceived", "QueuePairFailed", "SendCompleted"]


class SendCompleted:
    """A message that was posted here has been acknowledged to its last byte.

    Attributes:
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
    """

    __slots__ = (
        "cnps",
        "first_sent_ns",
        "generator_wait_ns",
        "last_acked_ns",
        "message_id",
        "packets",
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

    def __repr__(self) -> str:
        return (
            f"MessageReceived(message_id={self.message_id}, "
            f"size_bytes={self.size_bytes}, received_ns={self.received_ns})"
        )


class QueuePairFailed:
    """The queue pair is in the error state: it sends and accepts nothing any more.

    Attributes:
        reason: What happened, as a clause.
        flushed: Messages posted here that will never complete.
        failed_ns: When.
        retried_for: The last of so many retries was for it, a FOR_* of
            ``chakram.roce.retries``; None: it failed for something else.
    """

    __slots__ = ("failed_ns", "flushed", "reason", "retried_for")

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

    def __repr__(self) -> str:
        return f"QueuePairFailed(reason={self.reason!r}, flushed={self.flushed})"


Event = SendCompleted | MessageReceived | QueuePairFailed
