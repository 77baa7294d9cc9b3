"""Output of ``chakram trace show``: tables, and the traffic matrix as a heat map."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from rich.box import SIMPLE_HEAD
from rich.text import Text

from chakram.cli.common.escaping_console import Console
from chakram.cli.common.escaping_console import Table as ConsoleTable
from chakram.cli.trace.loading import warning_lines
from chakram.foundation.units import about_size
from chakram.report.trace import tables as trace_tables

if TYPE_CHECKING:
    from chakram.chakra.sets.trace_set import TraceSet
    from chakram.chakra.summary.summary import TraceSummary
    from chakram.report.blocks import Facts, Table


_ROWS_SHOWN = 24
_PAIRS_SHOWN = 8
_LEAST_WIDTH = 120


def print_summary(
    traces: TraceSet, summary: TraceSummary, *, bytes_per_element: int | None
) -> None:
    """Print the summary of a trace set."""
    console = Console()
    if not console.is_terminal:
        # Files and pipes have no width, and narrow columns would break words.
        console = Console(width=max(console.width, _LEAST_WIDTH))
    facts = trace_tables.trace_facts(
        traces, summary, bytes_per_element=bytes_per_element
    )
    console.print(_facts(facts), highlight=False)
    for table in (
        trace_tables.operations_table(summary.per_rank),
        trace_tables.communication_table(summary, bytes_per_element=bytes_per_element),
        trace_tables.sizes_table(summary),
        trace_tables.groups_table(traces, summary),
        trace_tables.distributions_table(summary),
    ):
        if table.rows:
            console.print(_table(table.cut(_ROWS_SHOWN)), highlight=False)
    traffic = summary.traffic
    if any(traffic.sent_bytes):
        if len(summary.per_rank) <= HEAT_MAP_RANKS:
            rows = [traffic.row(rank.rank) for rank in summary.per_rank]
            console.print(heat_map(rows, width=console.width))
        else:
            print(f"with more than {HEAT_MAP_RANKS} ranks, --html draws the matrix")
        pairs = trace_tables.pairs_table(summary, _PAIRS_SHOWN)
        if pairs.rows:
            console.print(_table(pairs), highlight=False)
    if traffic.unplaced:
        print(
            f"warning: {traffic.unplaced} nodes name no destination; they are not part "
            "of the traffic (details: chakram trace lint)"
        )
    for line in warning_lines(traces):
        print(line)


def _facts(facts: Facts) -> ConsoleTable:
    grid = ConsoleTable(box=None, show_header=False, pad_edge=False)
    for row in facts.rows:
        grid.add_row(*row)
    return grid


def _table(table: Table) -> ConsoleTable:
    shown = ConsoleTable(
        title=f"\n{table.title}",
        title_justify="left",
        caption=table.note or None,
        caption_justify="left",
        box=SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    for number, name in enumerate(table.header):
        if number < table.left:
            shown.add_column(name, overflow="fold")
        else:
            shown.add_column(name, overflow="fold", justify="right")
    for row in table.rows:
        shown.add_row(*row)
    return shown


HEAT_MAP_RANKS: Final = 64
"""Maximum number of ranks for a legible heat map on a console."""

_SHADES: Final = "·░▒▓█"
_COLORS: Final = ("bright_black", "blue", "cyan", "yellow", "red")
_EVERY: Final = 8
"""Interval of column numbers above a heat map."""


def heat_map(rows: Sequence[Sequence[int]], *, width: int) -> Text:
    """Return a square matrix of bytes as text: rows are senders, columns receivers.

    Shades divide the range up to the largest value into equal parts, so that a shade
    has the same meaning everywhere. The darkest shade marks values above four fifths.
    The heat map is also legible without colors.

    Args:
        rows: Rows of the matrix.
        width: Width of a line in characters. Cells are two characters wide if they fit.
    """
    size = len(rows)
    largest = max(map(max, rows), default=0)
    margin = len(str(size - 1)) + 1
    cell = 2 if margin + 2 * size <= width else 1
    text = Text(no_wrap=True)
    text.append("Bytes from rank (row) to rank (column), one iteration\n", "italic")
    text.append(" " * margin + _header(size, cell) + "\n", "bright_black")
    for number, row in enumerate(rows):
        text.append(f"{number:>{margin - 1}} ", "bright_black")
        for value in row:
            if value:
                shade = (value * len(_SHADES) - 1) // largest
                text.append(_SHADES[shade] * cell, _COLORS[shade])
            else:
                text.append(" " * cell)
        text.append("\n")
    text.append(" " * margin)
    for shade, character in enumerate(_SHADES):
        limit = about_size(largest * (shade + 1) // len(_SHADES))
        text.append(character * 2, _COLORS[shade])
        text.append(f" up to {limit}  ")
    text.append("blank: nothing\n")
    return text


def _header(size: int, cell: int) -> str:
    labels = [" "] * (size * cell + 4)
    for column in range(0, size, 1 if cell == 2 and size <= _EVERY else _EVERY):
        for offset, digit in enumerate(str(column)):
            labels[column * cell + offset] = digit
    return "".join(labels).rstrip()
