"""What the traces of ranks disagree about: raised at once, or gathered."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chakram.errors import MatchingError

__all__ = ["Disagreements"]


class Disagreements:
    """Takes what ranks disagree about.

    Args:
        limit: How many are kept; 0: the first one is raised.

    Attributes:
        kept: The first ones.
        more: How many there were besides.
    """

    def __init__(self, limit: int = 0) -> None:
        self._limit = limit
        self.kept: list[MatchingError] = []
        self.more = 0

    @property
    def total(self) -> int:
        """How many there were."""
        return len(self.kept) + self.more

    def takes_one_more(self) -> bool:
        """Say whether the next one is to be described; else it is only counted."""
        if self._limit and len(self.kept) >= self._limit:
            self.more += 1
            return False
        return True

    def add(self, error: MatchingError) -> None:
        """Keep one.

        Raises:
            MatchingError: If none are kept.
        """
        if not self._limit:
            raise error
        self.kept.append(error)
