"""Options of ``chakram bench``, most of which nccl-tests also has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from chakram.cli.common.bench_programs import ELEMENT_BYTES, PROGRAMS, REDUCTIONS
from chakram.cli.common.options import Json, Overrides, Runs
from chakram.foundation.errors import ConfigError


def _size(long: str, short: str, text: str) -> Any:
    return typer.Option(f"--{long}", short, metavar="SIZE", help=text)


def _number(
    long: str, short: str, text: str, least: int, most: int | None = None
) -> Any:
    return typer.Option(f"--{long}", short, min=least, max=most, help=text)


def _nothing(long: str, short: str, least: int | None = None) -> Any:
    return typer.Option(f"--{long}", f"-{short}", min=least, hidden=True)


_AVERAGE = (
    "Time to report: of rank 0 (0), the mean over ranks (1), of the fastest rank (2), "
    "or from the first start to the last end over all ranks (3)."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchOptions:
    """Options of ``chakram bench``: those of nccl-tests, and additional options."""

    test: Annotated[
        str,
        typer.Argument(metavar="TEST", help=f"One of {', '.join(PROGRAMS)}."),
    ]
    minbytes: Annotated[str, _size("minbytes", "-b", "Smallest size.")] = "32M"
    maxbytes: Annotated[str, _size("maxbytes", "-e", "Largest size.")] = "32M"
    stepbytes: Annotated[str, _size("stepbytes", "-i", "Increment between sizes.")] = (
        "1M"
    )
    stepfactor: Annotated[
        int, _number("stepfactor", "-f", "Factor between sizes, instead of -i.", 0)
    ] = 1
    iters: Annotated[int, _number("iters", "-n", "Iterations per size.", 1)] = 20
    warmup_iters: Annotated[
        int, _number("warmup_iters", "-w", "Warm-up iterations.", 0)
    ] = 1
    agg_iters: Annotated[
        int, _number("agg_iters", "-m", "Collectives per iteration.", 1)
    ] = 1
    average: Annotated[int, _number("average", "-a", _AVERAGE, 0, 3)] = 1
    check: Annotated[
        int, _number("check", "-c", "0 turns payload verification off.", 0)
    ] = 1
    blocking: Annotated[
        int,
        _number(
            "blocking", "-z", "1 and 3 add a barrier before each collective.", 0, 3
        ),
    ] = 0
    datatype: Annotated[str, typer.Option("--datatype", "-d", help="Element type.")] = (
        "float"
    )
    op: Annotated[str, typer.Option("--op", "-o", help="Reduction, e.g. sum.")] = "sum"
    root: Annotated[
        int, _number("root", "-r", "Root rank, for collectives with a root.", 0)
    ] = 0
    ngpus: Annotated[
        int,
        _number(
            "ngpus",
            "-g",
            "Number of ranks, multiplied by -t. 1 means one rank per port.",
            1,
        ),
    ] = 1
    nthreads: Annotated[int, _nothing("nthreads", "t", 1)] = 1
    per_iter_timing: Annotated[
        int, _number("per_iter_timing", "-I", "1 also prints iteration times.", 0, 1)
    ] = 0
    per_iter_skip: Annotated[int, _nothing("per_iter_skip", "K", 0)] = 0
    run_cycles: Annotated[
        int,
        _number(
            "run_cycles", "-N", "Number of tables, or 0 to repeat until interrupted.", 0
        ),
    ] = 1
    timeout: Annotated[
        int, _number("timeout", "-T", "Time limit in seconds, or 0 for none.", 0)
    ] = 0
    timestamps: Annotated[
        int, _number("report_timestamps", "-S", "1 also prints timestamps.", 0, 1)
    ] = 0
    output_file: Annotated[
        Path | None,
        typer.Option(
            "--output_file", "-J", metavar="FILE", help="Write JSON to this file."
        ),
    ] = None
    world: Annotated[
        str, typer.Option(metavar="WORLD", help="World to measure in: run or simulate.")
    ] = "run"
    experiment: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Experiment that defines fabric and transport. Default: quickstart.",
        ),
    ] = None
    algorithm: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Algorithm, e.g. ring or tree (see `chakram algorithms list`).",
        ),
    ] = None
    runs: Runs = None
    overrides: Overrides = None
    as_json: Json = False
    parallel_init: Annotated[int | None, _nothing("parallel_init", "p")] = None
    cputime: Annotated[int | None, _nothing("report_cputime", "C")] = None
    cudagraph: Annotated[int | None, _nothing("cudagraph", "G")] = None
    register: Annotated[int | None, _nothing("local_register", "R")] = None
    unalign: Annotated[int | None, _nothing("unalign", "u")] = None
    memory: Annotated[int | None, _nothing("memory", "M")] = None
    device: Annotated[int | None, _nothing("device_implementation", "D")] = None
    stream_null: Annotated[int | None, _nothing("stream_null", "y")] = None

    def check_names(self) -> None:
        """Refuse unknown names of programs, worlds, element types and reductions.

        Raises:
            ConfigError: If a name is unknown.
        """
        if self.test not in PROGRAMS:
            from chakram.settings.located_errors import suggest

            raise ConfigError(
                f"chakram bench {self.test}",
                "there is no such test",
                suggest(self.test, PROGRAMS),
            )
        if self.world not in ("run", "simulate"):
            raise ConfigError(
                f"--world {self.world}", "is not known", "run or simulate"
            )
        if self.datatype not in ELEMENT_BYTES:
            raise ConfigError(
                f"-d {self.datatype}", "is not a type", ", ".join(ELEMENT_BYTES)
            )
        if self.op not in REDUCTIONS:
            raise ConfigError(
                f"-o {self.op}", "is not a reduction", ", ".join(REDUCTIONS)
            )

    def ignored(self) -> Iterator[str]:
        """Yield the letters of options that are given but have no effect here."""
        given = {
            **{"p": self.parallel_init, "C": self.cputime, "G": self.cudagraph},
            **{"R": self.register, "u": self.unalign, "M": self.memory},
            **{"D": self.device, "y": self.stream_null},
        }
        yield from filter(given.get, given)

    @property
    def measured(self) -> int:
        """Number of measured iterations of a run."""
        return self.iters * (self.run_cycles or 1)

    @property
    def collectives(self) -> int:
        """Number of collectives of a run, warm-up included."""
        return (self.measured + self.warmup_iters) * self.agg_iters
