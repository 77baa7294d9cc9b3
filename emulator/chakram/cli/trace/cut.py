"""``chakram trace cut``: write a part of a trace set as a separate set."""

from __future__ import annotations

import re
from dataclasses import asdict, astuple
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from chakram.cli.common.dataclass_options import with_options
from chakram.cli.common.options import Json, print_json
from chakram.cli.trace import loading
from chakram.foundation.errors import ConfigError

if TYPE_CHECKING:
    from chakram.chakra.cut.cut_writer import WrittenCut


_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
_IDS = re.compile(r"([0-9]{1,20})\.\.([0-9]{1,20})")
_RANKS_AT_MOST = 1_000_000
_ROWS_SHOWN = 16


@with_options("reading", loading.Reading)
def cut(
    path: loading.TracePath,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Folder to write to.")],
    iteration: Annotated[
        int | None,
        typer.Option(
            min=0, help="Iteration to keep: N of ProfilerStep#N in PyTorch's profiler."
        ),
    ] = None,
    ranks: Annotated[
        str | None, typer.Option(metavar="LIST", help="Ranks to keep, e.g. 0-3,7.")
    ] = None,
    keep_numbers: Annotated[
        bool, typer.Option("--keep-numbers", help="Do not renumber ranks from 0.")
    ] = False,
    nodes: Annotated[
        str | None,
        typer.Option(
            metavar="FIRST..LAST", help="Node IDs to keep, including FIRST and LAST."
        ),
    ] = None,
    communication_only: Annotated[
        bool,
        typer.Option(
            "--communication-only", help="Keep only collectives, sends and receives."
        ),
    ] = False,
    anonymize: Annotated[
        bool,
        typer.Option(
            "--anonymize",
            help="Replace each node name with the node's kind and a number.",
        ),
    ] = False,
    anonymise: Annotated[bool, typer.Option("--anonymise", hidden=True)] = False,
    *,
    reading: loading.Reading,
    force: loading.Force = False,
    as_json: Json = False,
) -> None:
    """Write a part of a trace set as a separate set.

    The options that select the part can be combined.
    """
    from chakram.chakra.cut.cut import CutOptions
    from chakram.chakra.cut.cut_writer import write_cut

    options = CutOptions(
        iteration=iteration,
        ranks=None if ranks is None else _ranks(ranks),
        keep_numbers=keep_numbers,
        node_ids=None if nodes is None else _node_ids(nodes),
        communication_only=communication_only,
        anonymize=anonymize or anonymise,
    )
    if options == CutOptions(keep_numbers=keep_numbers):
        raise ConfigError(
            "chakram trace cut",
            "no option selects the part to keep",
            "--ranks, --iteration, --nodes, --communication-only or --anonymize",
        )
    traces = reading.load(path)
    with loading.reading_bar("cutting") as on_rank:
        written = write_cut(path, out, traces, options, force=force, on_rank=on_rank)
    if as_json:
        print_json(
            "trace-cut",
            {
                "written": [str(each) for each in written.written],
                "ranks": [asdict(each) for each in written.ranks],
                "groups": written.groups,
                "notes": written.notes,
                "warnings": [asdict(warning) for warning in traces.warnings],
            },
        )
        return
    for line in loading.warning_lines(traces):
        print(line)
    _print_table(written)
    for line in written.notes:
        print(f"note: {line}")
    print(f"wrote {len(written.written)} files; inspect them: chakram trace show {out}")


def _print_table(written: WrittenCut) -> None:

    from chakram.cli.common.escaping_console import Console, Table

    names = ("rank", "was", "nodes before", "nodes", "collectives", "messages", "joins")
    table = Table(box=None)
    for name in names:
        table.add_column(name, justify="right")
    rows = [astuple(each) for each in written.ranks]
    for row in rows[:_ROWS_SHOWN]:
        table.add_row(*map(str, row))
    if len(rows) > _ROWS_SHOWN:
        table.add_row("...")
    sums = (sum(column) for column in list(zip(*rows, strict=True))[2:])
    table.add_row("all", "", *map(str, sums), style="bold")
    Console().print(table, highlight=False)


def _ranks(text: str) -> tuple[int, ...]:
    ranks: set[int] = set()
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        first = int(match[1]) if match else 0
        last = int(match[2] or first) if match else -1
        if match is None or last < first or last > _RANKS_AT_MOST:
            raise ConfigError(
                "--ranks", f"{part[:40]!r} is not a rank or range", "e.g. 0-3,7"
            )
        ranks.update(range(first, last + 1))
    return tuple(sorted(ranks))


def _node_ids(text: str) -> tuple[int, int]:
    match = _IDS.fullmatch(text.strip())
    if match is None or int(match[1]) > int(match[2]):
        raise ConfigError(
            "--nodes", f"{text[:60]!r} is not FIRST..LAST", "node ids, e.g. 100..250"
        )
    return int(match[1]), int(match[2])
