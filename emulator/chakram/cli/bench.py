"""``chakram bench all_reduce_perf ...``: nccl-tests' programs, over a network."""

from __future__ import annotations

import asyncio
import json
import math
import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from chakram.cli.options import Json, Overrides, Runs, overrides_of, print_json
from chakram.cli.progress import ProgressReporter
from chakram.collectives.ops import CollectiveOp, nccl_size_bytes
from chakram.errors import ConfigError, EnvironmentProblem, GateFailed
from chakram.units import format_size, format_time, parse_size

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from chakram.config.experiment import Experiment
    from chakram.controller.outcome import RunOutcome
    from chakram.observe.nccl_output import BenchSize, BenchTest

__all__ = ["bench"]

_MOST_SIZES = 1000
_MOST_ITERATIONS = 100_000
_LONG_NS = 60 * 10**9
_VECTOR_BYTES = 16
"""nccl-tests rounds what a rank has of the buffer down to a multiple of so many."""

_ELEMENT_BYTES = {
    **dict.fromkeys(("int8", "uint8", "char", "fp8_e4m3", "fp8_e5m2"), 1),
    **dict.fromkeys(("half", "bfloat16"), 2),
    **dict.fromkeys(("int32", "uint32", "int", "float"), 4),
    **dict.fromkeys(("int64", "uint64", "double"), 8),
}
_REDUCTIONS = ("sum", "prod", "min", "max", "avg", "mulsum")


class _Program(NamedTuple):
    """One of nccl-tests' programs; *algorithm* is the only one that it is."""

    op: CollectiveOp
    algorithm: str | None = None


_PROGRAMS = {
    "all_reduce_perf": _Program(CollectiveOp.ALL_REDUCE),
    "all_gather_perf": _Program(CollectiveOp.ALL_GATHER),
    "reduce_scatter_perf": _Program(CollectiveOp.REDUCE_SCATTER),
    "alltoall_perf": _Program(CollectiveOp.ALL_TO_ALL),
    "sendrecv_perf": _Program(CollectiveOp.SEND_RECV),
    "broadcast_perf": _Program(CollectiveOp.BROADCAST),
    "reduce_perf": _Program(CollectiveOp.REDUCE),
    "gather_perf": _Program(CollectiveOp.GATHER),
    "scatter_perf": _Program(CollectiveOp.SCATTER),
    "hypercube_perf": _Program(CollectiveOp.ALL_GATHER, "recursive_doubling"),
}
_REDUCING = ("all_reduce_perf", "reduce_perf", "reduce_scatter_perf")
_ROOTED = ("broadcast_perf", "reduce_perf", "gather_perf", "scatter_perf")
_WHOLE = ("all_reduce_perf", "broadcast_perf", "reduce_perf", "sendrecv_perf")
"""Programs whose ranks do not divide the buffer."""

_IGNORED = {
    "p": "communicators are not made in parallel",
    "S": "the rows of a run are printed together at its end",
    "C": "there is no time of a CPU",
    "G": "there are no CUDA graphs",
    "R": "buffers are not registered",
    "u": "buffers lie nowhere",
    "M": "there is no memory of a device",
    "D": "there is no device",
    "y": "there are no streams of a device",
}
"""Options that mean nothing here, and why."""


def _size(long: str, short: str, text: str) -> Any:
    return typer.Option(f"--{long}", short, metavar="SIZE", help=text)


def _nothing(long: str, short: str) -> Any:
    return typer.Option(f"--{long}", f"-{short}", hidden=True)


def bench(
    test: Annotated[
        str,
        typer.Argument(metavar="TEST", help=f"One of {', '.join(_PROGRAMS)}."),
    ],
    minbytes: Annotated[str, _size("minbytes", "-b", "Smallest size.")] = "32M",
    maxbytes: Annotated[str, _size("maxbytes", "-e", "Largest size.")] = "32M",
    stepbytes: Annotated[
        str, _size("stepbytes", "-i", "What a size is larger than the one before.")
    ] = "1M",
    stepfactor: Annotated[
        int,
        typer.Option(
            "--stepfactor", "-f", min=0, help="Factor between sizes, instead of -i."
        ),
    ] = 1,
    iters: Annotated[
        int, typer.Option("--iters", "-n", min=1, help="Iterations of each size.")
    ] = 20,
    warmup_iters: Annotated[
        int, typer.Option("--warmup_iters", "-w", min=0, help="Iterations before.")
    ] = 1,
    agg_iters: Annotated[
        int, typer.Option("--agg_iters", "-m", min=1, help="Collectives an iteration.")
    ] = 1,
    average: Annotated[
        int,
        typer.Option(
            "--average", "-a", help="Time: 1: mean over the ranks, 3: of the last one."
        ),
    ] = 1,
    check: Annotated[
        int, typer.Option("--check", "-c", min=0, help="0: look at no payload.")
    ] = 1,
    blocking: Annotated[
        int,
        typer.Option(
            "--blocking", "-z", min=0, max=3, help="1: ranks meet before each."
        ),
    ] = 0,
    datatype: Annotated[
        str, typer.Option("--datatype", "-d", help="Type of elements.")
    ] = "float",
    op: Annotated[str, typer.Option("--op", "-o", help="Reduction: a name.")] = "sum",
    root: Annotated[
        int, typer.Option("--root", "-r", min=0, help="Rank that has a part of its own")
    ] = 0,
    ngpus: Annotated[
        int,
        typer.Option("--ngpus", "-g", min=1, help="-g times -t: ranks; 1: all ports."),
    ] = 1,
    nthreads: Annotated[int, typer.Option("--nthreads", "-t", min=1, hidden=True)] = 1,
    per_iter_timing: Annotated[
        int,
        typer.Option("--per_iter_timing", "-I", min=0, max=1, help="1: print times."),
    ] = 0,
    per_iter_skip: Annotated[
        int, typer.Option("--per_iter_skip", "-K", min=0, hidden=True)
    ] = 0,
    run_cycles: Annotated[
        int, typer.Option("--run_cycles", "-N", min=0, help="Tables.")
    ] = 1,
    timeout: Annotated[
        int, typer.Option("--timeout", "-T", min=0, help="Seconds; 0: no limit.")
    ] = 0,
    output_file: Annotated[
        Path | None,
        typer.Option("--output_file", "-J", metavar="FILE", help="Write JSON there."),
    ] = None,
    world: Annotated[
        str, typer.Option(metavar="WORLD", help="run or simulate.")
    ] = "run",
    experiment: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Fabric and transport; without it quickstart's."
        ),
    ] = None,
    algorithm: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="e.g. ring, tree (`algorithms list`)."),
    ] = None,
    runs: Runs = None,
    overrides: Overrides = None,
    as_json: Json = False,
    parallel_init: Annotated[int | None, _nothing("parallel_init", "p")] = None,
    timestamps: Annotated[int | None, _nothing("report_timestamps", "S")] = None,
    cputime: Annotated[int | None, _nothing("report_cputime", "C")] = None,
    cudagraph: Annotated[int | None, _nothing("cudagraph", "G")] = None,
    register: Annotated[int | None, _nothing("local_register", "R")] = None,
    unalign: Annotated[int | None, _nothing("unalign", "u")] = None,
    memory: Annotated[int | None, _nothing("memory", "M")] = None,
    device: Annotated[int | None, _nothing("device_implementation", "D")] = None,
    stream_null: Annotated[int | None, _nothing("stream_null", "y")] = None,
) -> None:
    """Measure a collective as nccl-tests does.

    The exit code is 6 if a payload was wrong, or NCCL_TESTS_MIN_BW is set and the
    average bus bandwidth is below 90 % of it.
    """
    import chakram

    if test not in _PROGRAMS:
        from chakram.settings.mistakes import suggest

        raise ConfigError(
            f"chakram bench {test}", "there is no such test", suggest(test, _PROGRAMS)
        )
    if world not in ("run", "simulate"):
        raise ConfigError(f"--world {world}", "is not known", "run or simulate")
    if average not in (1, 3):
        raise ConfigError(
            f"-a {average}",
            "is not measured: times are not kept for each rank",
            "-a 1: mean over the ranks; -a 3: until the last one is done",
        )
    if datatype not in _ELEMENT_BYTES:
        raise ConfigError(
            f"-d {datatype}", "is not one type", ", ".join(_ELEMENT_BYTES)
        )
    if op not in _REDUCTIONS:
        raise ConfigError(f"-o {op}", "is not one reduction", ", ".join(_REDUCTIONS))
    if not run_cycles:
        raise ConfigError("-N 0", "would never end", "e.g. -N 2")
    given = (
        parallel_init, timestamps, cputime, cudagraph, register, unalign, memory,
        device, stream_null,
    )  # fmt: skip
    letters = ("p", "S", "C", "G", "R", "u", "M", "D", "y")
    ignored = [
        f"-{letter} is ignored: {_IGNORED[letter]}"
        for letter, value in zip(letters, given, strict=True)
        if value
    ]
    asked = list(
        _sizes(
            _bytes("-b", minbytes),
            _bytes("-e", maxbytes),
            _bytes("-i", stepbytes),
            stepfactor,
        )
    )
    least = _least_busbw()
    path = experiment or _quickstart()
    said = overrides_of(overrides)
    base = _loaded(path, said, {})
    nranks = ngpus * nthreads if ngpus * nthreads > 1 else _ports(base, path)
    if nranks < 2:
        raise ConfigError("-g", f"{nranks} rank has no network", "e.g. -g 8")
    if root >= nranks:
        raise ConfigError(f"-r {root}", f"there are {nranks} ranks", "the first is 0")
    program = _PROGRAMS[test]
    sizes = tuple(
        _rounded(each, test, nranks, _ELEMENT_BYTES[datatype]) for each in asked
    )
    contributed = list(
        dict.fromkeys(each.input_bytes for each in sizes if each.input_bytes)
    )
    if not contributed:
        raise ConfigError(
            f"-e {maxbytes}",
            f"is less than an element of each of {nranks} ranks",
            f"e.g. -e {format_size(nranks * _VECTOR_BYTES)}",
        )
    total = iters * run_cycles
    if (total + warmup_iters) * agg_iters > _MOST_ITERATIONS:
        raise ConfigError(
            "-n", f"{total * agg_iters} iterations are too many",
            f"at most {_MOST_ITERATIONS}",
        )  # fmt: skip
    stream: dict[str, Any] = {
        "op": str(program.op),
        "sizes": [f"{each}B" for each in contributed],
        "count": agg_iters,
        "barrier": blocking in (1, 3),
    }
    if test in _ROOTED:
        stream["root"] = root
    trace = {"synth": "collectives", "ranks": nranks, "streams": [stream]}
    changes: dict[str, Any] = {
        "name": test,
        "jobs": [{"name": test, "trace": trace, "compute": {"from": "none"}}],
        "arrivals": None,
        "iterations": {"warmup": warmup_iters, "measured": total},
        "predict": ["bound"],
    }
    if not check:
        changes["transport.verify"] = "off"
    if timeout:
        changes["stop_if.duration"] = f"{timeout}s"
    if name := program.algorithm or algorithm:
        changes[f"collectives.{program.op}"] = name
    settings = _loaded(path, said, changes)
    bench_test = _test(
        test,
        nranks=nranks,
        sizes=sizes,
        datatype=datatype,
        redop=op if test in _REDUCING else "none",
        root=root if test in _ROOTED else None,
        average=average,
        per_iteration=bool(per_iter_timing),
        skip=min(per_iter_skip, iters - 1),
        least=least,
        config={
            "nthreads": nthreads,
            "ngpus": ngpus,
            "minimum_bytes": asked[0],
            "maximum_bytes": _bytes("-e", maxbytes),
            **(
                {"step_factor": stepfactor}
                if stepfactor > 1
                else {"step_bytes": _bytes("-i", stepbytes)}
            ),
            "warmup_iters": warmup_iters,
            "iterations": iters,
            "aggregated_iterations": agg_iters,
            "validation": check,
            "graph": 0,
            "blocking_collectives": "true" if blocking else "false",
            "per_iter_timing": "true" if per_iter_timing else "false",
            "per_iter_skip": per_iter_skip,
            "parallel_init": "false",
        },
    )
    for note in ignored:
        typer.echo(f"chakram: note: {note}", err=True)
    if world == "run" and not as_json:
        _tell_time(settings, bench_test, (total + warmup_iters) * agg_iters)
    started = datetime.now(UTC)
    changed = {**{key: json.dumps(value) for key, value in changes.items()}, **said}
    outcome = _outcome(
        settings,
        "".join(f"# --set {key}={value}\n" for key, value in changed.items())
        + path.read_text(encoding="utf-8"),
        world=world,
        runs=runs,
        quiet=as_json,
    )
    if outcome.error is not None:
        raise outcome.error
    from chakram.observe import nccl_output
    from chakram.observe.run_results import open_run

    cycles = nccl_output.measured_rows(
        open_run(outcome.directory), bench_test, cycles=run_cycles
    )
    document = nccl_output.document(
        bench_test,
        cycles,
        args=[test, *sys.argv[sys.argv.index(test) + 1 :]]
        if test in sys.argv
        else [test],
        started=f"{started:%Y-%m-%d %H:%M:%S}",
        ended=f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}",
        version=chakram.__version__,
        directory=str(outcome.directory),
        banners=outcome.summary.banners,
    )
    notes = [
        f"{world} of {outcome.summary.facts.fabric}; in-place is the same: a network "
        "does not see where buffers lie"
    ]
    if output_file is not None:
        notes.insert(0, f"Writing JSON output to {_written(output_file, document)}")
    if as_json:
        print_json("bench", document)
    else:
        for line in nccl_output.table(
            bench_test,
            cycles,
            banners=outcome.summary.banners,
            notes=notes,
            version=chakram.__version__,
            directory=str(outcome.directory),
        ):
            print(line)
    verdicts = (
        document["out_of_bounds"]["okay"],
        document["average_bus_bandwidth"]["okay"],
    )
    if "false" in verdicts:
        raise typer.Exit(GateFailed.exit_code)


def _bytes(option: str, text: str) -> int:
    """Return a size of nccl-tests: a number alone is bytes."""
    plain = text.strip()
    where = f"{option} {text}"
    if plain.isdecimal() and len(plain) < 20:
        return int(plain)
    return parse_size(plain, where=where)


def _sizes(least: int, most: int, step: int, factor: int) -> Iterator[int]:
    if most < least:
        raise ConfigError(
            f"-b {least} -e {most}", "the largest size is below the smallest", None
        )
    if (factor > 1 and not least) or (factor <= 1 and not step and most > least):
        raise ConfigError(
            "-b 0" if factor > 1 else "-i 0", "sizes would never grow", "e.g. -b 8 -f 2"
        )
    size = least
    for _ in range(_MOST_SIZES):
        yield size
        size = size * factor if factor > 1 else size + step
        if size > most or most == least:
            return
    raise ConfigError(
        f"-b {least} -e {most}", f"are more than {_MOST_SIZES} sizes",
        "take a larger -i, or -f 2",
    )  # fmt: skip


def _rounded(asked: int, test: str, nranks: int, element: int) -> BenchSize:
    """Return what nccl-tests makes of a size: whole elements of all ranks."""
    from chakram.observe.nccl_output import BenchSize

    count = asked // element
    if test in _WHOLE:
        size = count * element
        return BenchSize(
            asked_bytes=asked,
            size_bytes=size,
            count=count,
            input_bytes=size,
            record_bytes=size,
        )
    # What a rank has of it begins where a vector does.
    count = count // nranks // (vector := max(1, _VECTOR_BYTES // element)) * vector
    share = count * element
    op = _PROGRAMS[test].op
    gathers = op in (CollectiveOp.ALL_GATHER, CollectiveOp.GATHER)
    input_bytes = share if gathers else share * nranks
    whole = nccl_size_bytes(op, input_bytes=input_bytes, nranks=nranks)
    return BenchSize(
        asked_bytes=asked,
        size_bytes=share * (nranks - 1) if test == "hypercube_perf" else whole,
        count=count,
        input_bytes=input_bytes,
        record_bytes=whole,
    )


def _test(
    name: str,
    *,
    nranks: int,
    sizes: tuple[BenchSize, ...],
    least: float | None,
    **said: Any,
) -> BenchTest:
    from chakram.observe.nccl_output import DEVICE, BenchTest
    from chakram.results.bandwidth import bus_factor

    factor = (
        1.0
        if name == "hypercube_perf"
        else float(bus_factor(_PROGRAMS[name].op, nranks=nranks))
    )
    return BenchTest(
        name=name,
        nranks=nranks,
        factor=factor,
        sizes=sizes,
        least_busbw=least,
        devices=tuple((f"port{rank}", DEVICE) for rank in range(nranks)),
        **said,
    )


def _least_busbw() -> float | None:
    text = os.environ.get("NCCL_TESTS_MIN_BW")
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise ConfigError(
            "NCCL_TESTS_MIN_BW", f"{text!r} is not a bandwidth in GB/s", "e.g. 11.5"
        )
    return value


def _quickstart() -> Path:
    from chakram.cli.init import configs_folder

    return configs_folder() / "quickstart.yaml"


def _loaded(
    path: Path, said: Mapping[str, str], changes: Mapping[str, Any]
) -> Experiment:
    """Return the experiment with what this verb puts into it; the user's go last."""
    from chakram.config.experiment import load_experiment

    made = {key: json.dumps(value) for key, value in changes.items()}
    return load_experiment(
        path,
        overrides={**made, **said},
        options={key: f"chakram bench: {key}" for key in made if key not in said},
    )


def _ports(experiment: Experiment, path: Path) -> int:
    """Return how many ports the fabric has."""
    topology = experiment.fabric.to_topology(None)
    if topology is None:
        raise ConfigError(
            str(path), "does not say how many ports the fabric has", "say -g RANKS"
        )
    return len(topology.hosts)


def _tell_time(experiment: Experiment, test: BenchTest, iterations: int) -> None:
    """Say how long it will take at least, where that is long."""
    topology = experiment.fabric.to_topology(test.nranks)
    rates = [link.rate_bps for link in topology.links] if topology else []
    known = [rate for rate in rates if rate]
    if not known:
        return
    moved = sum(each.size_bytes for each in test.sizes) * test.factor * iterations
    time_ns = moved * 8e9 / min(known)
    if time_ns > _LONG_NS:
        typer.echo(
            f"chakram: note: takes {format_time(time_ns)} at least at the rate of the "
            "ports; fewer iterations (-n), smaller sizes (-e) or --world simulate are "
            "quicker",
            err=True,
        )


def _outcome(
    settings: Experiment,
    text: str,
    *,
    world: str,
    runs: Path | None,
    quiet: bool,
) -> RunOutcome:
    from chakram.controller.request import RunRequest
    from chakram.controller.shell import run_experiment
    from chakram.controller.virtual_time import simulate_experiment

    with ProgressReporter(quiet=quiet, interval_ns=0) as progress:
        request = RunRequest(
            experiment=settings,
            text=text,
            runs_directory=runs or settings.runs,
            progress=progress,
        )
        if world == "simulate":
            return simulate_experiment(request)
        return asyncio.run(run_experiment(request))


def _written(path: Path, document: Mapping[str, Any]) -> Path:
    """Write JSON to a new file; like nccl-tests, to FILE.0 and so on where it is."""
    place, tried = path, 0
    while True:
        try:
            with place.open("x", encoding="utf-8") as file:
                json.dump(document, file, indent=2)
                file.write("\n")
            return place
        except FileExistsError:
            place, tried = Path(f"{path}.{tried}"), tried + 1
        except OSError as error:
            raise EnvironmentProblem(
                str(place),
                f"cannot be written: {error.strerror}",
                "does its folder exist?",
            ) from error
