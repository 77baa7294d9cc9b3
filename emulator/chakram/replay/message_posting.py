# cython: language_level=3, annotation_typing=False
"""Posts the messages of a rank and records their flows.

A message is posted when its operation is ready. A message that forwards data is posted
when the last message that it needs has arrived. With receiver credits, a message may
have to wait for a grant from the receiver (``chakram.replay.credits``). A `Flow`
represents a message until its acknowledgment, with the cause and time of its release.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chakram.records.row_layout import (
    CAUSE_GRANT,
    CAUSE_MESSAGE,
    CAUSE_OPERATION,
    CAUSE_START,
    END_ACKNOWLEDGED,
)
from chakram.replay.rank_progress import Flow
from chakram.replay.readiness import NOTHING
from chakram.roce.fifo import Fifo

if TYPE_CHECKING:
    from chakram.replay.credits import Credits
    from chakram.replay.rank_progress import ActiveOperation
    from chakram.replay.rank_queue_pair import Pair
    from chakram.replay.row_writer import RowWriter
    from chakram.roce.events import SendCompleted

__all__ = ["Posts"]

_NOTHING = NOTHING
_CAUSE_GRANT = CAUSE_GRANT
_CAUSE_MESSAGE = CAUSE_MESSAGE
_CAUSE_OPERATION = CAUSE_OPERATION
_CAUSE_START = CAUSE_START
_END_ACKNOWLEDGED = END_ACKNOWLEDGED


class Posts:
    """The messages of one rank, from their release to their acknowledgment.

    Args:
        number: Number of the rank in the plan.
        credits: Credits of the rank; None: messages need no credits.
        rows: Destination of the rows of finished flows.
    """

    __slots__ = ("_credits", "_number", "_posts", "_rows")

    def __init__(self, number: int, credits: Credits | None, rows: RowWriter) -> None:
        self._number = number
        self._credits = credits
        self._rows = rows
        # Flows to post.
        self._posts = Fifo()

    # Releases.

    def begin(self, active: ActiveOperation) -> None:
        """Post the messages of an operation that need no arrival."""
        for send in active.expansion.first_sends:
            self._post_own(active, send)

    def arrived(
        self,
        active: ActiveOperation,
        receive: int,
        pair: Pair,
        immediate: int,
        received_ns: int,
    ) -> None:
        """Post the messages that a received message releases."""
        if self._credits is not None:
            grant = self._credits.grant(pair.qpn)
            if grant is not None:
                self._posts.append(grant)
        expansion = active.expansion
        channel = expansion.receive_channels[receive]
        missing = active.missing_needs
        for send in expansion.dependents[receive]:
            missing[send] -= 1
            if missing[send]:
                continue
            if received_ns < active.ready_ns:
                # The message arrived before the operation was ready, so the rank
                # delayed the send.
                self._post_own(active, send)
            else:
                self._post(
                    active,
                    send,
                    received_ns,
                    _CAUSE_MESSAGE,
                    expansion.receive_peers[receive],
                    channel << 32 | immediate,
                )

    def take_grant(self, pair: Pair, granted_ns: int) -> bool:
        """Handle a grant: post the next message that waited for the peer.

        Return False if the queue pair does not carry grants.
        """
        if self._credits is None or not self._credits.is_grant(pair.qpn):
            return False
        flow = self._credits.granted(pair.qpn)
        if flow is not None and flow.active is not None:
            active = flow.active
            if granted_ns > flow.ready_ns:
                flow.ready_ns = granted_ns
                flow.cause_kind = _CAUSE_GRANT
                flow.cause_rank = active.expansion.send_peers[flow.send]
                flow.cause_number = 0
            active.marks[active.first_send + flow.send] = 1
            self._posts.append(flow)
        return True

    # Posts and acknowledgments.

    def next_post(self) -> Flow | None:
        """Return the next message to post, or None."""
        return self._posts.take() if self._posts.count > 0 else None

    def acknowledged(
        self, flow: Flow, event: SendCompleted, iteration: int, recorded_qpn: int = 0
    ) -> ActiveOperation | None:
        """Record the flow of an acknowledged message and return its operation.

        The record contains *recorded_qpn* unless that is 0. Return None if the message
        was a grant.
        """
        active = flow.active
        if active is None:
            return None
        active.marks[active.first_send + flow.send] = 0
        # Between its release and its posting, a message waits only for the generator.
        wait_ns = event.generator_wait_ns
        if event.posted_ns > flow.ready_ns:
            wait_ns += event.posted_ns - flow.ready_ns
        self._rows.flow(
            iteration, recorded_qpn or flow.pair.qpn, active, flow, event, wait_ns
        )
        active.generator_wait_ns += wait_ns
        active.retransmitted += event.retransmitted
        active.sent_bytes += event.size_bytes
        expansion = active.expansion
        channel = expansion.send_channels[flow.send]
        active.note_end(
            _END_ACKNOWLEDGED,
            expansion.send_peers[flow.send],
            channel << 32 | event.message_id,
            event.last_acked_ns,
        )
        active.messages_left -= 1
        return active

    # Status.

    def waiting_for(self) -> list[str]:
        """Describe how many messages wait for a grant, in one clause per peer."""
        return self._credits.waiting_for() if self._credits is not None else []

    def _post_own(self, active: ActiveOperation, send: int) -> None:
        """Post a message that is released by the start of its operation."""
        if active.released_by == _NOTHING:
            self._post(active, send, active.ready_ns, _CAUSE_START, self._number, 0)
        else:
            self._post(
                active,
                send,
                active.ready_ns,
                _CAUSE_OPERATION,
                self._number,
                active.released_by,
            )

    def _post(
        self,
        active: ActiveOperation,
        send: int,
        ready_ns: int,
        cause_kind: int,
        cause_rank: int,
        cause_number: int,
    ) -> None:
        expansion = active.expansion
        # Set fields directly. Compiled code would convert arguments to Python objects.
        flow = Flow.__new__(Flow)
        flow.pair = expansion.send_pairs[send]
        flow.immediate = active.first_immediate + expansion.send_messages[send]
        flow.size_bytes = expansion.send_sizes[send]
        flow.order = active.first_order + expansion.send_steps[send]
        flow.active = active
        flow.send = send
        flow.ready_ns = ready_ns
        flow.cause_kind = cause_kind
        flow.cause_rank = cause_rank
        flow.cause_number = cause_number
        if self._credits is None or not self._credits.holds(flow):
            active.marks[active.first_send + send] = 1
            self._posts.append(flow)
