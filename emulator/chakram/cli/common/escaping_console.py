"""Console for tables and progress bars that prints text without markup."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from typing import IO, Any

import rich.console
import rich.table
from rich.measure import Measurement
from rich.segment import Segment

from chakram.foundation.text_escaping import plain

_UNLIMITED = 10_000
_LEGIBLE = 16
"""Width to which a column of longer texts may shrink."""


class Table(rich.table.Table):
    """Rich's table that breaks headings only between words.

    If a table is too wide, columns of text shrink first. Columns that still do not fit
    follow below the others, next to the first column again.
    """

    def __rich_console__(
        self, console: rich.console.Console, options: rich.console.ConsoleOptions
    ) -> rich.console.RenderResult:
        """Yield the parts of the table, one below the other."""
        blocks = [self]
        if self.show_header and self.columns:
            blocks = list(self._blocks(console, options))
        for block in blocks:
            yield from super(Table, block).__rich_console__(console, options)

    def _blocks(
        self, console: rich.console.Console, options: rich.console.ConsoleOptions
    ) -> Iterator[Table]:
        """Yield tables of some columns each, which fit the console if possible."""
        wide = options.update_width(_UNLIMITED)
        ranges = [_widths(each, console, wide) for each in self.columns]

        def excess(places: Sequence[int], widths: Sequence[int]) -> int:
            block = self._part(places, widths)
            return console.measure(block, options=wide).maximum - options.max_width

        blocks = [[0]]
        for at in range(1, len(ranges)):
            places = [*blocks[-1], at]
            is_wide = excess(places, [ranges[each].minimum for each in places]) > 0
            if is_wide and len(places) > 2:
                blocks.append([0, at])
            else:
                blocks[-1] = places
        for places in blocks:
            widths = [ranges[at].maximum for at in places]
            for _ in range(excess(places, widths)):
                # Headings break only if two columns are too wide.
                _, width, index = max(
                    (width > ranges[places[index]].minimum, width, index)
                    for index, width in enumerate(widths)
                )
                widths[index] = max(1, width - 1)
            yield self._part(places, widths)

    def _part(self, places: Sequence[int], widths: Sequence[int]) -> Table:
        """Return a table of the columns at *places*, with the given widths."""
        part = copy(self)
        part.columns = [
            replace(self.columns[at], _index=index, width=width)
            for index, (at, width) in enumerate(zip(places, widths, strict=True))
        ]
        if places[-1] >= len(places):
            part.title = None
        if places[-1] < len(self.columns) - 1:
            part.caption = None
        return part


def _widths(
    column: rich.table.Column,
    console: rich.console.Console,
    options: rich.console.ConsoleOptions,
) -> Measurement:
    """Return the least width of a column, and the width at which it does not wrap."""
    head = Measurement.get(console, options, column.header)
    widest = max(
        (Measurement.get(console, options, cell).maximum for cell in column.cells),
        default=0,
    )
    longest = max(head.maximum, widest)
    if column.no_wrap:
        return Measurement(longest, longest)
    least = min(widest, _LEGIBLE) if column.justify == "left" else widest
    return Measurement(max(head.minimum, least), longest)


def facts_table(facts: Iterable[tuple[str, str]], title: str | None = None) -> Table:
    """Return a table of names and values without borders."""
    table = Table(box=None, show_header=False, title=title, title_justify="left")
    for fact in facts:
        table.add_row(*fact)
    return table


class Console(rich.console.Console):
    """Rich's console without markup, which escapes terminal control characters in text.

    Args:
        options: Options of Rich's console.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, **options)

    @property
    def file(self) -> IO[str]:
        """The stream behind Rich's proxies, which would escape style sequences."""
        file = super().file
        while (behind := getattr(file, "rich_proxied_file", None)) is not None:
            file = behind
        return file

    @file.setter
    def file(self, new_file: IO[str]) -> None:
        self._file = new_file

    def render(self, *arguments: Any, **options: Any) -> Iterable[Segment]:
        """Yield the segments to print."""
        for segment in super().render(*arguments, **options):
            if segment.control:
                yield segment
            else:
                yield Segment(plain(segment.text), segment.style)
