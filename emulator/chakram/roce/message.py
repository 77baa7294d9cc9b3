# cython: annotation_typing=False, language_level=3
"""What a requester knows of a message."""

from __future__ import annotations

from chakram.roce.events import MessageParts, SendCompleted

__all__ = ["Message"]


class Message(MessageParts):
    """One posted message that is not completely acknowledged.

    It is made without arguments, as these would become objects in compiled code, too.

    Attributes:
        message_id: As posted; as *size_bytes* and *posted_ns*.
        size_bytes: Payload.
        packets: How many packets it has.
        first_sequence: Of its first packet, in the requester's count.
        first_byte: Payload of all messages before it.
        posted_ns: When it was posted.
        first_sent_ns: When its first packet left first; -1: not yet.
        rate_at_start_bps: What congestion control allowed then; 0: no limit.
        retransmitted: Packets sent again.
        generator_wait_ns: How long it waited for the data plane.
        cnps_before: CNPs of the queue pair before its first packet.
        order: Of two messages of queue pairs that share a `SendOrder`, the one with the
            lower order goes first.
        context: What its user knows it by; it comes back with its completion.
        contents: Its payload; None: it does not matter what it carries.
        remote_offset: Where a WRITE goes, from where the queue pair's WRITEs go.
        continues: Whether the message before it is a part of the same larger one.
    """

    __slots__ = (
        "cnps_before",
        "contents",
        "context",
        "continues",
        "first_byte",
        "first_sent_ns",
        "first_sequence",
        "generator_wait_ns",
        "message_id",
        "order",
        "packets",
        "posted_ns",
        "rate_at_start_bps",
        "remote_offset",
        "retransmitted",
        "size_bytes",
    )

    def __init__(self) -> None:
        self.begin()
        self.message_id = 0
        self.size_bytes = 0
        self.packets = 0
        self.first_sequence = 0
        self.first_byte = 0
        self.posted_ns = 0
        self.first_sent_ns = -1
        self.rate_at_start_bps = 0
        self.retransmitted = 0
        self.generator_wait_ns = 0
        self.cnps_before = 0
        self.order = 0
        self.context: object = None
        self.contents: bytes | None = None
        self.remote_offset = 0
        self.continues = False

    def note_sent(self, again: int, now_ns: int, rate_bps: int, cnps: int) -> None:
        """Note that packets leave.

        Args:
            again: How many of them not for the first time.
            now_ns: The time.
            rate_bps: What congestion control allows; 0: no limit.
            cnps: CNPs of the queue pair so far.
        """
        if self.first_sent_ns < 0:
            self.first_sent_ns = now_ns
            self.rate_at_start_bps = rate_bps
            self.cnps_before = cnps
        if again > 0:
            self.retransmitted += again

    def completion(self, now_ns: int, cnps: int) -> SendCompleted:
        """Return the report of the last ACK, which comes now, after *cnps* CNPs."""
        rate_bps = self.rate_at_start_bps
        # Not by arguments: in compiled code these would become objects on the way.
        event = SendCompleted.__new__(SendCompleted)
        event.context = self.context
        event.message_id = self.message_id
        event.size_bytes = self.size_bytes
        event.posted_ns = self.posted_ns
        event.first_sent_ns = self.first_sent_ns
        event.last_acked_ns = now_ns
        event.packets = self.packets
        event.retransmitted = self.retransmitted
        event.cnps = cnps - self.cnps_before
        event.rate_at_start_bps = rate_bps if rate_bps > 0 else None
        event.generator_wait_ns = self.generator_wait_ns
        self.conclude()
        event.parts = self
        return event
