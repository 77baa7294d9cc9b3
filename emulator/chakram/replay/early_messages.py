# cython: language_level=3, annotation_typing=False
"""Messages that arrive before the receiving rank has started their operation."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chakram.replay.rank_queue_pair import Pair
    from chakram.roce.events import MessageReceived

    Early = tuple[Pair, int, MessageReceived]
    """The queue pair of a message, its immediate data and its receive event."""

__all__ = ["EARLY_LIMIT", "EarlyMessages"]

EARLY_LIMIT = 1 << 20
"""Maximum number of messages that a rank keeps. A correct peer sends fewer."""


class EarlyMessages:
    """Early messages by the key of their operation, in order of arrival.

    Attributes:
        count: Number of messages kept now.
        refused: Number of messages discarded because of the limit.
    """

    __slots__ = ("_by_key", "_limit", "count", "refused")

    def __init__(self, limit: int = EARLY_LIMIT) -> None:
        self.count = 0
        self.refused = 0
        self._limit = limit
        self._by_key: dict[int, list[Early]] = {}

    def keep(
        self, key: int, pair: Pair, immediate: int, event: MessageReceived
    ) -> None:
        """Keep a message for the operation *key*."""
        if self.count >= self._limit:
            self.refused += 1
            return
        self.count += 1
        self._by_key.setdefault(key, []).append((pair, immediate, event))

    def take(self, key: int) -> list[Early]:
        """Remove and return the messages of an operation, oldest first."""
        rows = self._by_key.pop(key, None)
        if rows is None:
            return []
        self.count -= len(rows)
        return rows
