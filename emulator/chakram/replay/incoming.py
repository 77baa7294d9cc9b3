# cython: language_level=3, annotation_typing=False
"""Matches arriving messages to operations by their immediate data.

A queue pair belongs to one (group, channel, peer). In a collective, the immediate data
of a message is ``(k mod 2**16) << 16 | m``. Here k counts the collectives of the group
over all iterations. m counts the messages of the collective from this source to this
destination. Both ends count in the same order (``chakram.collectives.schedule``). The
immediate data of a point-to-point message is its number among all messages from this
source to this destination, modulo 2**32.

A message that arrives before the receiving rank has started the operation is kept until
the operation starts. The numbers distinguish messages that overtake each other. A peer
may be ahead by any number of collectives. A queue pair delivers in order, so the first
of several messages with equal immediate data belongs to the oldest collective.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chakram.program.columns import COLLECTIVE, SEND
from chakram.records.row_layout import END_RECEIVED
from chakram.replay.early_messages import EarlyMessages
from chakram.replay.rank_progress import ActiveOperation

if TYPE_CHECKING:
    from collections.abc import Collection

    from chakram.replay.early_messages import Early
    from chakram.replay.expansion import Expansion
    from chakram.replay.program_tables import ProgramTables
    from chakram.replay.rank_queue_pair import Pair
    from chakram.roce.events import MessageReceived

__all__ = ["NOT_NOW", "IncomingMessages"]

NOT_NOW = -1
"""Index that represents no message of an operation."""

_NOT_NOW = NOT_NOW
_COLLECTIVE, _SEND = COLLECTIVE, SEND
_END_RECEIVED = END_RECEIVED
_IMMEDIATE_MASK = 0xFFFFFFFF

_SEND_KEYS = -(1 << 62)
"""Upper bound of the keys of sends.

Keys of receives are between this bound and 0. Keys of collectives are 0 or higher. No
lookup uses the key of a send, which only has to be unique.
"""

_STEP_BITS = 24
"""Number of bits for the step in a send order. The upper bits hold the collective."""


class IncomingMessages:
    """The active operations of a rank and the messages that arrive for them.

    Args:
        tables: Tables of the rank's program.
    """

    __slots__ = (
        "_active",
        "_collectives",
        "_early",
        "_kinds",
        "_latest",
        "_numbers",
        "_point_to_point",
        "_receives",
        "_sends",
        "_strays",
        "_targets",
    )

    def __init__(self, tables: ProgramTables) -> None:
        self._kinds = tables.kinds
        self._targets = tables.targets
        self._numbers = tables.numbers
        self._point_to_point = tables.point_to_point
        self._collectives = tables.collectives
        self._sends = tables.sends
        self._receives = tables.receives
        # Active operations by key.
        self._active: dict[int, ActiveOperation] = {}
        # Operation of the last message. The next message usually belongs to the same
        # operation.
        self._latest: ActiveOperation | None = None
        self._early = EarlyMessages()
        self._strays = 0

    def begin(
        self,
        index: int,
        iteration: int,
        expansion: Expansion,
        ready_ns: int,
        start_ns: int,
        is_counted: bool,
    ) -> ActiveOperation:
        """Start an operation and return it.

        Args:
            index: Index of the operation in the program.
            iteration: Number of previous executions.
            expansion: Messages of the operation.
            ready_ns: Time when the dependencies were done.
            start_ns: Time when the rank starts the operation.
            is_counted: Whether the time of the operation counts as communication.
        """
        first_order = 0
        kind, number = self._kinds[index], self._numbers[index]
        target = self._targets[index]
        if kind == _COLLECTIVE:
            total = self._collectives[target]
            position = iteration * total + number
            first_order = position << _STEP_BITS
            sequence = position & 0xFFFF
            immediate = sequence << 16
            key = target << 16 | sequence
        elif kind == _SEND:
            total = self._sends[target]
            immediate = (iteration * total + number) & _IMMEDIATE_MASK
            key = _SEND_KEYS - (target << 32 | immediate)
        else:
            total = self._receives[target]
            immediate = (iteration * total + number) & _IMMEDIATE_MASK
            key = -1 - (target << 32 | immediate)
        # Do not pass arguments to the constructor. Compiled code would convert them to
        # Python objects.
        active = ActiveOperation.__new__(ActiveOperation)
        active.begin(
            index,
            key,
            immediate,
            first_order,
            expansion,
            ready_ns,
            start_ns,
            is_counted,
        )
        self._active[key] = active
        return active

    def end(self, active: ActiveOperation) -> None:
        """Remove an operation that has ended."""
        del self._active[active.key]
        self._latest = None

    def find(
        self, pair: Pair, immediate: int, event: MessageReceived
    ) -> ActiveOperation | None:
        """Return the operation that a message belongs to.

        If the operation has not started, keep the message for it and return None.
        """
        if pair.group == self._point_to_point:
            key = -1 - (pair.peer << 32 | immediate)
        else:
            key = pair.group << 16 | immediate >> 16
        active = self._latest
        if active is None or active.key != key:
            active = self._active.get(key)
            if active is None:
                self._early.keep(key, pair, immediate, event)
                return None
            self._latest = active
        return active

    def refuse(self) -> None:
        """Count a message that cannot belong to any operation."""
        self._strays += 1

    def take(
        self,
        active: ActiveOperation,
        pair: Pair,
        immediate: int,
        event: MessageReceived,
    ) -> int:
        """Assign a message to a receive of an active operation.

        Returns:
            Index of the receive, or ``NOT_NOW``. If the operation has no such receive,
            the message counts as stray. If the receive is already done, the message is
            kept for a later operation.
        """
        receive = active.expansion.receive(pair, immediate - active.first_immediate)
        if receive == _NOT_NOW:
            self._strays += 1
            return _NOT_NOW
        if active.marks[receive]:
            # The peer is ahead by 2**16 collectives, after which immediate data repeat.
            self._early.keep(active.key, pair, immediate, event)
            return _NOT_NOW
        active.marks[receive] = 1
        active.messages_left -= 1
        active.received_bytes += event.size_bytes
        active.ce += event.ce
        active.wrong += event.wrong
        expansion = active.expansion
        channel = expansion.receive_channels[receive]
        active.note_end(
            _END_RECEIVED,
            expansion.receive_peers[receive],
            channel << 32 | immediate,
            event.received_ns,
        )
        return receive

    def kept(self, active: ActiveOperation) -> list[Early]:
        """Remove and return the early messages of an operation, in order of arrival."""
        return self._early.take(active.key)

    def under_way(self) -> Collection[ActiveOperation]:
        """Return the active operations, in the order in which they started."""
        return self._active.values()

    def strays(self) -> int:
        """Return how many messages match no operation or exceed `EARLY_LIMIT`."""
        return self._strays + self._early.refused

    def early(self) -> int:
        """Return the number of messages that wait for their operation to start."""
        return self._early.count
