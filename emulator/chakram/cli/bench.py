"""``chakram bench all_reduce_perf ...``: measure collectives as nccl-tests does."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from chakram.cli.common.bench_options import BenchOptions
from chakram.cli.common.bench_programs import (
    ELEMENT_BYTES,
    IGNORED,
    PROGRAMS,
    REDUCING,
    ROOTED,
    UNEVEN,
    VECTOR_BYTES,
    bytes_of,
    matrix_file,
    rounded,
    sizes_of,
    uneven_size,
)
from chakram.cli.common.dataclass_options import with_options
from chakram.cli.common.options import (
    overrides_of,
    print_json,
)
from chakram.cli.common.progress import run_request
from chakram.foundation.coroutines import run_coroutine
from chakram.foundation.errors import (
    ConfigError,
    EnvironmentProblem,
    GateFailed,
    RunInterrupted,
)
from chakram.foundation.platform_support import require_linux
from chakram.foundation.units import format_size, format_time
from chakram.foundation.write_errors import explained_writes

if TYPE_CHECKING:
    from chakram.config.experiment import Experiment
    from chakram.console.nccl_tests_rows import BenchRow, BenchSize, BenchTest
    from chakram.execution.outcome import RunOutcome


_MOST_ITERATIONS = 100_000
_LONG_NS = 60 * 10**9
_LONG_BYTES = 1 << 28
_TIME = "%Y-%m-%d %H:%M:%S"


@with_options("options", BenchOptions)
def bench(options: BenchOptions) -> None:
    """Measure a collective as nccl-tests does.

    The exit code is 6 if a payload was wrong. It is also 6 if NCCL_TESTS_MIN_BW is set
    and the average bus bandwidth is below 90 % of it.
    """
    from chakram.cli.init import configs_folder
    from chakram.settings.yaml_document import recorded_changes

    options.check_names()
    if options.world == "run":
        require_linux("chakram bench without --world simulate")
    asked = _asked(options)
    least = _least_busbw()
    path = options.experiment or configs_folder() / "quickstart.yaml"
    said = overrides_of(options.overrides)
    nranks = _nranks(options, path, said)
    sizes = _bench_sizes(options, asked, nranks)
    changes = _changes(options, sizes, nranks)
    settings = _loaded(path, said, changes)
    test = _bench_test(options, sizes, asked, nranks=nranks, least_busbw=least)
    for letter in options.ignored():
        typer.echo(f"chakram: note: -{letter} is ignored: {IGNORED[letter]}", err=True)
    if options.world == "run" and not options.as_json:
        _tell_time(settings, test, options.collectives)
    started = datetime.now(UTC)
    changed = {**{key: json.dumps(value) for key, value in changes.items()}, **said}
    text = recorded_changes(changed) + path.read_text("utf-8")
    measurement = _Measurement(options, test, settings, text)
    measurement.run()
    _report(options, test, measurement, started=started)


def _asked(options: BenchOptions) -> list[int]:
    """Return the sizes that -b, -e, -i and -f select."""
    least_bytes = bytes_of("-b", options.minbytes)
    most_bytes = bytes_of("-e", options.maxbytes)
    step_bytes = bytes_of("-i", options.stepbytes)
    return list(sizes_of(least_bytes, most_bytes, step_bytes, options.stepfactor))


def _nranks(options: BenchOptions, path: Path, said: Mapping[str, str]) -> int:
    """Return the number of ranks: as given, or one for each port of the fabric."""
    given = options.ngpus * options.nthreads
    nranks = given if given > 1 else _ports(_loaded(path, said, {}), path)
    if nranks < 2:
        raise ConfigError("-g", f"{nranks} rank uses no network", "e.g. -g 8")
    if options.root >= nranks:
        raise ConfigError(
            f"-r {options.root}", f"there are {nranks} ranks", "numbers start at 0"
        )
    return nranks


def _bench_sizes(
    options: BenchOptions, asked: Sequence[int], nranks: int
) -> tuple[BenchSize, ...]:
    """Return the sizes to measure, as nccl-tests rounds them."""
    element = ELEMENT_BYTES[options.datatype]
    if options.test == UNEVEN:
        if len(asked) > 1:
            raise ConfigError(
                f"-b {options.minbytes} -e {options.maxbytes}", "give several sizes",
                f"{UNEVEN} has only the size of its matrix",
            )  # fmt: skip
        return (uneven_size(asked[0], matrix_file(), nranks, element),)
    return tuple(rounded(each, options.test, nranks, element) for each in asked)


def _changes(
    options: BenchOptions, sizes: Sequence[BenchSize], nranks: int
) -> dict[str, Any]:
    """Return the keys of the experiment that this verb sets."""
    program = PROGRAMS[options.test]
    contributed = list(
        dict.fromkeys(each.input_bytes for each in sizes if each.input_bytes)
    )
    if not contributed:
        raise ConfigError(
            f"-e {options.maxbytes}",
            f"is less than one element for each of {nranks} ranks",
            f"e.g. -e {format_size(nranks * VECTOR_BYTES)}",
        )
    if options.collectives > _MOST_ITERATIONS:
        raise ConfigError(
            "-n", f"{options.measured * options.agg_iters} iterations are too many",
            f"at most {_MOST_ITERATIONS}",
        )  # fmt: skip
    stream: dict[str, Any] = {
        "op": str(program.op),
        "sizes": [f"{each}B" for each in contributed],
        "count": options.agg_iters,
        "barrier": options.blocking in (1, 3),
    }
    if options.test in ROOTED:
        stream["root"] = options.root
    if options.test == UNEVEN:
        del stream["sizes"]
        stream["splits"] = str(matrix_file())
    trace = {"synth": "collectives", "ranks": nranks, "streams": [stream]}
    changes: dict[str, Any] = {
        "name": options.test,
        "jobs": [{"name": options.test, "trace": trace, "compute": {"from": "none"}}],
        "arrivals": None,
        "iterations": {"warmup": options.warmup_iters, "measured": options.measured},
        "predict": ["bound"],
    }
    if not options.check:
        changes["transport.verify"] = "off"
    if options.timeout:
        changes["stop_if.duration"] = f"{options.timeout}s"
    if name := program.algorithm or options.algorithm:
        changes[f"collectives.{program.op}"] = name
    return changes


def _bench_test(
    options: BenchOptions,
    sizes: tuple[BenchSize, ...],
    asked: Sequence[int],
    *,
    nranks: int,
    least_busbw: float | None,
) -> BenchTest:
    """Return the test as nccl-tests describes it in its output."""
    from chakram.console.nccl_tests_output import DEVICE
    from chakram.console.nccl_tests_rows import BenchTest
    from chakram.summary.bandwidth import bus_factor

    test = options.test
    factor = 1.0
    if test != "hypercube_perf":
        factor = float(bus_factor(PROGRAMS[test].op, nranks=nranks))
    return BenchTest(
        name=test,
        nranks=nranks,
        factor=factor,
        sizes=sizes,
        devices=tuple((f"port{rank}", DEVICE) for rank in range(nranks)),
        datatype=options.datatype,
        redop=options.op if test in REDUCING else "none",
        root=options.root if test in ROOTED else None,
        average=options.average,
        per_iteration=bool(options.per_iter_timing),
        timestamps=bool(options.timestamps),
        skip=min(options.per_iter_skip, options.iters - 1),
        least_busbw=least_busbw,
        config={
            "nthreads": options.nthreads,
            "ngpus": options.ngpus,
            "minimum_bytes": asked[0],
            "maximum_bytes": bytes_of("-e", options.maxbytes),
            **(
                {"step_factor": options.stepfactor}
                if options.stepfactor > 1
                else {"step_bytes": bytes_of("-i", options.stepbytes)}
            ),
            "warmup_iters": options.warmup_iters,
            "iterations": options.iters,
            "aggregated_iterations": options.agg_iters,
            "validation": options.check,
            "graph": 0,
            "blocking_collectives": "true" if options.blocking else "false",
            "per_iter_timing": "true" if options.per_iter_timing else "false",
            "per_iter_skip": options.per_iter_skip,
            "parallel_init": "false",
        },
    )


@dataclass(slots=True)
class _Measurement:
    """The runs of one test. The results of each run are printed when it ends.

    Attributes:
        cycles: The rows of each cycle, which is one printed table.
        stopped: The interruption that ended an endless test.
        banners: Banners of all runs, without duplicates.
        directory: The last run directory.
    """

    options: BenchOptions
    test: BenchTest
    settings: Experiment
    text: str
    cycles: list[Sequence[BenchRow]] = field(default_factory=list)
    stopped: RunInterrupted | None = None
    banners: tuple[str, ...] = ()
    directory: str = ""

    def run(self) -> None:
        """Run once, or repeatedly with -N 0 until an interrupt. Store the results.

        Raises:
            RunInterrupted: If there was no result before the interruption.
            ChakramError: If a run fails.
        """
        while self.stopped is None and (not self.cycles or not self.options.run_cycles):
            try:
                self._run_once()
            except RunInterrupted as error:
                if not self.cycles:
                    raise
                self.stopped = error

    def _run_once(self) -> None:
        import chakram
        from chakram.console import nccl_tests_output, nccl_tests_rows
        from chakram.run_directory.reader import open_run

        options = self.options
        outcome = _outcome(
            self.settings,
            self.text,
            world=options.world,
            runs=options.runs,
            quiet=options.as_json,
        )
        if outcome.error is not None:
            raise outcome.error
        found = nccl_tests_rows.measured_rows(
            open_run(outcome.directory), self.test, cycles=options.run_cycles or 1
        )
        banners = outcome.summary.banners
        if self.cycles:
            lines = [f"# !! {each}" for each in banners]
        else:
            lines = nccl_tests_output.opening(
                self.test,
                banners=banners,
                notes=[
                    f"{options.world} of {outcome.summary.facts.fabric}; in-place "
                    "results are the same: buffers do not affect a network"
                ],
                version=chakram.__version__,
            )
        now = f"{datetime.now():{_TIME}}"  # noqa: DTZ005 (as nccl-tests prints it)
        for rows in found:
            lines += nccl_tests_output.cycle_lines(self.test, rows, printed=now)
        if not options.as_json:
            print("\n".join(lines), flush=True)
        self.cycles += found
        self.banners = tuple(dict.fromkeys((*self.banners, *banners)))
        self.directory = str(outcome.directory)


def _report(
    options: BenchOptions,
    test: BenchTest,
    measurement: _Measurement,
    *,
    started: datetime,
) -> None:
    """Print the closing lines or a JSON document, and write the JSON file if requested.

    Raises:
        RunInterrupted: If the user ended the test.
        typer.Exit: If a payload was wrong or the bandwidth was too low.
    """
    import chakram
    from chakram.console import nccl_tests_output

    name = options.test
    document = nccl_tests_output.document(
        test,
        measurement.cycles,
        args=[name, *sys.argv[sys.argv.index(name) + 1 :]]
        if name in sys.argv
        else [name],
        started=f"{started:{_TIME}}",
        ended=f"{datetime.now(UTC):{_TIME}}",
        version=chakram.__version__,
        directory=measurement.directory,
        banners=measurement.banners,
    )
    notes = []
    if options.output_file is not None:
        notes.append(
            f"Writing JSON output to {_written(options.output_file, document)}"
        )
    if options.as_json:
        print_json("bench", document)
    else:
        for line in nccl_tests_output.closing(
            test, measurement.cycles, notes=notes, directory=measurement.directory
        ):
            print(line)
    if measurement.stopped is not None:
        raise measurement.stopped
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
    """Return the experiment with this verb's changes, except keys that the user set."""
    from chakram.config.experiment import load_experiment

    made = {key: json.dumps(value) for key, value in changes.items()}
    return load_experiment(
        path,
        overrides={**made, **said},
        options={key: f"chakram bench: {key}" for key in made if key not in said},
    )


def _ports(experiment: Experiment, path: Path) -> int:
    """Return the number of ports of the fabric."""
    topology = experiment.fabric.to_topology(None)
    if topology is None:
        raise ConfigError(
            str(path), "does not specify the ports of its fabric", "use -g RANKS"
        )
    return len(topology.hosts)


def _tell_time(experiment: Experiment, test: BenchTest, iterations: int) -> None:
    """Print a lower bound on the duration of the test, if the bound is large."""
    topology = experiment.fabric.to_topology(test.nranks)
    rates = [link.rate_bps for link in topology.links] if topology else []
    known = [rate for rate in rates if rate]
    if not known:
        return
    total_bytes = sum(each.size_bytes for each in test.sizes) * iterations
    time_ns = total_bytes * _byte_ns(experiment, test, min(known))
    if time_ns > _LONG_NS:
        typer.echo(
            f"chakram: note: this takes at least {format_time(time_ns)} at the port "
            "rate; to shorten it, use fewer iterations (-n), smaller sizes (-e) or "
            "--world simulate",
            err=True,
        )


def _byte_ns(experiment: Experiment, test: BenchTest, rate_bps: int) -> float:
    """Return the minimum time per byte of a size with the configured algorithm."""
    from chakram.collectives.algorithms import AUTO, algorithm_fitting
    from chakram.collectives.ops import nccl_size_bytes
    from chakram.preparation.algorithm_summary import summarize_algorithm

    op = PROGRAMS[test.name].op
    choice = experiment.algorithm_of(op)
    if not isinstance(choice, str) or choice == AUTO:
        return test.factor * 8e9 / rate_bps
    summary = summarize_algorithm(
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
        return run_coroutine(run_experiment(request))


def _written(path: Path, document: Mapping[str, Any]) -> Path:
    """Write JSON to *path*, or to *path*.0 etc. if it exists, as nccl-tests does."""
    place, tried = path, 0
    while True:
        with explained_writes(place, EnvironmentProblem, "does its folder exist?"):
            try:
                with place.open("x", encoding="utf-8") as file:
                    json.dump(document, file, indent=2)
                    file.write("\n")
                return place
            except FileExistsError:
                place, tried = Path(f"{path}.{tried}"), tried + 1
