# cython: language_level=3, annotation_typing=False
"""What is under way on a rank: operations, messages, and how its time is spent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chakram.records.row_layout import END_START, UNKNOWN
from chakram.replay.readiness import NOTHING

if TYPE_CHECKING:
    from chakram.replay.expansion import Expansion
    from chakram.replay.queue_pair_roles import Pair

__all__ = ["ActiveOperation", "Activity", "Flow"]

_END_START = END_START
_UNKNOWN = UNKNOWN


class ActiveOperation:
    """A collective or a point-to-point operation that has started and not ended.

    Attributes:
        index: Of the operation in the program.
        key: By which arriving messages find it.
        first_immediate: Immediate data of its message number 0.
        first_order: Order of the messages of its first step.
        expansion: Its messages.
        missing_needs: By send, how many arrivals it still waits for.
        posted: By send, whether it is posted and not acknowledged.
        arrived: By receive, whether it has arrived.
        messages_left: Sends not acknowledged and receives not arrived.
        ready_ns: When its dependencies were done.
        released_by: Which of them it waited for longest, an index; ``NOTHING``: the
            start of the iteration, or its recorded time.
        start_ns: When its rank began with it.
        end_ns: When the last thing happened to it.
        end_kind: What that was, an ``END_*`` number of ``chakram.records.row_layout``.
        end_rank: Of a message, number of the rank at its other end.
        end_number: And which one that is.
        is_counted: Whether its time is time of communication.
        slip_ns: How much later than recorded it started.
    """

    __slots__ = (
        "arrived",
        "ce",
        "end_kind",
        "end_ns",
        "end_number",
        "end_rank",
        "expansion",
        "first_immediate",
        "first_order",
        "generator_wait_ns",
        "index",
        "is_counted",
        "key",
        "messages_left",
        "missing_needs",
        "posted",
        "ready_ns",
        "received_bytes",
        "released_by",
        "retransmitted",
        "sent_bytes",
        "slip_ns",
        "start_ns",
        "wrong",
    )

    def __init__(
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
        self.index = index
        self.key = key
        self.first_immediate = first_immediate
        self.first_order = first_order
        self.expansion = expansion
        self.missing_needs = list(expansion.needs)
        self.posted = bytearray(len(expansion.send_pairs))
        self.arrived = bytearray(len(expansion.receive_steps))
        self.messages_left = expansion.messages()
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
        """Take note of what may be its end: a message that came, or is acknowledged.

        Of two at one time the one that has come is, then that of the lower rank, then
        of the lower number.
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
    """A message on its way: where it goes and belongs, and what released it.

    Attributes:
        pair: The queue pair that it goes by.
        immediate: Its immediate data.
        size_bytes: Its payload.
        order: Of the messages of one process group those of a lower order are to leave
            first: those of the earlier collective, then those of the earlier step.
        active: Its operation; None: it is a grant.
        send: Which of the operation's sends it is.
        ready_ns: When it was released.
        cause_kind: A ``CAUSE_*`` number; see ``chakram.records.row_layout``.
        cause_rank: See there.
        cause_number: See there.
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
    """How a rank spends an iteration: computing, communicating, both or neither.

    Attributes:
        compute_ns: At least one compute operation ran.
        communication_ns: At least one collective or message was under way; barriers do
            not count, for who waits at one is idle.
        exposed_ns: Communication without compute.
        idle_ns: Neither.
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
        """Start to count an iteration."""
        self._since_ns = now_ns
        self.compute_ns = 0
        self.communication_ns = 0
        self.exposed_ns = 0
        self.idle_ns = 0

    def is_communicating(self) -> bool:
        """Tell whether a collective or message is under way."""
        return self._communicating > 0

    def change(self, computing: int, communicating: int, now_ns: int) -> None:
        """Take note that more (or fewer, below 0) operations are under way.

        A time before that of the last change counts as that one: what is over is
        accounted for.
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
