"""``chakram algorithms``: list, show and check collective algorithms."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE

from chakram.cli.common.escaping_console import Console, Table, facts_table
from chakram.cli.common.options import Json, print_json
from chakram.foundation.errors import ConfigError
from chakram.foundation.units import (
    format_size,
    format_time,
    parse_rate,
    parse_size,
    parse_time,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chakram.collectives.ops import CollectiveOp
    from chakram.collectives.schedule import Algorithm

app = typer.Typer(
    name="algorithms",
    help="List and show collective algorithms, or check your own.",
    no_args_is_help=True,
)

Op = Annotated[str | None, typer.Option(help="Collective, e.g. all_reduce.")]
Ranks = Annotated[
    int | None,
    typer.Option("--ranks", min=2, max=1024, help="Number of ranks in the group."),
]
Root = Annotated[int, typer.Option(min=0, help="Position of the root in the group.")]
Size = Annotated[str, typer.Option(help="Input size of one rank, e.g. 1MiB.")]
Rate = Annotated[str, typer.Option(help="Rate of every port, for the time bound.")]
Delay = Annotated[str, typer.Option(help="Delay of every link, for the time bound.")]

_SIZE, _RATE, _DELAY = "1MiB", "100Gbit", "500ns"
_MOST_STEPS = 64
"""Maximum number of steps in a table. ``--json`` prints all steps."""


@app.command("list")
def list_(op: Op = None, as_json: Json = False) -> None:
    """List the algorithms of every collective, with their parameters."""
    from chakram.collectives.algorithms import installed_families, parameters_of
    from chakram.collectives.ops import CollectiveOp

    _, broken = installed_families()
    warnings = [str(each) for each in broken.values()]
    ops = list(CollectiveOp) if op is None else [_op(op)]
    rows = [
        (
            each.value,
            name,
            {
                # A default has the type of its parameter, which the annotation does not
                # express.
                parameter.name: parameter.text(parameter.default)  # type: ignore[arg-type]
                for parameter in parameters_of(each, name)
            },
        )
        for each in ops
        for name in _names(each)
    ]
    if as_json:
        listed = [
            {"op": each, "algorithm": name, "parameters": parameters}
            for each, name, parameters in rows
        ]
        print_json("algorithms", {"algorithms": listed, "warnings": warnings})
        return
    table = Table("collective", "algorithm", "parameters", box=SIMPLE, pad_edge=False)
    last = None
    for each, name, parameters in rows:
        table.add_row(
            "" if each == last else each,
            name,
            ", ".join(f"{key}={value}" for key, value in parameters.items()),
        )
        last = each
    table.caption = "parameters with defaults; details: chakram algorithms show NAME"
    console = Console()
    console.print(table)
    _print_warnings(console, warnings)


@app.command()
def show(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="Algorithm, e.g. ring or ring(channels=2)."
        ),
    ],
    op: Op = None,
    nranks: Ranks = 8,
    root: Root = 0,
    size: Size = _SIZE,
    rate: Rate = _RATE,
    delay: Delay = _DELAY,
    as_json: Json = False,
) -> None:
    """Show the steps, traffic and time bounds of an algorithm."""
    from chakram.collectives.algorithms import algorithm_fitting, calls_of, chosen
    from chakram.collectives.ops import nccl_size_bytes
    from chakram.collectives.schedule_check import check_schedule
    from chakram.user_algorithms.send_receive_matching import refuse_problems

    which = _op(op) if op is not None else _op_with(name)
    nranks = nranks or 8
    input_bytes = parse_size(size, where="--size")
    size_bytes = nccl_size_bytes(which, input_bytes=input_bytes, nranks=nranks)
    name = str(chosen(which, name, size_bytes=size_bytes, nranks=nranks))
    how = algorithm_fitting(which, name, nranks=nranks)
    _check_root(root, nranks)
    with calls_of(how):
        problems = check_schedule(how, nranks=nranks, root=root)
    refuse_problems(f"{how.name} for {which} of {nranks} ranks", problems)
    _print(how, size, rate, delay, as_json=as_json, nranks=nranks, root=root)


@app.command()
def check(
    place: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="Algorithm to check: MSCCL .xml, MSCCL++ .json, mine.py:function, or "
            "a folder of .et files.",
        ),
    ],
    op: Op = None,
    nranks: Ranks = None,
    root: Root = 0,
    size: Size = _SIZE,
    rate: Rate = _RATE,
    delay: Delay = _DELAY,
    as_json: Json = False,
) -> None:
    """Check your own algorithm, as Chakram does before it runs an experiment."""
    from fractions import Fraction

    from chakram.user_algorithms.files import load_source, user_algorithm_at

    source = load_source(user_algorithm_at(place))
    own_op, own_ranks = source.made_for()
    which = _op(op) if op is not None else own_op
    ranks = nranks if nranks is not None else own_ranks
    if which is None or ranks is None:
        missing = "--op" if which is None else "--ranks"
        raise ConfigError(missing, "is missing", f"{place} does not specify it")
    _check_root(root, ranks)
    how = source.listed(which, nranks=ranks, root=root, size_scale=Fraction(1))
    of = {"nranks": ranks, "root": root, "warnings": source.warnings()}
    _print(how, size, rate, delay, as_json=as_json, **of)


def _op(name: str) -> CollectiveOp:
    from chakram.collectives.ops import CollectiveOp
    from chakram.settings.located_errors import suggest

    known = [each.value for each in CollectiveOp]
    if name not in known:
        raise ConfigError(
            "--op", f"there is no collective {name!r}", suggest(name, known)
        )
    return CollectiveOp(name)


def _names(op: CollectiveOp) -> list[str]:
    """Return the algorithm names of a collective, with those of plug-ins last."""
    from chakram.collectives.algorithms import algorithm_names, installed_families

    families, _ = installed_families()
    others = (each.name for each in families if each.op == op)
    return [*algorithm_names(op), *others]


def _op_with(name: str) -> CollectiveOp:
    """Return the only collective that has an algorithm named *name*."""
    from chakram.collectives.algorithms import installed_families
    from chakram.collectives.ops import CollectiveOp

    family = name.partition("(")[0]
    _, broken = installed_families()
    if family in broken:
        raise broken[family]
    found = [each for each in CollectiveOp if family in _names(each)]
    if len(found) == 1:
        return found[0]
    if not found:
        raise ConfigError(
            name, "there is no such algorithm", "see chakram algorithms list"
        )
    raise ConfigError(
        "--op", "is missing", f"{family} is an algorithm of {', '.join(found)}"
    )


def _check_root(root: int, nranks: int) -> None:
    if root >= nranks:
        raise ConfigError("--root", f"{root} is not a position among {nranks} ranks")


def _print(
    how: Algorithm, size: str, rate: str, delay: str, *, as_json: bool, **of: Any
) -> None:
    from chakram.preparation.algorithm_summary import summarize_algorithm

    summary = summarize_algorithm(
        how,
        input_bytes=parse_size(size, where="--size"),
        rate_bps=parse_rate(rate, where="--rate"),
        delay_ns=parse_time(delay, where="--delay"),
        **of,
    )
    if as_json:
        print_json("algorithm", asdict(summary))
        return
    console = Console()
    table = Table(
        box=SIMPLE,
        pad_edge=False,
        title=f"{summary.op}: {summary.algorithm}, {summary.nranks} ranks, "
        f"{format_size(summary.input_bytes)} per rank",
        title_justify="left",
    )
    for name in ("step", "transfers", "bytes", "busiest rank", "largest"):
        table.add_column(name, justify="right")
    for step in summary.steps[:_MOST_STEPS]:
        table.add_row(
            str(step.step),
            str(step.transfers),
            format_size(step.bytes),
            format_size(step.busiest_bytes),
            format_size(step.largest_bytes),
        )
    if len(summary.steps) > _MOST_STEPS:
        table.caption = (
            f"and {len(summary.steps) - _MOST_STEPS} more steps (see --json)"
        )
    console.print(table)
    facts = (
        ("check", "passed: " + summary.checked),
        ("channels", str(summary.channels)),
        ("queue pairs", str(summary.queue_pairs)),
        (
            "sent",
            f"{format_size(summary.bytes)} in {summary.transfers} transfers; "
            f"{format_size(summary.busiest_bytes)} by the busiest rank",
        ),
        ("bound", f"at least {format_time(summary.bound_ns)} on one switch"),
        (
            "ceiling",
            "none"
            if summary.ceiling_ns is None
            else f"at least {format_time(summary.ceiling_ns)} for any algorithm",
        ),
    )
    console.print(facts_table(facts))
    _print_warnings(console, summary.warnings)


def _print_warnings(console: Console, warnings: Sequence[str]) -> None:
    for warning in warnings:
        console.print(f"warning: {warning}", markup=False, highlight=False)
