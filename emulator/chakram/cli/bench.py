"""``chakram bench all_reduce_perf ...``: nccl-tests' programs, over a network."""

from __future__ import annotations

import asyncio
import json
import math
import os
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chakram.cli.common.bench_programs import (
    ELEMENT_BYTES,
    IGNORED,
    PROGRAMS,
    REDUCING,
    REDUCTIONS,
    ROOTED,
    UNEVEN,
    VECTOR_BYTES,
    bytes_of,
    matrix_file,
    rounded,
    sizes_of,
    uneven_size,
)
from chakram.cli.common.options import Json, Overrides, Runs, overrides_of, print_json
from chakram.cli.common.progress import run_request
from chakram.foundation.errors import (
    ConfigError,
    EnvironmentProblem,
    GateFailed,
    RunInterrupted,
)
from chakram.foundation.units import format_size, format_time

if TYPE_CHECKING:
    from chakram.config.experiment import Experiment
    from chakram.console.nccl_tests_output import BenchRow, BenchSize, BenchTest
    from chakram.execution.outcome import RunOutcome


_MOST_ITERATIONS = 100_000
_LONG_NS = 60 * 10**9
_LONG_BYTES = 1 << 28
_TIME = "%Y-%m-%d %H:%M:%S"


def _size(long: str, short: str, text: str) -> Any:
    return typer.Option(f"--{long}", short, metavar="SIZE", help=text)


def _number(
    long: str, short: str, text: str, least: int, most: int | None = None
) -> Any:
    return typer.Option(f"--{long}", short, min=least, max=most, help=text)


def _nothing(long: str, short: str, least: int | None = None) -> Any:
    return typer.Option(f"--{long}", f"-{short}", min=least, hidden=True)


_AVERAGE = (
    "Time: 0: of rank 0, 1: mean over the ranks, 2: of the fastest, 3: until the last "
    "one is done."
)


def bench(
    test: Annotated[
        str,
        typer.Argument(metavar="TEST", help=f"One of {', '.join(PROGRAMS)}."),
    ],
    minbytes: Annotated[str, _size("minbytes", "-b", "Smallest size.")] = "32M",
    maxbytes: Annotated[str, _size("maxbytes", "-e", "Largest size.")] = "32M",
    stepbytes: Annotated[
        str, _size("stepbytes", "-i", "What a size is larger than the one before.")
    ] = "1M",
    stepfactor: Annotated[
        int, _number("stepfactor", "-f", "Factor between sizes, instead of -i.", 0)
    ] = 1,
    iters: Annotated[int, _number("iters", "-n", "Iterations of each size.", 1)] = 20,
    warmup_iters: Annotated[
        int, _number("warmup_iters", "-w", "Iterations before.", 0)
    ] = 1,
    agg_iters: Annotated[
        int, _number("agg_iters", "-m", "Collectives an iteration.", 1)
    ] = 1,
    average: Annotated[int, _number("average", "-a", _AVERAGE, 0, 3)] = 1,
    check: Annotated[int, _number("check", "-c", "0: look at no payload.", 0)] = 1,
    blocking: Annotated[
        int, _number("blocking", "-z", "1: ranks meet before each.", 0, 3)
    ] = 0,
    datatype: Annotated[
        str, typer.Option("--datatype", "-d", help="Type of elements.")
    ] = "float",
    op: Annotated[str, typer.Option("--op", "-o", help="Reduction: a name.")] = "sum",
    root: Annotated[
        int, _number("root", "-r", "Rank that has a part of its own", 0)
    ] = 0,
    ngpus: Annotated[
        int, _number("ngpus", "-g", "-g times -t: ranks; 1: all ports.", 1)
    ] = 1,
    nthreads: Annotated[int, _nothing("nthreads", "t", 1)] = 1,
    per_iter_timing: Annotated[
        int, _number("per_iter_timing", "-I", "1: print times.", 0, 1)
    ] = 0,
    per_iter_skip: Annotated[int, _nothing("per_iter_skip", "K", 0)] = 0,
    run_cycles: Annotated[
        int, _number("run_cycles", "-N", "Tables; 0: for ever.", 0)
    ] = 1,
    timeout: Annotated[int, _number("timeout", "-T", "Seconds; 0: no limit.", 0)] = 0,
    timestamps: Annotated[
        int, _number("report_timestamps", "-S", "1: print times.", 0, 1)
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
    from chakram.cli.init import configs_folder
    from chakram.console import nccl_tests_output
    from chakram.run_directory.reader import open_run
    from chakram.summary.bandwidth import bus_factor

    if test not in PROGRAMS:
        from chakram.settings.located_errors import suggest

        raise ConfigError(
            f"chakram bench {test}", "there is no such test", suggest(test, PROGRAMS)
        )
    if world not in ("run", "simulate"):
        raise ConfigError(f"--world {world}", "is not known", "run or simulate")
    if datatype not in ELEMENT_BYTES:
        raise ConfigError(f"-d {datatype}", "is not one type", ", ".join(ELEMENT_BYTES))
    if op not in REDUCTIONS:
        raise ConfigError(f"-o {op}", "is not one reduction", ", ".join(REDUCTIONS))
    given = {
        **{"p": parallel_init, "C": cputime, "G": cudagraph, "R": register},
        **{"u": unalign, "M": memory, "D": device, "y": stream_null},
    }
    least_bytes, most_bytes = bytes_of("-b", minbytes), bytes_of("-e", maxbytes)
    step_bytes = bytes_of("-i", stepbytes)
    asked = list(sizes_of(least_bytes, most_bytes, step_bytes, stepfactor))
    least = _least_busbw()
    path = experiment or configs_folder() / "quickstart.yaml"
    said = overrides_of(overrides)
    base = _loaded(path, said, {})
    nranks = ngpus * nthreads if ngpus * nthreads > 1 else _ports(base, path)
    if nranks < 2:
        raise ConfigError("-g", f"{nranks} rank has no network", "e.g. -g 8")
    if root >= nranks:
        raise ConfigError(f"-r {root}", f"there are {nranks} ranks", "the first is 0")
    program = PROGRAMS[test]
    element = ELEMENT_BYTES[datatype]
    sizes: tuple[BenchSize, ...]
    if test == UNEVEN:
        if len(asked) > 1:
            raise ConfigError(f"-b {minbytes} -e {maxbytes}", "are several sizes",
                              f"{UNEVEN} has that of its matrix")  # fmt: skip
        sizes = (uneven_size(asked[0], matrix_file(), nranks, element),)
    else:
        sizes = tuple(rounded(each, test, nranks, element) for each in asked)
    contributed = list(
        dict.fromkeys(each.input_bytes for each in sizes if each.input_bytes)
    )
    if not contributed:
        raise ConfigError(
            f"-e {maxbytes}",
            f"is less than an element of each of {nranks} ranks",
            f"e.g. -e {format_size(nranks * VECTOR_BYTES)}",
        )
    total = iters * (run_cycles or 1)
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
    if test in ROOTED:
        stream["root"] = root
    if test == UNEVEN:
        del stream["sizes"]
        stream["splits"] = str(matrix_file())
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
    factor = 1.0
    if test != "hypercube_perf":
        factor = float(bus_factor(program.op, nranks=nranks))
    bench_test = nccl_tests_output.BenchTest(
        name=test,
        nranks=nranks,
        factor=factor,
        sizes=sizes,
        devices=tuple(
            (f"port{rank}", nccl_tests_output.DEVICE) for rank in range(nranks)
        ),
        datatype=datatype,
        redop=op if test in REDUCING else "none",
        root=root if test in ROOTED else None,
        average=average,
        per_iteration=bool(per_iter_timing),
        timestamps=bool(timestamps),
        skip=min(per_iter_skip, iters - 1),
        least_busbw=least,
        config={
            "nthreads": nthreads,
            "ngpus": ngpus,
            "minimum_bytes": asked[0],
            "maximum_bytes": most_bytes,
            **(
                {"step_factor": stepfactor}
                if stepfactor > 1
                else {"step_bytes": step_bytes}
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
    for letter in filter(given.get, given):
        typer.echo(f"chakram: note: -{letter} is ignored: {IGNORED[letter]}", err=True)
    if world == "run" and not as_json:
        _tell_time(settings, bench_test, (total + warmup_iters) * agg_iters)
    started = datetime.now(UTC)
    changed = {**{key: json.dumps(value) for key, value in changes.items()}, **said}
    text = "".join(f"# --set {key}={value}\n" for key, value in changed.items())
    text += path.read_text(encoding="utf-8")
    cycles: list[Sequence[BenchRow]] = []
    stopped: RunInterrupted | None = None
    banners: tuple[str, ...] = ()
    directory = ""
    while stopped is None and (not cycles or not run_cycles):
        try:
            outcome = _outcome(settings, text, world=world, runs=runs, quiet=as_json)
            if outcome.error is not None:
                raise outcome.error
        except RunInterrupted as error:
            # -N 0 ends when the user ends it, with what was measured until then.
            if not cycles:
                raise
            stopped = error
            continue
        found = nccl_tests_output.measured_rows(
            open_run(outcome.directory), bench_test, cycles=run_cycles or 1
        )
        said_banners = outcome.summary.banners
        lines = [f"# !! {each}" for each in said_banners] if cycles else []
        if not cycles:
            lines += nccl_tests_output.opening(
                bench_test,
                banners=said_banners,
                notes=[
                    f"{world} of {outcome.summary.facts.fabric}; in-place is the same: "
                    "a network does not see where buffers lie"
                ],
                version=chakram.__version__,
            )
        now = f"{datetime.now():{_TIME}}"  # noqa: DTZ005 (as nccl-tests prints it)
        for rows in found:
            lines += nccl_tests_output.cycle_lines(bench_test, rows, printed=now)
        if not as_json:
            print("\n".join(lines), flush=True)
        cycles += found
        banners = tuple(dict.fromkeys((*banners, *said_banners)))
        directory = str(outcome.directory)
    document = nccl_tests_output.document(
        bench_test,
        cycles,
        args=[test, *sys.argv[sys.argv.index(test) + 1 :]]
        if test in sys.argv
        else [test],
        started=f"{started:{_TIME}}",
        ended=f"{datetime.now(UTC):{_TIME}}",
        version=chakram.__version__,
        directory=directory,
        banners=banners,
    )
    notes = []
    if output_file is not None:
        notes.append(f"Writing JSON output to {_written(output_file, document)}")
    if as_json:
        print_json("bench", document)
    else:
        for line in nccl_tests_output.closing(
            bench_test, cycles, notes=notes, directory=directory
        ):
            print(line)
    if stopped is not None:
        raise stopped
    verdicts = (
        document["out_of_bounds"]["okay"],
        document["average_bus_bandwidth"]["okay"],
    )
    if "false" in verdicts:
        raise typer.Exit(GateFailed.exit_code)


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
    total_bytes = sum(each.size_bytes for each in test.sizes) * iterations
    time_ns = total_bytes * _byte_ns(experiment, test, min(known))
    if time_ns > _LONG_NS:
        typer.echo(
            f"chakram: note: takes {format_time(time_ns)} at least at the rate of the "
            "ports; fewer iterations (-n), smaller sizes (-e) or --world simulate are "
            "quicker",
            err=True,
        )


def _byte_ns(experiment: Experiment, test: BenchTest, rate_bps: int) -> float:
    """Return what a byte of S takes at least: by its algorithm, where one is named."""
    from chakram.collectives.algorithms import AUTO, algorithm_fitting
    from chakram.collectives.ops import nccl_size_bytes
    from chakram.preparation.algorithm_summary import summarise_algorithm

    op = PROGRAMS[test.name].op
    choice = experiment.algorithm_of(op)
    if not isinstance(choice, str) or choice == AUTO:
        return test.factor * 8e9 / rate_bps
    summary = summarise_algorithm(
        algorithm_fitting(op, choice, nranks=test.nranks),
        nranks=test.nranks,
        root=test.root or 0,
        input_bytes=_LONG_BYTES,
        rate_bps=rate_bps,
        delay_ns=0,
    )
    size = nccl_size_bytes(op, input_bytes=_LONG_BYTES, nranks=test.nranks)
    return summary.bound_ns / size


def _outcome(
    settings: Experiment,
    text: str,
    *,
    world: str,
    runs: Path | None,
    quiet: bool,
) -> RunOutcome:
    from chakram.execution.run_experiment import run_experiment
    from chakram.simulation.simulate_experiment import simulate_experiment

    with run_request(settings, text, runs=runs, quiet=quiet) as request:
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
