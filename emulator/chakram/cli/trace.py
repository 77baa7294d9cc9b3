"""``chakram trace``: look at traces, check them, make some up."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from chakram.cli.sizes import about_size
from chakram.errors import ConfigError
from chakram.units import format_time, parse_flops, parse_size, parse_time

if TYPE_CHECKING:
    from chakram.chakra.options import TraceWarning
    from chakram.chakra.trace_set import TraceSet

__all__ = ["app"]

app = typer.Typer(
    name="trace",
    help="Look at Chakra execution traces, check them, make some up.",
    no_args_is_help=True,
)
synth = typer.Typer(help="Write made-up traces.", no_args_is_help=True)
app.add_typer(synth, name="synth")

_PROBLEMS_SHOWN = 50

_Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
_Path = Annotated[
    Path,
    typer.Argument(
        help="Folder, archive, prefix, pattern, or one of the files; inside an "
        "archive: traces.tar.gz/PREFIX."
    ),
]
_BytesPerElement = Annotated[
    int | None,
    typer.Option(
        min=1, max=64, help="What one unit of a stored size is worth (STAGE: 2 or 4)."
    ),
]
_CommGroups = Annotated[
    Path | None, typer.Option(help="Group file, if not beside the traces.")
]
_Dependencies = Annotated[
    str, typer.Option(help="Edges that order nodes: auto, data, control or both.")
]
_DropMissing = Annotated[
    bool, typer.Option(help="Go on where a dependency names a node that is missing.")
]


@app.command()
def show(
    path: _Path,
    bytes_per_element: _BytesPerElement = None,
    comm_groups: _CommGroups = None,
    dependencies: _Dependencies = "auto",
    drop_missing_dependencies: _DropMissing = False,
    as_json: _Json = False,
) -> None:
    """Show what a trace set holds: ranks, nodes, groups, traffic."""
    from chakram.chakra.summary import summarize

    traces = _load(
        path, bytes_per_element, comm_groups, dependencies, drop_missing_dependencies
    )
    summary = summarize(traces.graphs, traces.groups)
    if as_json:
        _print_json(
            {
                "name": traces.name,
                "producer": traces.producer,
                "schema": traces.schema,
                "digest": traces.digest,
                "ranks": traces.nranks,
                "groups": {name: g.ranks for name, g in traces.groups.items()},
                "warnings": [asdict(warning) for warning in traces.warnings],
                **asdict(summary),
            }
        )
        return
    console = Console()
    facts = Table(box=None, show_header=False)
    for name, value in (
        ("trace set", traces.name),
        ("producer", f"{traces.producer} (schema {traces.schema})"),
        ("digest", traces.digest[:16]),
        ("ranks", str(traces.nranks)),
        ("process groups", str(len(traces.groups))),
        (
            "nodes",
            ", ".join(f"{n} {kind}" for kind, n in summary.nodes_by_kind.items()),
        ),
        ("nodes per rank", f"{summary.min_rank_nodes} to {summary.max_rank_nodes}"),
        ("stated durations", f"{format_time(summary.max_rank_duration_ns)} at most"),
        ("operations", f"{summary.num_ops:.3g}"),
    ):
        facts.add_row(name, value)
    console.print(facts)
    rows = Table(
        "communication", "ranks", "groups", "nodes", "smallest", "largest", "all"
    )
    for column in rows.columns[1:]:
        column.justify = "right"
    for row in summary.communication:
        rows.add_row(
            row.what,
            "" if row.group_ranks is None else str(row.group_ranks),
            str(row.groups),
            str(row.nodes),
            about_size(row.min_bytes),
            about_size(row.max_bytes),
            about_size(row.total_bytes),
        )
    console.print(rows)
    for line in _warning_lines(traces):
        console.print(line, markup=False, highlight=False)


@app.command()
def lint(
    path: _Path,
    bytes_per_element: _BytesPerElement = None,
    comm_groups: _CommGroups = None,
    dependencies: _Dependencies = "auto",
    drop_missing_dependencies: _DropMissing = False,
    as_json: _Json = False,
) -> None:
    """Check whether a trace set can be replayed.

    The exit code is 2 if it cannot.
    """
    from chakram.chakra.lint import check_across_ranks, check_trace_set

    traces = _load(
        path, bytes_per_element, comm_groups, dependencies, drop_missing_dependencies
    )
    problems = check_trace_set(traces.graphs, traces.groups)
    notes: tuple[str, ...] = ()
    if not problems:
        problems, notes = check_across_ranks(traces.graphs, traces.groups)
    if as_json:
        _print_json(
            {
                "name": traces.name,
                "problems": [asdict(problem) for problem in problems],
                "warnings": [asdict(warning) for warning in traces.warnings],
                "notes": notes,
            }
        )
    else:
        for line in _warning_lines(traces):
            print(line)
        for note in notes:
            print(f"warning: {note}")
        for problem in problems[:_PROBLEMS_SHOWN]:
            print(f"problem: {problem}")
        if len(problems) > _PROBLEMS_SHOWN:
            print(f"and {len(problems) - _PROBLEMS_SHOWN} more problems (--json)")
        nodes = sum(map(len, traces.graphs.values()))
        print(
            f"{traces.nranks} ranks, {nodes} nodes: {len(problems)} problems, "
            f"{len(traces.warnings) + len(notes)} warnings"
        )
    if problems:
        raise typer.Exit(2)


@synth.command()
def moe(
    out: Annotated[Path, typer.Option(help="Folder to write to.")],
    ranks: Annotated[int, typer.Option(help="Number of ranks, ep x dp.")] = 8,
    ep: Annotated[int, typer.Option(help="Ranks that share out the experts.")] = 4,
    dp: Annotated[int, typer.Option(help="Copies of each expert.")] = 2,
    layers: Annotated[int, typer.Option(help="Number of layers.")] = 4,
    hidden: Annotated[int, typer.Option(help="Length of a token's vector.")] = 256,
    ffn_hidden: Annotated[int, typer.Option(help="Inner width of an expert.")] = 1024,
    sequence: Annotated[int, typer.Option(help="Tokens of a sample.")] = 512,
    micro_batch: Annotated[int, typer.Option(help="Samples of one rank.")] = 1,
    top_k: Annotated[int, typer.Option(help="Experts of each token.")] = 2,
    experts_per_rank: Annotated[int, typer.Option(help="Experts of one rank.")] = 1,
    bytes_per_element: Annotated[int, typer.Option(help="Bytes of one number.")] = 2,
    peak: Annotated[str, typer.Option(help="Speed of a rank.")] = "50GFLOPS",
    all_to_all: Annotated[
        str | None, typer.Option(help="Send buffer of an all-to-all, e.g. 512KiB.")
    ] = None,
    all_reduce: Annotated[
        str | None, typer.Option(help="Expert gradients of a layer, e.g. 1MiB.")
    ] = None,
    dense: Annotated[
        str | None, typer.Option(help="Dense gradients of a layer; 0B: none.")
    ] = None,
    attention: Annotated[
        str | None, typer.Option(help="Forward time of an attention, e.g. 10ms.")
    ] = None,
    expert: Annotated[
        str | None, typer.Option(help="Forward time of the experts, e.g. 20ms.")
    ] = None,
    replace: Annotated[
        bool, typer.Option(help="Replace a set that is there already.")
    ] = False,
    as_json: _Json = False,
) -> None:
    """Write one training iteration of a mixture-of-experts model."""
    from chakram.chakra.synth import MoeParameters, synth_moe
    from chakram.chakra.synth_set import MOE_PREFIX, MOE_PRODUCER
    from chakram.chakra.writer import write_trace_set

    def size(option: str, text: str | None) -> int | None:
        return None if text is None else parse_size(text, where=option)

    def time(option: str, text: str | None) -> int | None:
        return None if text is None else parse_time(text, where=option)

    try:
        parameters = MoeParameters(
            ranks=ranks,
            ep=ep,
            dp=dp,
            layers=layers,
            hidden=hidden,
            ffn_hidden=ffn_hidden,
            sequence=sequence,
            micro_batch=micro_batch,
            top_k=top_k,
            experts_per_rank=experts_per_rank,
            bytes_per_element=bytes_per_element,
            peak_flops=parse_flops(peak, where="--peak"),
            all_to_all_bytes=size("--all-to-all", all_to_all),
            all_reduce_bytes=size("--all-reduce", all_reduce),
            dense_bytes=size("--dense", dense),
            attention_ns=time("--attention", attention),
            expert_ns=time("--expert", expert),
        )
    except ValueError as error:
        raise ConfigError("chakram trace synth moe", str(error)) from error
    synthesized = synth_moe(parameters)
    written = write_trace_set(
        out,
        prefix=MOE_PREFIX,
        graphs=synthesized.graphs,
        groups=synthesized.groups,
        producer=MOE_PRODUCER,
        replace=replace,
    )
    if as_json:
        _print_json({"written": [str(path) for path in written]})
    else:
        print(f"wrote {len(written)} files; look: chakram trace show {out}")


def _load(
    path: Path,
    bytes_per_element: int | None,
    comm_groups: Path | None,
    dependencies: str,
    drop_missing_dependencies: bool,
) -> TraceSet:
    """Return the trace set; a bar on stderr shows the ranks as they are read."""
    from chakram.chakra.options import DependencyPolicy, ReadOptions
    from chakram.chakra.trace_set import load_trace_set

    if dependencies not in list(DependencyPolicy):
        raise ConfigError(
            "--dependencies",
            f"{dependencies!r} is none of {', '.join(DependencyPolicy)}",
        )
    console = Console(stderr=True)
    with Progress(
        console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        task = progress.add_task("reading traces", total=None)
        return load_trace_set(
            path,
            comm_groups=comm_groups,
            options=ReadOptions(
                bytes_per_element=bytes_per_element,
                dependencies=DependencyPolicy(dependencies),
                drop_missing_dependencies=drop_missing_dependencies,
            ),
            on_rank=lambda done, total: progress.update(
                task, completed=done, total=total
            ),
        )


def _warning_lines(traces: TraceSet) -> list[str]:
    """Return a line for every kind of warning: ranks are mostly odd alike."""
    by_kind: dict[str, list[TraceWarning]] = {}
    for warning in traces.warnings:
        by_kind.setdefault(warning.kind, []).append(warning)
    return [
        f"warning: {alike[0]}"
        + (f" [and so on {len(alike) - 1} more ranks]" if len(alike) > 1 else "")
        for alike in by_kind.values()
    ]


def _print_json(fields: object) -> None:
    print(json.dumps(fields, indent=2))
