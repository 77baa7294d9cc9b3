"""Output of a run in the format of nccl-tests 2.19: table, footer and JSON.

Columns, widths and keys are those of nccl-tests, so that parsers of its output also
accept this output. Additional values are in lines that start with ``#``, and under
additional keys:

net_bw
    Payload that the busiest rank sent to, or received from, other hosts for one
    collective, divided by the time of the collective, in GB/s. This rate is the load of
    the rank's port, for any algorithm.
bound
    Lower bound on the time of the schedule (``chakram.predict.bound``), and its ratio
    to the measured time.

Buffer placement does not affect the network. The in-place columns therefore repeat the
measured values.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from math import sqrt
from statistics import fmean
from typing import TYPE_CHECKING, Any

from chakram.collectives.ops import CollectiveOp
from chakram.console.collective_tables import DIVIDED, redop
from chakram.console.nccl_tests_rows import (
    LAST,
    BenchRow,
    BenchSize,
    BenchTest,
    are_checked,
    row_of,
)
from chakram.console.number_format import percent_text
from chakram.console.summary_document import NCCL_TESTS_JSON_VERSION
from chakram.formats.nccl_tests import TESTS
from chakram.foundation.errors import ResultsError
from chakram.records.run_records import CollectiveRecord
from chakram.run_directory.manifest import RunManifest
from chakram.summary.bandwidth import bus_factor, percentile

if TYPE_CHECKING:
    from chakram.run_directory.reader import RunResults


DEVICE = "port of chakram, no NVIDIA device"
"""Device text that replaces the name of a GPU. It contains NVIDIA, because one tool
counts ranks by lines with this word."""

LEAST_SHARE = 0.9
"""Fraction of ``NCCL_TESTS_MIN_BW`` below which nccl-tests fails."""

_PROGRAM_OF = {op: name for name, op in TESTS.items()}
_BLOCK_HEADINGS = ("time", "algbw", "busbw", "#wrong")
_BLOCK_UNITS = ("(us)", "(GB/s)", "(GB/s)", "")
_ITERATION_HEADINGS = ("i_min", "i_max", "i_p99", "i_cv%")
_ITERATION_UNITS = ("(us)", "(us)", "(us)", "(%)")


def average_busbw(rows: Iterable[BenchRow], test: BenchTest) -> float:
    """Return the mean bus bandwidth of the rows in GB/s, as nccl-tests computes it."""
    return fmean([row.algbw * test.factor for row in rows] or [0.0])


def _passes(average: float, test: BenchTest) -> bool:
    return test.least_busbw is None or average >= LEAST_SHARE * test.least_busbw


def float_text(value: float, width: int) -> str:
    """Return a number as nccl-tests prints it, with as many digits as fit.

    Bandwidths below 1 GB/s have four decimal digits instead of two.
    """
    digits, power = 1, 0
    while value >= digits:
        digits, power = digits * 10, power + 1
    if not power and width == 6:
        return f"{value:{width}.4f}"
    if power < width - 2:
        return f"{value:{width}.2f}"
    if power < width - 1:
        return f"{value:{width}.1f}"
    if power <= width:
        return f"{value:{width}.0f}"
    return f"{value:{width}.1e}"


def opening(
    test: BenchTest, *, banners: Sequence[str], notes: Sequence[str], version: str
) -> list[str]:
    """Return the first lines of nccl-tests' output, with additional lines."""
    config = test.config
    factor = "step_factor" in config
    step = config["step_factor" if factor else "step_bytes"]
    return [
        *(f"# !! {banner}" for banner in banners),
        f"# nccl-tests version 2.19 as printed by chakram {version}",
        f"# Collective test starting: {test.name}",
        f"# nThread {config['nthreads']} nGpus {config['ngpus']} "
        f"minBytes {config['minimum_bytes']} maxBytes {config['maximum_bytes']} "
        f"step: {step}({'factor' if factor else 'bytes'}) "
        f"warmup iters: {config['warmup_iters']} iters: {config['iterations']} "
        f"agg iters: {config['aggregated_iterations']} "
        f"validation: {config['validation']} graph: 0 unalign: 0",
        *(f"# {note}" for note in notes),
        "#",
        "# Using devices",
        *(
            f"#  Rank {rank:2d} Group  0 Pid {0:6d} on {host:>10} device {0:2d} "
            f"[0000:00:00] {what}".rstrip()
            for rank, (host, what) in enumerate(test.devices)
        ),
    ]


def closing(
    test: BenchTest,
    cycles: Sequence[Sequence[BenchRow]],
    *,
    notes: Sequence[str],
    directory: str,
) -> list[str]:
    """Return the last lines of nccl-tests' output, with additional lines in between."""
    every = [row for rows in cycles for row in rows]
    wrong = sum(row.wrong or 0 for row in every)
    average = average_busbw(every, test)
    verdict = ""
    if test.least_busbw is not None:
        verdict = "OK" if _passes(average, test) else "FAILED"
    return [
        f"# {'Out of bounds values':<20} : {wrong} {'FAILED' if wrong else 'OK'}",
        f"# {'Avg bus bandwidth':<20} : {average:g} {verdict}",
        "#",
        *_network(test, cycles),
        "#",
        *(f"# {note}" for note in notes),
        f"# Run directory: {directory}",
        f"# Collective test concluded: {test.name}",
    ]


def cycle_lines(
    test: BenchTest, rows: Sequence[BenchRow], *, printed: str
) -> list[str]:
    """Return the table of one cycle, where *printed* is the time of printing."""
    headings, units, widths = list(_BLOCK_HEADINGS), list(_BLOCK_UNITS), [7, 6, 6, 6]
    if test.per_iteration:
        headings += _ITERATION_HEADINGS
        units += _ITERATION_UNITS
        widths += [7] * 4
    places = [
        f"{name:^{sum(widths) + 2 * (len(widths) - 1)}}"
        for name in ("out-of-place", "in-place")
    ]

    def line(cells: Sequence[str]) -> str:
        return "  ".join(
            f"{cell:>{width}}" for cell, width in zip(cells, widths * 2, strict=True)
        )

    first = f"# {'':>10}  {'':>12}  {'':>8}  {'':>6}  {'':>6}  "
    lines = [
        "#",
        f"{first}{places[0]}  {places[1]}",
        f"# {'size':>10}  {'count':>12}  {'type':>8}  {'redop':>6}  {'root':>6}  "
        f"{line(headings * 2)}",
        f"# {'(B)':>10}  {'(elements)':>12}  {'':>8}  {'':>6}  {'':>6}  "
        f"{line(units * 2)}",
    ]
    if test.timestamps:
        lines[2] += f"  {'timestamp':>{len(printed)}}"
    for row in rows:
        root = -1 if test.root is None else test.root
        cells = [
            float_text(row.time_ns / 1000, 7),
            float_text(row.algbw, 6),
            float_text(row.algbw * test.factor, 6),
            "N/A" if row.wrong is None else f"{row.wrong:g}",
        ]
        if test.per_iteration:
            stats = _statistics(row)
            cells += [
                float_text(stats[key], 7)
                for key in ("min_us", "max_us", "p99_us", "cv_pct")
            ]
        lines.append(
            f"{row.size.size_bytes:12d}  {row.size.count:12d}  {test.datatype:>8}  "
            f"{test.redop:>6}  {root:6d}  {line(cells * 2)}"
            + (f"  {printed}" if test.timestamps else "")
        )
    return lines


def _network(test: BenchTest, cycles: Sequence[Sequence[BenchRow]]) -> list[str]:
    """Return the lines about the network, as comments for nccl-tests parsers."""
    lines = [
        "# Network: net_bw of the busiest rank's port; bound: the least time that this "
        "schedule can take",
        f"# {'size':>10}  {'net_bw':>7}  {'bound':>9}  {'%bound':>6}  {'cv':>5}  "
        f"{'n':>4}",
        f"# {'(B)':>10}  {'(GB/s)':>7}  {'(us)':>9}  {'(%)':>6}  {'(%)':>5}",
    ]
    for rows in cycles:
        for row in rows:
            share = row.bound_share
            mark = " *" if row.generator_bound else ""
            lines.append(
                f"# {row.size.size_bytes:10d}  "
                f"{'N/A' if row.net_bw is None else float_text(row.net_bw, 6):>7}  "
                f"{'N/A' if row.bound_ns is None else f'{row.bound_ns / 1e3:.2f}':>9}  "
                f"{'N/A' if share is None else f'{100 * share:.1f}':>6}  "
                f"{percent_text(_variation(row)):>5}  {len(row.times_ns):4d}{mark}"
            )
    if any(row.generator_bound for rows in cycles for row in rows):
        lines.append("# * some of these collectives waited for the generator")
    return lines


def _variation(row: BenchRow) -> float | None:
    """Return the coefficient of variation, or None for one time, which cannot vary."""
    return _statistics(row)["cv_pct"] / 100 if len(row.times_ns) > 1 else None


def _statistics(row: BenchRow) -> dict[str, float]:
    """Return nccl-tests' statistics of iterations in us.

    ``p50`` is the upper median.
    """
    times_us = sorted(time_ns / 1000 for time_ns in row.times_ns) or [0.0]
    mean = fmean(times_us)
    deviation = sqrt(fmean([(each - mean) ** 2 for each in times_us]))
    places = [percentile(range(len(times_us)), percent) for percent in (95, 99)]
    return {
        "min_us": times_us[0],
        "max_us": times_us[-1],
        "avg_us": mean,
        "p50_us": times_us[len(times_us) // 2],
        "p95_us": times_us[places[0]],
        "p99_us": times_us[places[1]],
        "stdev_us": deviation,
        "cv_pct": 100 * deviation / mean if mean else 0.0,
    }


def document(
    test: BenchTest,
    cycles: Sequence[Sequence[BenchRow]],
    *,
    args: Sequence[str],
    started: str,
    ended: str,
    version: str,
    directory: str,
    banners: Sequence[str],
) -> dict[str, Any]:
    """Return the JSON of nccl-tests' file version 3, without its environment."""
    every = [row for rows in cycles for row in rows]
    wrong = sum(row.wrong or 0 for row in every)
    average = average_busbw(every, test)
    okay = "unchecked" if test.least_busbw is None else _truth(_passes(average, test))
    devices = [
        {
            "rank": rank,
            "group": 0,
            "pid": 0,
            "hostname": host,
            "device": 0,
            "device_hex": "0000:00:00",
            "device_info": what,
        }
        for rank, (host, what) in enumerate(test.devices)
    ]
    return {
        "version": NCCL_TESTS_JSON_VERSION,
        "start_time": started,
        "args": list(args),
        "nccl_version": None,
        "chakram_version": version,
        "run_directory": directory,
        "banners": list(banners),
        "config": {**test.config, "devices": devices},
        "results": [_result(test, row) for row in every],
        "out_of_bounds": {"count": wrong, "okay": _truth(not wrong)},
        "average_bus_bandwidth": {"bandwidth": average, "okay": okay},
        "end_time": ended,
    }


def _truth(value: bool) -> str:
    return "true" if value else "false"


def _result(test: BenchTest, row: BenchRow) -> dict[str, Any]:
    block = {
        "time": row.time_ns / 1000,
        "alg_bw": row.algbw,
        "bus_bw": row.algbw * test.factor,
        "nwrong": row.wrong,
    }
    found: dict[str, Any] = {
        "size": row.size.size_bytes,
        "count": row.size.count,
        "type": test.datatype,
        "redop": test.redop,
        "root": f"{-1 if test.root is None else test.root:6d}",
    }
    for placement in ("out_of_place", "in_place"):
        found[placement] = block
        if test.per_iteration:
            found[f"{placement}_per_iter"] = {
                "skipped_iterations": 0,
                **_statistics(row),
                "times_us": [time_ns / 1000 for time_ns in row.times_ns],
            }
    return {
        **found,
        "actual_iterations": len(row.times_ns),
        "experiment_name": test.name,
        "net_bw": row.net_bw,
        "bound_ns": row.bound_ns,
        "bound_share": row.bound_share,
        "cv": _variation(row),
        "generator_bound": row.generator_bound,
    }


def _test_of(
    op: CollectiveOp,
    nranks: int,
    sizes: Sequence[BenchSize],
    *,
    root: int | None,
    manifest: RunManifest,
    looked: bool,
) -> BenchTest:
    """Return the nccl-tests test that measures these sizes of a collective."""
    return BenchTest(
        name=f"{_PROGRAM_OF[op]}_perf",
        nranks=nranks,
        factor=float(bus_factor(op, nranks=nranks)),
        sizes=tuple(sizes),
        datatype="uint8",
        redop=redop(op),
        root=root,
        average=LAST,
        per_iteration=True,
        timestamps=False,
        skip=0,
        least_busbw=None,
        config={
            "nthreads": 1,
            "ngpus": nranks,
            "minimum_bytes": sizes[0].size_bytes,
            "maximum_bytes": sizes[-1].size_bytes,
            "step_factor": 2,
            "warmup_iters": manifest.warmup,
            "iterations": manifest.measured,
            "aggregated_iterations": 1,
            "validation": int(looked),
            "graph": 0,
            "blocking_collectives": "false",
            "per_iter_timing": "true",
            "per_iter_skip": 0,
            "parallel_init": "false",
        },
        devices=tuple((f"rank{rank}", DEVICE) for rank in range(nranks)),
    )


def documents_of(
    results: RunResults, *, version: str
) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Return the documents that nccl-tests' programs would write for a run, by name.

    There is one document for each job, collective, algorithm and number of ranks. Each
    size is a row, over all groups.

    Returns:
        The documents, and sentences about collectives that none of these programs
        measures.

    Raises:
        ResultsError: If no collective was measured.
    """
    found: dict[tuple[CollectiveOp, str, str, int], dict[int, list[CollectiveRecord]]]
    found = defaultdict(lambda: defaultdict(list))
    left_out: Counter[str] = Counter()
    for record in results.collectives():
        identity = record.identity
        if not record.measured or not record.complete:
            continue
        if identity.op not in _PROGRAM_OF:
            left_out[str(identity.op)] += 1
            continue
        key = (identity.op, identity.key.job, identity.algorithm, identity.nranks)
        found[key][identity.size_bytes].append(record)
    if not found and not left_out:
        raise ResultsError(
            str(results.path),
            "has no measured collective that all ranks finished",
            results.incomplete,
        )
    manifest = results.manifest
    bounds = results.bounds()
    looked = are_checked(manifest)
    documents = {}
    for (op, job, algorithm, nranks), by_size in sorted(found.items()):
        sizes = [
            BenchSize(
                size_bytes=size,
                count=size // nranks if op in DIVIDED else size,
                input_bytes=of_size[0].identity.input_bytes,
                record_bytes=size,
            )
            for size, of_size in sorted(by_size.items())
        ]
        test = _test_of(
            op,
            nranks,
            sizes,
            root=by_size[sizes[0].size_bytes][0].identity.root,
            manifest=manifest,
            looked=looked,
        )
        rows = [
            row_of(
                size,
                {
                    (record.iteration, place): [record]
                    for place, record in enumerate(by_size[size.record_bytes])
                },
                test,
                dilation=manifest.dilation,
                bounds=bounds,
                looked=looked,
                net_bytes=None,
                by_rank={},
            )
            for size in sizes
        ]
        name = re.sub(r"[^A-Za-z0-9_.]+", "-", f"{test.name} {job} {algorithm}")
        documents[f"{name.strip('-')}-{nranks}"] = document(
            test,
            [rows],
            args=[test.name],
            started=manifest.started_at,
            ended=manifest.ended_at or manifest.started_at,
            version=version,
            directory=str(results.path),
            banners=manifest.banners,
        )
    notes = [
        f"{count} of {op} are omitted: nccl-tests has no such test"
        for op, count in sorted(left_out.items())
    ]
    return documents, notes
