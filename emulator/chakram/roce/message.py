# cython: annotation_typing=False, language_level=3
"""A posted message, with the state that the requester keeps for it."""

from __future__ import annotations

from chakram.native.prefetch import prefetch
from chakram.roce.events import MessageParts, SendCompleted

__all__ = ["Message"]


class Message(MessageParts):
    """One posted message that is not completely acknowledged.

    The constructor takes no arguments, because compiled code would convert them to
    Python objects.

    Attributes:
        message_id: Message ID that the user assigned.
        size_bytes: Size of the posted payload.
        packets: Number of packets.
        first_sequence: Sequence number that the requester assigned to the first packet.
        first_byte: Total payload of all earlier messages, in bytes.
        posted_ns: When the message was posted.
        first_sent_ns: When the first packet left for the first time; -1: not yet.
        rate_at_start_bps: Rate that congestion control allowed when the first packet
            left; 0: no limit.
        retransmitted: Number of retransmitted packets.
        generator_wait_ns: How long the message waited for the data plane.
        cnps_before: Number of CNPs of the queue pair before the first packet left.
        order: Position among the messages of queue pairs that share a `SendOrder`.
            Messages with a lower order go first.
        context: User object, returned with the completion.
        contents: Payload bytes; None: the fixed pattern.
        remote_offset: Target offset of a WRITE in the remote memory of the queue pair.
        continues: Whether this message continues the previous one, as a part of the
            same larger message.
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
        """Record that packets of the message leave.

        Args:
            again: Number of retransmissions among these packets.
            now_ns: Time at which the packets leave.
            rate_bps: Rate that congestion control allows; 0: no limit.
            cnps: Number of CNPs of the queue pair so far.
        """
        if self.first_sent_ns < 0:
            self.first_sent_ns = now_ns
            self.rate_at_start_bps = rate_bps
            self.cnps_before = cnps
        if again > 0:
            self.retransmitted += again

    def completion(self, now_ns: int, cnps: int) -> SendCompleted:
        """Return the completion event, with *now_ns* as the time of the last ACK.

        *cnps* counts the CNPs of the queue pair so far.
        """
        rate_bps = self.rate_at_start_bps
        # Set fields directly. Compiled code would convert arguments to Python objects.
        event = SendCompleted.__new__(SendCompleted)
        prefetch(self.context, 2)
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
