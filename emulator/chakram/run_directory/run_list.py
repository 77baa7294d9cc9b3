"""List of the runs in a folder, with their status and key figures."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from statistics import median

import pyarrow.compute as pc

from chakram.collectives.ops import CollectiveOp
from chakram.foundation.errors import ChakramError, NoRunDirectory, RunDirectoryError
from chakram.run_directory.manifest import MANIFEST, RunManifest
from chakram.run_directory.reader import RunResults, open_run
from chakram.run_directory.schemas import plain_names
from chakram.summary.bandwidth import bus_factor


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFigures:
    """Key figures of a run's measured iterations, with undilated times and rates.

    Attributes:
        ranks: Number of ranks of all jobs.
        iterations: Number of iterations that all ranks of their job completed, over all
            jobs.
        iteration_ns: Median duration of these iterations, from first start to last end
            over the ranks of a job. The value is the longest median of any job except
            background jobs. None without iterations.
        busbw: Bus bytes of finished collectives and messages divided by the sum of
            their times, in bytes per second. None without collectives and messages.
        retransmitted_share: Fraction of packets that are retransmissions. None without
            packets.
    """

    ranks: int
    iterations: int
    iteration_ns: float | None
    busbw: float | None
    retransmitted_share: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedRun:
    """One run of a folder.

    *problem* is the reason why the tables of the run cannot be read, or None.
    """

    directory: Path
    manifest: RunManifest
    figures: RunFigures
    problem: str | None = None


def list_runs(folder: Path) -> tuple[list[ListedRun], list[ChakramError]]:
    """Return the runs below *folder*, oldest first, and errors of unreadable runs.

    The runs are in *folder* or in its subfolders, such as the folder ``runs`` of a
    sweep. The list skips folders without a ``run.json``, such as folders of preflights.

    Raises:
        NoRunDirectory: If *folder* does not exist.
        RunDirectoryError: If the folder cannot be read.
    """
    try:
        places = [
            inner.parent
            for path in folder.iterdir()
            for inner in (*path.glob(MANIFEST), *path.glob(f"*/{MANIFEST}"))
        ]
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NoRunDirectory(
            str(folder),
            "is not a folder",
            "name the folder that contains run directories, e.g. runs",
        ) from error
    except OSError as error:
        raise RunDirectoryError(
            str(folder), f"cannot be read: {error.strerror}"
        ) from error
    found: list[ListedRun] = []
    unreadable: list[ChakramError] = []
    for path in sorted(places):
        try:
            found.append(_listed(open_run(path)))
        except (NoRunDirectory, RunDirectoryError) as error:
            unreadable.append(error)
    found.sort(key=lambda each: (each.manifest.started_at, each.directory))
    return found, unreadable


def _listed(results: RunResults) -> ListedRun:
    ranks = sum(job.get("ranks", 0) for job in results.manifest.jobs.values())
    iterations_ns: dict[str, list[float]] = {}
    busbw = retransmitted_share = problem = None
    try:
        iterations_ns = _iterations_ns(results)
        busbw, retransmitted_share = _of_collectives(results)
    except RunDirectoryError as error:
        iterations_ns, problem = {}, error.found
    return ListedRun(
        directory=results.path,
        manifest=results.manifest,
        figures=RunFigures(
            ranks=ranks,
            iterations=sum(map(len, iterations_ns.values())),
            iteration_ns=max(
                (
                    median(times_ns)
                    for job, times_ns in iterations_ns.items()
                    if job not in results.manifest.background_jobs
                ),
                default=None,
            ),
            busbw=busbw,
            retransmitted_share=retransmitted_share,
        ),
        problem=problem,
    )


def _iterations_ns(results: RunResults) -> dict[str, list[float]]:
    """Return, by job, the times of measured iterations that all ranks completed."""
    keys = ["job", "iteration"]
    table = results.table("ranks", *keys, "measured", "start_ns", "end_ns")
    table = plain_names(table.filter(pc.field("measured")))
    grouped = table.group_by(keys).aggregate(
        [("start_ns", "min"), ("end_ns", "max"), ("end_ns", "count")]
    )
    ranks_of = {name: job.get("ranks") for name, job in results.manifest.jobs.items()}
    dilation = results.manifest.dilation
    found: dict[str, list[float]] = {}
    for row in grouped.to_pylist():
        if row["end_ns_count"] == ranks_of.get(row["job"], row["end_ns_count"]):
            time_ns = (row["end_ns_max"] - row["start_ns_min"]) / dilation
            found.setdefault(row["job"], []).append(time_ns)
    return found


def _of_collectives(results: RunResults) -> tuple[float | None, float | None]:
    """Return the bus bandwidth and the fraction of retransmitted packets."""
    kind = ["collective", "nranks"]
    summed = ["size_bytes", "duration_ns", "packets", "retransmitted"]
    table = results.table(
        "collectives", *kind, *summed, "measured", "shares", "expected_shares"
    )
    done = pc.field("shares") == pc.field("expected_shares")
    table = plain_names(table.filter(pc.field("measured") & done))
    grouped = table.group_by(kind).aggregate([(name, "sum") for name in summed])
    bus_bytes, time_ns, packets, again = 0.0, 0, 0, 0
    for row in grouped.to_pylist():
        op = CollectiveOp(row["collective"])
        factor = float(bus_factor(op, nranks=row["nranks"]))
        # A NIC counts no packets for Chakram.
        packets += row["packets_sum"] or 0
        again += row["retransmitted_sum"] or 0
        if factor:
            bus_bytes += row["size_bytes_sum"] * factor
            time_ns += row["duration_ns_sum"]
    rate = bus_bytes / time_ns * 1e9 * results.manifest.dilation if time_ns else None
    return rate, again / packets if packets else None
