"""What pages and consoles show alike: names with values, and tables."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Facts", "Table"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Names and what they are."""

    rows: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table; the first *left* columns are texts, the others numbers.

    ``title`` stands above it, ``note`` below.
    """

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left: int = 1
    note: str = ""

    def cut(self, limit: int) -> Table:
        """Return the table with *limit* rows at most; its note tells of the others."""
        if len(self.rows) <= limit:
            return self
        left_out = f"{len(self.rows) - limit} more rows are left out."
        return Table(
            title=self.title,
            header=self.header,
            rows=self.rows[:limit],
            left=self.left,
            note=f"{left_out} {self.note}".rstrip(),
        )
