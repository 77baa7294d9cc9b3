"""Blocks that both pages and consoles show: facts and tables."""

from __future__ import annotations

from dataclasses import dataclass, replace

from chakram.console.number_format import MISSING


class Link(str):
    """A text that links to a file or folder; *href* is relative to the page."""

    href: str

    def __new__(cls, text: str, href: str) -> Link:
        """Return *text* with its link target."""
        made = super().__new__(cls, text)
        made.href = href
        return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Names with their values; ``observed`` as in ``Table``."""

    rows: tuple[tuple[str, str], ...]
    observed: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table; its first *left* columns contain text, the others numbers.

    ``title`` appears above the table, ``note`` below it. ``observed`` is the letter of
    the observation point; None: the first one of the section. A column whose heading
    contains an observation point uses that one.
    """

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left: int = 1
    note: str = ""
    observed: str | None = None

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
        """Return the table with at most *limit* rows; its note mentions the others."""
        if len(self.rows) <= limit:
            return self
        left_out = f"{len(self.rows) - limit} more rows are left out."
        note = f"{left_out} {self.note}".rstrip()
        return replace(self, rows=self.rows[:limit], note=note)
