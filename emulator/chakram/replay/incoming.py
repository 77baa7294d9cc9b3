# cython: language_level=3, annotation_typing=False
"""Which message is it: what messages are called, and where arriving ones belong.

A queue pair belongs to one (group, channel, peer).  The immediate data of a message of
a collective is ``(k mod 2**16) << 16 | m``: k counts the collectives of the group over
all iterations, m the messages of this collective from this source to this destination
(both ends count alike, see ``chakram.collectives.schedule``).  A point-to-point message
carries its number among all messages from this source to this destination, modulo
2**32.  So a message that comes before its rank has reached the operation is kept until
it does, and two that overtake each other are told apart.  A peer may be ahead by any
number of collectives: of equal immediates on one queue pair, which delivers in order,
the first is the older one's.
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
    from chakram.replay.queue_pair_roles import Pair
    from chakram.roce.events import MessageReceived

__all__ = ["NOT_NOW", "IncomingMessages"]

NOT_NOW = -1
"""Stands for no message of an operation where else the index of one is."""

_NOT_NOW = NOT_NOW
_COLLECTIVE, _SEND = COLLECTIVE, SEND
_END_RECEIVED = END_RECEIVED

_SEND_KEYS = -(1 << 62)
"""Keys of sends are below it, those of receives between it and 0, of collectives above.

No message ever looks for a send; its key only has to be its own.
"""

_STEP_BITS = 24
"""Steps of one collective; the rest of 63 bits counts collectives."""


class IncomingMessages:
    """The operations under way on a rank, and the messages that come for them.

    Args:
        tables: Of the rank's program.
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
        # By key.
        self._active: dict[int, ActiveOperation] = {}
        # The one of the last message: mostly that of the next, too.
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
        """Return an operation that is under way from now on.

        Args:
            index: Of the operation in the program.
            iteration: How often it has been carried out before.
            expansion: Its messages.
            ready_ns: When its dependencies were done.
            start_ns: When its rank begins with it.
            is_counted: Whether its time is time of communication.
        """
        first_order = 0
        kind, number = self._kinds[index], self._numbers[index]
        target = self._targets[index]
        if kind == _COLLECTIVE:
            position = iteration * self._collectives[target] + number
            first_order = position << _STEP_BITS
            sequence = position & 0xFFFF
            immediate = sequence << 16
            key = target << 16 | sequence
        elif kind == _SEND:
            immediate = (iteration * self._sends[target] + number) & 0xFFFFFFFF
            key = _SEND_KEYS - (target << 32 | immediate)
        else:
            immediate = (iteration * self._receives[target] + number) & 0xFFFFFFFF
            key = -1 - (target << 32 | immediate)
        active = ActiveOperation(
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
        """Take note that an operation is no longer under way."""
        del self._active[active.key]
        self._latest = None

    def find(
        self, pair: Pair, immediate: int, event: MessageReceived
    ) -> ActiveOperation | None:
        """Return the operation that a message belongs to.

        None: none that is under way; the message is kept for one to come.
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
        """Count a message that cannot belong to anything."""
        self._strays += 1

    def take(
        self,
        active: ActiveOperation,
        pair: Pair,
        immediate: int,
        event: MessageReceived,
    ) -> int:
        """Take a message for an operation under way.

        Returns:
            Which of the messages that the operation receives it is.  ``NOT_NOW``: none,
            it is counted as stray, or one that has come, it is kept for a later one.
        """
        receive = active.expansion.receive(pair, immediate - active.first_immediate)
        if receive == _NOT_NOW:
            self._strays += 1
            return _NOT_NOW
        if active.arrived[receive]:
            # The peer is ahead by as many collectives as immediates can count.
            self._early.keep(active.key, pair, immediate, event)
            return _NOT_NOW
        active.arrived[receive] = 1
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
        """Return and forget what came before its operation, in the order it came."""
        return self._early.take(active.key)

    def under_way(self) -> Collection[ActiveOperation]:
        """Return the operations under way, in the order in which they started."""
        return self._active.values()

    def strays(self) -> int:
        """Return how many messages came that belong to nothing, or were too many."""
        return self._strays + self._early.refused

    def early(self) -> int:
        """Return how many messages wait for their operation to start."""
        return self._early.count
