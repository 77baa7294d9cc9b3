"""Comparison of a finished run with the output file of another simulator."""

from __future__ import annotations

from pathlib import Path

from chakram.formats.astra_sim import (
    ComparedTimes,
    Flow,
    compare_with_flows,
    compare_with_log,
    is_flow_file,
)
from chakram.foundation.bounded_reading import read_bounded
from chakram.foundation.errors import ResultsError
from chakram.run_directory.reader import RunResults, open_run

_MOST_BYTES = 1 << 28


def match_file(path: Path, directory: Path) -> list[ComparedTimes]:
    """Match an ASTRA-sim log or an ns-3 ``fct.txt`` with the records of a run.

    The match uses the first measured iteration of the run.  Nodes in an ns-3 file are
    port numbers, and nodes in an ASTRA-sim log are rank numbers.  Times are undilated.

    Args:
        path: The log or ``fct.txt``.
        directory: The run directory.

    Raises:
        ResultsError: If the file has neither format, or belongs to another job.
    """
    data = read_bounded(
        path,
        limit_bytes=_MOST_BYTES,
        error=ResultsError,
        size_hint="name an ASTRA-sim log or a fct.txt",
    )
    results = open_run(directory)
    iteration = results.manifest.warmup
    if is_flow_file(data):
        found = compare_with_flows(
            data, str(path), flows=_flows(results, iteration, str(path))
        )
    else:
        found = compare_with_log(
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
    """Return the messages of one iteration, with their port numbers."""
    transport = results.message_transport()
    names = ("iteration", "job", "src", "dst", "bytes", "posted_ns", "fct_ns")
    table = results.table("flows", *names)
    if transport is None or not table.num_rows:
        raise ResultsError(
            where,
            "contains messages, but this run did not record its messages individually",
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
