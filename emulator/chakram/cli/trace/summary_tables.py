"""What ``chakram trace show`` prints: tables, and the matrix as a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as RichTable

from chakram.cli.trace.heat_map import HEAT_MAP_RANKS, heat_map
from chakram.cli.trace.loading import warning_lines
from chakram.observe.report.trace_tables import (
    communication_table,
    distributions_table,
    groups_table,
    operations_table,
    trace_facts,
)
from chakram.observe.report.traffic_tables import pairs_table, sizes_table

if TYPE_CHECKING:
    from chakram.chakra.sets.trace_set import TraceSet
    from chakram.chakra.summary.summary import TraceSummary
    from chakram.observe.report.blocks import Facts, Table

__all__ = ["print_summary"]

_ROWS_SHOWN = 24
_PAIRS_SHOWN = 8
_LEAST_WIDTH = 120


def print_summary(
    traces: TraceSet, summary: TraceSummary, *, bytes_per_element: int | None
) -> None:
    """Print what a trace set holds."""
    console = Console()
    if not console.is_terminal:
        # In a file or a pipe there is no width to fit; narrow columns break words.
        console = Console(width=max(console.width, _LEAST_WIDTH))
    facts = trace_facts(traces, summary, bytes_per_element=bytes_per_element)
    console.print(_facts(facts), highlight=False)
    for table in (
        operations_table(summary.per_rank),
        communication_table(summary, bytes_per_element=bytes_per_element),
        sizes_table(summary),
        groups_table(traces, summary),
        distributions_table(summary),
    ):
        if table.rows:
            console.print(_table(table.cut(_ROWS_SHOWN)), highlight=False)
    traffic = summary.traffic
    if any(traffic.sent_bytes):
        if len(summary.per_rank) <= HEAT_MAP_RANKS:
            rows = [traffic.row(rank.rank) for rank in summary.per_rank]
            console.print(heat_map(rows, width=console.width))
        else:
            print(f"a matrix of over {HEAT_MAP_RANKS} ranks is drawn by --html")
        pairs = pairs_table(summary, _PAIRS_SHOWN)
        if pairs.rows:
            console.print(_table(pairs), highlight=False)
    if traffic.unplaced:
        print(
            f"warning: {traffic.unplaced} nodes do not say whom they send to; they are "
            "not in the traffic (chakram trace lint tells more)"
        )
    for line in warning_lines(traces):
        print(line)


def _facts(facts: Facts) -> RichTable:
    grid = RichTable(box=None, show_header=False, pad_edge=False)
    for row in facts.rows:
        grid.add_row(*row)
    return grid


def _table(table: Table) -> RichTable:
    shown = RichTable(
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
