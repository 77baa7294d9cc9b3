"""``chakram trace convert``: write traces in other formats."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from chakram.cli.common.dataclass_options import with_options
from chakram.cli.common.options import Json, print_json
from chakram.cli.trace import loading
from chakram.foundation.errors import ConfigError
from chakram.foundation.units import parse_size

if TYPE_CHECKING:
    from chakram.collectives.ops import CollectiveOp


app = typer.Typer(
    name="convert", help="Convert traces to other formats.", no_args_is_help=True
)

_Folder = Annotated[Path, typer.Argument(metavar="OUT", help="Folder to write to.")]
_Compress = Annotated[
    bool | None,
    typer.Option(
        "--gzip/--no-gzip",
        help="Whether to compress the files. Default: as in the input.",
    ),
]
_MAX_RANKS = 1024


def _add_form(form: str, text: str) -> None:
    """Add the verb that writes traces in a format."""

    def convert(
        path: loading.TracePath,
        out: _Folder,
        compress: _Compress = None,
        force: loading.Force = False,
        as_json: Json = False,
    ) -> None:
        from chakram.chakra.write.convert import TraceForm, convert_trace_set

        with loading.reading_bar("converting") as on_rank:
            converted = convert_trace_set(
                path,
                out,
                form=TraceForm(form),
                compress=compress,
                force=force,
                on_rank=on_rank,
            )
        if as_json:
            written = [str(each) for each in converted.written]
            document = {"lost": converted.lost, "notes": converted.notes}
            print_json("trace-written", {"written": written, **document})
            return
        for line in converted.lost:
            print(f"warning: {line}")
        for line in converted.notes:
            print(f"note: {line}")
        print(
            f"wrote {len(converted.written)} files; inspect them: "
            f"chakram trace show {out}"
        )

    app.command(form, help=text)(convert)


_add_form("json", "Write JSON in the format of chakra_jsonizer.")
_add_form("et", "Write Chakra's binary format, from any supported format.")


@app.command("p2p")
@with_options("reading", loading.Reading, "duration_unit", "uncorrected")
def to_messages(
    path: loading.TracePath,
    out: Annotated[
        Path,
        typer.Argument(
            metavar="OUT.csv",
            help="File to write; compressed if its name ends in .gz.",
        ),
    ],
    algorithm: Annotated[
        list[str] | None,
        typer.Option(
            metavar="OP=NAME",
            help="Algorithm of a collective, e.g. all_reduce=ring. Can be repeated.",
        ),
    ] = None,
    iterations: Annotated[
        int, typer.Option(min=1, max=1_000_000, help="Number of iterations.")
    ] = 1,
    *,
    reading: loading.Reading,
    force: loading.Force = False,
    as_json: Json = False,
) -> None:
    """Write all messages between ranks as CSV.

    Collectives are lowered to messages.
    """
    from chakram.chakra.lint.replay_blockers import require_replayable
    from chakram.chakra.write.atomic_file import new_file, refuse_existing
    from chakram.chakra.write.message_list import p2p_csv

    refuse_existing(out, force=force)
    algorithms = dict(_algorithms(algorithm or ()))
    traces = reading.load(path)
    require_replayable(traces.graphs, traces.groups, traces.least_ranks)
    lines = p2p_csv(
        traces.graphs, traces.groups, algorithms=algorithms, iterations=iterations
    )
    rows = -1
    with new_file(out, force=force) as file:
        for line in lines:
            file.write(line)
            rows += 1
    if as_json:
        print_json("trace-messages", {"written": [str(out)], "messages": rows})
    else:
        print(f"wrote {rows} messages to {out}")


@app.command("collective")
def to_collective(
    out: _Folder,
    op: Annotated[str, typer.Option(help="Collective, e.g. all_reduce.")],
    ranks: Annotated[
        int, typer.Option(min=2, max=_MAX_RANKS, help="Number of ranks in the group.")
    ],
    size: Annotated[str, typer.Option(help="Input size of one rank, e.g. 1MiB.")],
    algorithm: Annotated[str, typer.Option(help="Algorithm, e.g. ring.")] = "auto",
    prefix: Annotated[
        str, typer.Option(help="Prefix of file names. Default: the collective.")
    ] = "",
    force: loading.Force = False,
    as_json: Json = False,
) -> None:
    """Write an algorithm as a custom ASTRA-sim collective.

    There is one file per position in the group.
    """
    from chakram.chakra.write.astra_collective import ASTRA_KEYS, astra_collective
    from chakram.chakra.write.new_set import new_trace_set

    collective = _collective(op, where="--op")
    input_bytes = parse_size(size, where="--size")
    prefix = prefix or str(collective)
    if "/" in prefix:
        raise ConfigError("--prefix", f"{prefix!r} has a slash", "use OUT for folders")
    files = astra_collective(
        collective, algorithm, nranks=ranks, input_bytes=input_bytes
    )
    with new_trace_set(out, prefix=prefix, force=force) as new:
        for position, records in enumerate(files):
            with new.open(f"{prefix}.{position}.et") as file:
                file.writelines(records)
        written = new.written()
    entry = {ASTRA_KEYS[collective]: [str(out / prefix)]}
    if as_json:
        print_json(
            "astra-collective",
            {"written": [str(path) for path in written], "system": entry},
        )
    else:
        print(f"wrote {len(written)} files; add to the ASTRA-sim system file:")
        print(json.dumps(entry, indent=2))


def _algorithms(pairs: Sequence[str]) -> Iterator[tuple[CollectiveOp, str]]:
    from chakram.collectives.algorithms import algorithm

    for pair in pairs:
        op, equals, name = pair.partition("=")
        if not equals or not name:
            raise ConfigError(
                f"--algorithm {pair}", "is not OP=NAME", "e.g. all_reduce=ring"
            )
        collective = _collective(op, where=f"--algorithm {pair}")
        algorithm(collective, name)
        yield (collective, name)


def _collective(text: str, *, where: str) -> CollectiveOp:
    from chakram.collectives.ops import CollectiveOp

    try:
        return CollectiveOp(text.strip())
    except ValueError:
        raise ConfigError(
            where,
            f"there is no collective {text!r}",
            f"choose from {', '.join(CollectiveOp)}",
        ) from None
