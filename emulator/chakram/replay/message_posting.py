# cython: language_level=3, annotation_typing=False
"""What a rank sends: messages that may leave, what released them, and their flows.

A message is posted when its operation is ready or, where it passes on what came, when
the last message arrives that it needs.  Where there are credits, it is held until its
receiver grants it (``chakram.replay.credits``).  Between its post and its
acknowledgement it is a flow, which remembers what released it and when.
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
    from chakram.replay.queue_pair_roles import Pair
    from chakram.replay.rank_progress import ActiveOperation
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
    """The messages of one rank, from their release to their acknowledgement.

    Args:
        number: Of the rank in the plan.
        credits: Towards its peers; None: messages need none.
        rows: Where rows of finished flows go.
    """

    __slots__ = ("_credits", "_number", "_posts", "_rows")

    def __init__(self, number: int, credits: Credits | None, rows: RowWriter) -> None:
        self._number = number
        self._credits = credits
        self._rows = rows
        # Flows.
        self._posts = Fifo()

    # What releases messages.

    def begin(self, active: ActiveOperation) -> None:
        """Post the messages of an operation that need nothing but its start."""
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
        """Post what a message releases that an operation has received."""
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
                # It was there first: not the message holds up the send, but the rank.
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
        """Let the next message go that waited for the peer of a queue pair.

        False: the queue pair carries no grants.
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
            active.posted[flow.send] = 1
            self._posts.append(flow)
        return True

    # What becomes of them.

    def next_post(self) -> Flow | None:
        """Return the next message to post, or None."""
        return self._posts.take() if self._posts.count > 0 else None

    def acknowledged(
        self, flow: Flow, event: SendCompleted, iteration: int, recorded_qpn: int = 0
    ) -> ActiveOperation | None:
        """Record the flow of a message that arrived; return the operation it is of.

        The record names *recorded_qpn*, unless that is 0.
        None: the message was a grant.
        """
        active = flow.active
        if active is None:
            return None
        active.posted[flow.send] = 0
        # From ready to posted nothing but the generator stands in the way.
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

    # What it answers.

    def waiting_for(self) -> list[str]:
        """Return for each peer how many messages it has not granted, as a clause."""
        return self._credits.waiting_for() if self._credits is not None else []

    def _post_own(self, active: ActiveOperation, send: int) -> None:
        """Post a message that could leave as soon as its operation was ready."""
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
        # Not by arguments: in compiled code these would become objects on the way.
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
            active.posted[send] = 1
            self._posts.append(flow)
