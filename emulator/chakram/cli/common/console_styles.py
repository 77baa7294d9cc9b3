"""Console for tables and progress bars that prints text without markup."""

from __future__ import annotations

from collections.abc import Iterable
from typing import IO, Any

import rich.console
from rich.segment import Segment
from rich.table import Table

from chakram.foundation.text_escaping import plain


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
