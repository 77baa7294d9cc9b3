"""``chakram export``: write results and experiments in formats of other tools."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import chakram
from chakram.cli.common import options
from chakram.cli.common.progress import run_request
from chakram.foundation.errors import ConfigError

if TYPE_CHECKING:
    from chakram.run_directory.reader import RunResults


app = typer.Typer(
    name="export",
    help="Export results and experiments to formats of other tools.",
    no_args_is_help=True,
)

_Source = Annotated[
    Path,
    typer.Argument(
        metavar="RUN|EXPERIMENT",
        help="Run directory, or experiment file to simulate and export.",
    ),
]
_Out = Annotated[Path, typer.Option(metavar="DIR", help="Folder to write to.")]
_Force = Annotated[bool, typer.Option("--force", help="Replace existing files.")]


def _results_of(
    source: Path, overrides: list[str] | None, runs: Path | None, *, quiet: bool
) -> RunResults:
    """Return the results of a run, or of the simulation of an experiment."""
    from chakram.run_directory.reader import open_run

    if source.is_dir():
        if overrides:
            raise ConfigError(
                f"--set {overrides[0]}",
                f"{source} is a run directory",
                "use --set with an experiment file only",
            )
        return open_run(source)
    settings, text = options.read_experiment(source, overrides)
    from chakram.simulation.simulate_experiment import simulate_experiment

    with run_request(settings, text, runs=runs, quiet=quiet) as request:
        outcome = simulate_experiment(request)
    if outcome.error is not None:
        raise outcome.error
    return open_run(outcome.directory)


def _notes(results: RunResults) -> list[str]:
    """Return notes on what the run or its directory lacks."""
    gone = results.missing()
    return [
        *([results.incomplete] if results.incomplete else []),
        *([f"files of the run are missing: {', '.join(gone)}"] if gone else []),
    ]


def _refuse(out: Path, names: Iterable[str], *, force: bool) -> None:
    """Refuse to write files if one of them exists, unless *force* is set."""
    from chakram.chakra.write.atomic_file import refuse_existing

    for name in names:
        refuse_existing(out / name, force=force)


def _write(
    out: Path,
    files: Mapping[str, bytes],
    *,
    force: bool,
    as_json: bool,
    notes: Sequence[str] = (),
    also: Sequence[Path] = (),
) -> None:
    """Write files into a folder, and report them together with the files in *also*."""
    from chakram.chakra.write.atomic_file import new_file

    _refuse(out, files, force=force)
    for name, data in files.items():
        with new_file(out / name, force=force) as file:
            file.write(data)
    written = [*map(str, also), *(str(out / name) for name in files)]
    if as_json:
        options.print_json("exported", {"written": written, "notes": list(notes)})
        return
    for note in notes:
        typer.echo(f"note: {note}")
    typer.echo(f"wrote {', '.join(written)}")


@app.command()
def astra_sim(
    experiment: options.ExperimentPath,
    out: _Out = Path(),
    overrides: options.Overrides = None,
    force: _Force = False,
    as_json: options.Json = False,
) -> None:
    """Write the ASTRA-sim inputs for one iteration.

    The inputs are workload, system, memory and network. The network input is for ns-3,
    and for the analytical backends if they support the topology.
    """
    settings, _ = options.read_experiment(experiment, overrides)
    from chakram.chakra.read.groups import encode_group_file
    from chakram.chakra.write.new_set import GROUP_FILE, new_trace_set
    from chakram.simulation.astra_sim_inputs import PREFIX, astra_sim_inputs

    inputs = astra_sim_inputs(settings)
    _refuse(out, inputs.files, force=force)
    with new_trace_set(out, prefix=PREFIX, force=force) as new:
        for name, records in inputs.traces():
            with new.open(name) as file:
                file.writelines(records)
        if groups := inputs.workload.groups:
            with new.open(GROUP_FILE) as file:
                file.write(
                    encode_group_file({str(n): ranks for ranks, n in groups.items()})
                )
        written = new.written()
    _write(
        out,
        inputs.files,
        force=force,
        as_json=as_json,
        notes=inputs.notes,
        also=written,
    )


def _flow_times(results: RunResults) -> bytes:
    """Write fct.txt: flow completion times, as ns-3 writes them.

    The format is that of ns-3's RDMA model (HPCC). There is one line per message.
    """
    from chakram.formats.ns3 import flow_times_text
    from chakram.run_directory.record_exports import flow_times

    return flow_times_text(flow_times(results)).encode()


def _pauses(results: RunResults) -> bytes:
    """Write pfc.txt: PFC pauses of ports, as ns-3 writes them.

    The pauses come from the link samples of the run.
    """
    from chakram.formats.ns3 import pauses_text
    from chakram.run_directory.record_exports import pause_events

    return pauses_text(pause_events(results)).encode()


def _queue_lengths(results: RunResults) -> bytes:
    """Write qlen.txt: queue lengths, as ns-3 writes them.

    The lengths of switch queues come from the link samples of the run.
    """
    from chakram.formats.ns3 import queue_lengths_text
    from chakram.run_directory.record_exports import queue_lengths

    return queue_lengths_text(queue_lengths(results)).encode()


def _pairs(results: RunResults) -> bytes:
    """Write p2p.csv: messages and bytes of every pair of ranks."""
    from chakram.run_directory.record_exports import pairs_csv

    return pairs_csv(results)


def _links(results: RunResults) -> bytes:
    """Write links.csv: traffic in each direction of every link."""
    from chakram.run_directory.record_exports import links_csv

    return links_csv(results)


def _add_file(file_name: str, content_of: Callable[[RunResults], bytes]) -> None:
    """Add a verb that writes the file *file_name* with the result of *content_of*."""

    def export(
        source: _Source,
        out: _Out = Path(),
        runs: options.Runs = None,
        overrides: options.Overrides = None,
        force: _Force = False,
        as_json: options.Json = False,
    ) -> None:
        _refuse(out, [file_name], force=force)
        results = _results_of(source, overrides, runs, quiet=as_json)
        files = {file_name: content_of(results)}
        _write(out, files, force=force, as_json=as_json, notes=_notes(results))

    app.command(file_name.partition(".")[0], help=content_of.__doc__)(export)


_add_file("fct.txt", _flow_times)
_add_file("pfc.txt", _pauses)
_add_file("qlen.txt", _queue_lengths)
_add_file("p2p.csv", _pairs)
_add_file("links.csv", _links)


@app.command()
def nccl_tests(
    source: _Source,
    out: _Out = Path(),
    runs: options.Runs = None,
    overrides: options.Overrides = None,
    force: _Force = False,
    as_json: options.Json = False,
) -> None:
    """Write collectives as JSON documents in the format of nccl-tests 2.19.

    There is one file per test, as nccl-tests writes it with -J.
    """
    from chakram.console.nccl_tests_output import documents_of

    results = _results_of(source, overrides, runs, quiet=as_json)
    documents, notes = documents_of(results, version=chakram.__version__)
    notes = [*_notes(results), *notes]
    files = {
        f"{name}.json": (json.dumps(document, indent=2) + "\n").encode()
        for name, document in documents.items()
    }
    _write(out, files, force=force, as_json=as_json, notes=notes)


_STEP, _OPENMETRICS = "--step", "run.om"


@app.command()
def openmetrics(
    source: _Source,
    out: _Out = Path(),
    step: Annotated[
        str, typer.Option(_STEP, metavar="TIME", help="Time between two samples.")
    ] = "10ms",
    runs: options.Runs = None,
    overrides: options.Overrides = None,
    force: _Force = False,
    as_json: options.Json = False,
) -> None:
    """Write run.om: metrics with timestamps, for promtool."""
    from chakram.foundation.units import parse_time
    from chakram.metrics.backfill import openmetrics as lines_of

    step_ns = parse_time(step, where=_STEP)
    if step_ns < 10**6 or step_ns % 10**6:
        raise typer.BadParameter(
            f"{_STEP} {step}: Prometheus needs whole milliseconds, at least 1ms"
        )
    _refuse(out, [_OPENMETRICS], force=force)
    results = _results_of(source, overrides, runs, quiet=as_json)
    text = "".join(lines_of(results, step_ns=step_ns))
    _write(
        out,
        {_OPENMETRICS: text.encode()},
        force=force,
        as_json=as_json,
        notes=_notes(results),
    )
