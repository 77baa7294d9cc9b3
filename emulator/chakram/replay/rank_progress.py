# cython: language_level=3, annotation_typing=False
"""Progress of a rank: active operations, messages in flight, and use of time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chakram.records.row_layout import END_START, UNKNOWN
from chakram.replay.readiness import NOTHING

if TYPE_CHECKING:
    from chakram.replay.expansion import Expansion
    from chakram.replay.rank_queue_pair import Pair

__all__ = ["ActiveOperation", "Activity", "Flow"]

_END_START = END_START
_UNKNOWN = UNKNOWN
_NO_MARK = bytearray(1)


class ActiveOperation:
    """A collective or a point-to-point operation that has started and not ended.

    Attributes:
        index: Index of the operation in the program.
        key: Key that matches arriving messages to the operation.
        first_immediate: Immediate data of message number 0.
        first_order: Send order of messages in the first step.
        expansion: Messages of the operation.
        missing_needs: Number of arrivals that each send still waits for.
        marks: Whether each receive has arrived, then whether each send is posted and
            not acknowledged.
        first_send: Index in *marks* of the first send.
        messages_left: Number of sends not acknowledged plus receives not arrived.
        ready_ns: Time when the dependencies were done.
        released_by: Index of the dependency that was done last; ``NOTHING``: the start
            of the iteration, or the recorded start time.
        start_ns: Time when the rank started the operation.
        end_ns: Time of the latest event so far.
        end_kind: Kind of the latest event, an ``END_*`` number of
            ``chakram.records.row_layout``.
        end_rank: If the latest event is a message, number of the rank at the other end.
        end_number: If the latest event is a message, the message number.
        is_counted: Whether the time of the operation counts as communication.
        slip_ns: Delay of the actual start relative to the recorded start.
    """

    __slots__ = (
        "ce",
        "end_kind",
        "end_ns",
        "end_number",
        "end_rank",
        "expansion",
        "first_immediate",
        "first_order",
        "first_send",
        "generator_wait_ns",
        "index",
        "is_counted",
        "key",
        "marks",
        "messages_left",
        "missing_needs",
        "ready_ns",
        "received_bytes",
        "released_by",
        "retransmitted",
        "sent_bytes",
        "slip_ns",
        "start_ns",
        "wrong",
    )

    def begin(
        self,
        index: int,
        key: int,
        first_immediate: int,
        first_order: int,
        expansion: Expansion,
        ready_ns: int,
        start_ns: int,
        is_counted: bool,
    ) -> None:
        """Start the operation. Its attributes have no values before this call."""
        self.index = index
        self.key = key
        self.first_immediate = first_immediate
        self.first_order = first_order
        self.expansion = expansion
        self.first_send = len(expansion.receive_steps)
        # Without receives, no send waits for an arrival.
        self.missing_needs = expansion.needs
        if self.first_send:
            self.missing_needs = list(expansion.needs)
        self.messages_left = expansion.messages()
        # Compiled code creates a bytearray faster from another bytearray than from a
        # number.
        self.marks = _NO_MARK * self.messages_left
        self.ready_ns = ready_ns
        self.start_ns = start_ns
        self.end_ns = start_ns
        self.end_kind = _END_START
        self.end_rank = _UNKNOWN
        self.end_number = _UNKNOWN
        self.is_counted = is_counted
        self.sent_bytes = 0
        self.received_bytes = 0
        self.generator_wait_ns = 0
        self.retransmitted = 0
        self.ce = 0
        self.wrong = 0
        self.released_by = NOTHING
        self.slip_ns = 0

    def note_end(self, kind: int, rank: int, number: int, time_ns: int) -> None:
        """Record an arrival or acknowledgment that may be the operation's last event.

        If events are simultaneous, arrivals take precedence over acknowledgments, then
        lower ranks, then lower numbers.
        """
        if time_ns < self.end_ns:
            return
        if time_ns == self.end_ns and self.end_kind != _END_START:
            if self.end_kind < kind:
                return
            if self.end_kind == kind and (
                self.end_rank < rank
                or (self.end_rank == rank and self.end_number <= number)
            ):
                return
        self.end_ns = time_ns
        self.end_kind = kind
        self.end_rank = rank
        self.end_number = number


class Flow:
    """A message in flight, with its operation and the cause of its release.

    ``chakram.records.row_layout`` describes the causes.

    Attributes:
        pair: Queue pair that the message uses.
        immediate: Immediate data.
        size_bytes: Size of the payload.
        order: Send order within a process group. Lower values go first. Earlier
            collectives have lower values, then earlier steps.
        active: Operation of the message; None: the message is a grant.
        send: Index of the send in the operation.
        ready_ns: Time when the message was released.
        cause_kind: Cause of the release, a ``CAUSE_*`` number.
        cause_rank: Rank that sent the message or the grant that is the cause.
        cause_number: Number of the message, or index of the operation.
    """

    __slots__ = (
        "active",
        "cause_kind",
        "cause_number",
        "cause_rank",
        "immediate",
        "order",
        "pair",
        "ready_ns",
        "send",
        "size_bytes",
    )

    def __init__(
        self, pair: Pair, immediate: int, size_bytes: int = 0, order: int = 0
    ) -> None:
        self.pair = pair
        self.immediate = immediate
        self.size_bytes = size_bytes
        self.order = order
        self.active: ActiveOperation | None = None
        self.send = 0
        self.ready_ns = 0
        self.cause_kind = 0
        self.cause_rank = 0
        self.cause_number = 0


class Activity:
    """Time that a rank computes, communicates, does both or neither in an iteration.

    Attributes:
        compute_ns: Time with at least one compute operation.
        communication_ns: Time with at least one collective or message in flight.
            Barriers do not count: a rank that waits at a barrier is idle.
        exposed_ns: Time with communication but no computation.
        idle_ns: Time without computation or communication.
    """

    __slots__ = (
        "_communicating",
        "_computing",
        "_since_ns",
        "communication_ns",
        "compute_ns",
        "exposed_ns",
        "idle_ns",
    )

    def __init__(self) -> None:
        self._computing = 0
        self._communicating = 0
        self.begin(0)

    def begin(self, now_ns: int) -> None:
        """Reset the times at the start of an iteration."""
        self._since_ns = now_ns
        self.compute_ns = 0
        self.communication_ns = 0
        self.exposed_ns = 0
        self.idle_ns = 0

    def is_communicating(self) -> bool:
        """Return whether a collective or message is in flight."""
        return self._communicating > 0

    def change(self, computing: int, communicating: int, now_ns: int) -> None:
        """Change the numbers of active operations by the given differences.

        If *now_ns* is before the last change, the time of that change is used, because
        earlier intervals are already accounted for.
        """
        elapsed_ns = now_ns - self._since_ns
        if elapsed_ns > 0:
            self._since_ns = now_ns
            if self._computing:
                self.compute_ns += elapsed_ns
            if self._communicating:
                self.communication_ns += elapsed_ns
                if not self._computing:
                    self.exposed_ns += elapsed_ns
            elif not self._computing:
                self.idle_ns += elapsed_ns
        self._computing += computing
        self._communicating += communicating
