"""What pages and consoles show alike: names with values, and tables."""

from __future__ import annotations

from dataclasses import dataclass, replace

from chakram.console.number_format import MISSING


class Link(str):
    """A text that leads to a file or folder, *href*, from where the page lies."""

    href: str

    def __new__(cls, text: str, href: str) -> Link:
        """Return *text* with its target."""
        made = super().__new__(cls, text)
        made.href = href
        return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Names and what they are; ``observed`` as of a table."""

    rows: tuple[tuple[str, str], ...]
    observed: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table; the first *left* columns are texts, the others numbers.

    ``title`` stands above it, ``note`` below.  ``observed`` is the letter of where its
    numbers were observed, None: the first of its section; columns that say their own
    have that.
    """

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left: int = 1
    note: str = ""
    observed: str | None = None

    def without_unknown(self) -> Table:
        """Return the table without columns of numbers of which no one is known."""
        kept = [
            at
            for at in range(len(self.header))
            if at < self.left or any(row[at] != MISSING for row in self.rows)
        ]
        rows = tuple(tuple(row[at] for at in kept) for row in self.rows)
        return replace(self, header=tuple(self.header[at] for at in kept), rows=rows)

    def cut(self, limit: int) -> Table:
        """Return the table with *limit* rows at most; its note tells of the others."""
        if len(self.rows) <= limit:
            return self
        left_out = f"{len(self.rows) - limit} more rows are left out."
        note = f"{left_out} {self.note}".rstrip()
        return replace(self, rows=self.rows[:limit], note=note)
