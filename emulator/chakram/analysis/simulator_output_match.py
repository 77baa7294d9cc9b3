"""Sets a file of another simulator beside a run that has ended."""

from __future__ import annotations

from pathlib import Path

from chakram.formats.astra_sim import (
    Beside,
    Flow,
    beside_flows,
    beside_log,
    looks_like_flows,
)
from chakram.foundation.bounded_reading import read_bounded
from chakram.foundation.errors import ResultsError
from chakram.run_directory.reader import RunResults, open_run

_MOST_BYTES = 1 << 28


def beside_file(path: Path, directory: Path) -> list[Beside]:
    """Set a log of ASTRA-sim, or a ``fct.txt`` of ns-3, beside a run.

    Of the run the first measured iteration counts.  Nodes of ns-3 are numbers of ports,
    those of ASTRA-sim numbers of ranks; times are undilated.

    Args:
        path: The file.
        directory: Of the run.

    Raises:
        ResultsError: If the file is neither, or of another job.
    """
    data = read_bounded(
        path,
        limit_bytes=_MOST_BYTES,
        error=ResultsError,
        size_hint="is it a log or a fct.txt?",
    )
    results = open_run(directory)
    iteration = results.manifest.warmup
    if looks_like_flows(data):
        found = beside_flows(
            data, str(path), flows=_flows(results, iteration, str(path))
        )
    else:
        found = beside_log(
            data,
            str(path),
            collectives=[
                each for each in results.collectives() if each.iteration == iteration
            ],
            ranks=[each for each in results.ranks() if each.iteration == iteration],
        )
    dilation = results.manifest.dilation
    return [each._replace(own_ns=each.own_ns // dilation) for each in found]


def _flows(results: RunResults, iteration: int, where: str) -> list[Flow]:
    """Return the messages of one iteration, with the numbers of their ports."""
    transport = results.message_transport()
    names = ("iteration", "job", "src", "dst", "bytes", "posted_ns", "fct_ns")
    table = results.table("flows", *names)
    if transport is None or not table.num_rows:
        raise ResultsError(
            where,
            "has messages, and those of this run were not recorded one by one",
            "simulate a smaller job",
        )
    port_of = {place: port.number for place, port in transport.ports.items()}
    return [
        Flow(port_of[job, src], port_of[job, dst], size_bytes, posted_ns, fct_ns)
        for which, job, src, dst, size_bytes, posted_ns, fct_ns in zip(
            *(table[name].to_pylist() for name in names), strict=True
        )
        if which == iteration
    ]
