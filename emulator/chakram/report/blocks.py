"""Blocks that both pages and consoles show: facts and tables."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from chakram.console.number_format import MISSING


class Link(str):
    """A string with a link to a file or folder: *href*, relative to the page."""

    href: str

    def __new__(cls, text: str, href: str) -> Link:
        """Return *text* with *href* as its link target."""
        made = super().__new__(cls, text)
        made.href = href
        return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Facts in rows, each with the name of a fact and its value."""

    rows: tuple[tuple[str, str], ...]


def facts(*rows: tuple[str, str]) -> Facts:
    """Return a block of facts, one per row of name and value."""
    return Facts(rows=rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table with text in its first *left* columns and numbers in the others.

    ``title`` appears above the table, ``note`` below it. ``bars`` is the index of the
    column that contains bars drawn with characters.
    """

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left: int = 1
    note: str = ""
    bars: int | None = None

    def without_unknown(self) -> Table:
        """Return the table without number columns in which all values are unknown."""
        kept = [
            at
            for at in range(len(self.header))
            if at < self.left or any(row[at] != MISSING for row in self.rows)
        ]
        rows = tuple(tuple(row[at] for at in kept) for row in self.rows)
        return replace(self, header=tuple(self.header[at] for at in kept), rows=rows)

    def cut(self, limit: int) -> Table:
        """Return the first *limit* rows, with a note on how many rows are left out."""
        if len(self.rows) <= limit:
            return self
        left_out = f"{len(self.rows) - limit} more rows are left out."
        note = f"{left_out} {self.note}".rstrip()
        return replace(self, rows=self.rows[:limit], note=note)


def table(
    title: str,
    columns: str,
    rows: Iterable[tuple[str, ...]],
    *,
    left: int = 1,
    note: str = "",
    limit: int | None = None,
) -> Table:
    """Return a table of at most *limit* rows.

    *columns* contains the names of the columns, separated by ``|``.
    """
    header = tuple(map(str.strip, columns.split("|")))
    made = Table(title=title, header=header, rows=tuple(rows), left=left, note=note)
    return made if limit is None else made.cut(limit)
