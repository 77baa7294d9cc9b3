"""Rows of nccl-tests' output: times and bandwidths of one size of a collective."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

from chakram.collectives.ops import CollectiveOp
from chakram.records.run_records import CollectiveKey, CollectiveRecord
from chakram.run_directory.manifest import RunManifest

if TYPE_CHECKING:
    from chakram.run_directory.reader import RunResults


FIRST, AVERAGE, LEAST, LAST = range(4)
"""Times that ``-a`` selects: the time of rank 0, the mean over the ranks, the time of
the fastest rank, or the time until the last rank ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchSize:
    """A requested row.

    Attributes:
        size_bytes: S, after rounding down to whole elements of all ranks.
        count: Elements, as nccl-tests counts them.
        input_bytes: Contribution of one rank, or 0 if nothing runs.
        record_bytes: S of the collectives that run for this row.
    """

    size_bytes: int
    count: int
    input_bytes: int
    record_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchTest:
    """A requested test.

    Attributes:
        name: Name of the program, e.g. ``all_reduce_perf``.
        nranks: Number of ranks.
        factor: Ratio of busbw to algbw.
        sizes: Sizes of the rows.
        datatype: Name of the element type.
        redop: Reduction operation on elements.
        root: Root rank, or None if there is none.
        average: ``FIRST``, ``AVERAGE``, ``LEAST`` or ``LAST``.
        per_iteration: Whether times of iterations are printed.
        timestamps: Whether rows end with the time at which they are printed.
        skip: Number of iterations at the start whose times are not used.
        least_busbw: ``NCCL_TESTS_MIN_BW`` in GB/s, or None if it is not set.
        config: Options as nccl-tests prints them, by its JSON keys.
        devices: Host and device text of each rank.
    """

    name: str
    nranks: int
    factor: float
    sizes: tuple[BenchSize, ...]
    datatype: str
    redop: str
    root: int | None
    average: int
    per_iteration: bool
    timestamps: bool
    skip: int
    least_busbw: float | None
    config: dict[str, Any]
    devices: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchRow:
    """Measured values of one size, with undilated times in ns.

    ``wrong`` is None if payload was not checked. ``net_bytes`` is the traffic of the
    busiest rank over the network for one collective, or None if messages are unknown.
    """

    size: BenchSize
    time_ns: float = 0.0
    times_ns: tuple[float, ...] = ()
    wrong: int | None = None
    bound_ns: float | None = None
    bound_share: float | None = None
    net_bytes: float | None = None
    generator_bound: int = 0

    @property
    def algbw(self) -> float:
        """Algorithm bandwidth in GB/s."""
        return self.size.size_bytes / self.time_ns if self.time_ns else 0.0

    @property
    def net_bw(self) -> float | None:
        """Network bandwidth in GB/s, over the time until the last rank ends."""
        if self.net_bytes is None or not self.times_ns:
            return None
        return self.net_bytes / fmean(self.times_ns)


def measured_rows(
    results: RunResults, test: BenchTest, *, cycles: int
) -> list[list[BenchRow]]:
    """Return the rows of every cycle.

    Each cycle is an equal part of the measured iterations.
    """
    by_size: dict[int, dict[tuple[int, int], list[CollectiveRecord]]] = defaultdict(
        lambda: defaultdict(list)
    )
    # Within one iteration, the k-th collectives of all groups belong together.
    for record in results.collectives():
        if record.measured and record.complete:
            if record.identity.op is CollectiveOp.BARRIER:
                continue
            key = record.iteration, record.identity.key.k
            by_size[record.identity.size_bytes][key].append(record)
    iterations = sorted(
        {iteration for every in by_size.values() for iteration, _ in every}
    )
    each = max(1, len(iterations) // cycles)
    looked = are_checked(results.manifest)
    moved = _net_bytes(results)
    bounds = results.bounds()
    by_rank = _rank_times(results) if test.average in (FIRST, LEAST) else {}
    found = []
    for cycle in range(cycles):
        chosen = set(iterations[cycle * each : (cycle + 1) * each])
        rows = []
        for size in test.sizes:
            groups = {
                key: records
                for key, records in by_size.get(size.record_bytes, {}).items()
                if key[0] in chosen
            }
            rows.append(
                row_of(
                    size,
                    groups,
                    test,
                    dilation=results.manifest.dilation,
                    bounds=bounds,
                    looked=looked,
                    net_bytes=moved.get(size.record_bytes),
                    by_rank={
                        rank: own
                        for rank, times in by_rank.get(size.record_bytes, {}).items()
                        if (own := [ns for at, ns in times if at in chosen])
                    },
                )
            )
        found.append(rows)
    return found


def _rank_times(
    results: RunResults,
) -> dict[int, dict[int, list[tuple[int, float]]]]:
    """Return pairs of iteration and time in ns, by size S and rank.

    The time of a rank lasts from the start of its first operation to the end of its
    last operation. In sendrecv, a rank has two operations: one sends, the other
    receives.
    """
    size_of = {
        (record.identity.key.group, record.identity.key.k): record.identity.size_bytes
        for record in results.collectives()
        if record.identity.op is not CollectiveOp.BARRIER
    }
    names = ["iteration", "rank", "group", "k", "start_ns", "end_ns"]
    table = results.table("operations", *names, "measured")
    spans: dict[tuple[int, int, int, int], tuple[int, int]] = {}
    columns = (table[name].to_pylist() for name in (*names, "measured"))
    for iteration, rank, group, k, start, end, measured in zip(*columns, strict=True):
        size_bytes = size_of.get((group, k))
        if measured and size_bytes is not None:
            key = size_bytes, rank, iteration, k
            first, last = spans.get(key, (start, end))
            spans[key] = min(first, start), max(last, end)
    found: dict[int, dict[int, list[tuple[int, float]]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for (size_bytes, rank, iteration, _), (first, last) in spans.items():
        took_ns = (last - first) / results.manifest.dilation
        found[size_bytes][rank].append((iteration, took_ns))
    return found


def row_of(
    size: BenchSize,
    groups: dict[tuple[int, int], list[CollectiveRecord]],
    test: BenchTest,
    *,
    dilation: int,
    bounds: Any,
    looked: bool,
    net_bytes: float | None,
    by_rank: Mapping[int, Sequence[float]],
) -> BenchRow:
    """Return the row of one size.

    Args:
        size: Size of the row.
        groups: Records of the groups that ran together, by iteration and number.
        test: Test that contains the row.
        dilation: Factor by which the run was slower than its experiment.
        bounds: Lower bounds on times, by collective.
        looked: Whether the run verified received payload.
        net_bytes: Payload of the busiest rank for one collective.  None: unknown.
        by_rank: Times of each rank in its iterations, in ns. Empty if they are not
            needed.
    """
    if not groups or not size.input_bytes:
        return BenchRow(size=size)
    lasting: dict[int, list[float]] = defaultdict(list)
    means: list[float] = []
    for (iteration, _), records in groups.items():
        last_ns = max(each.end_ns for each in records)
        first_ns = min(each.start_ns for each in records)
        lasting[iteration].append((last_ns - first_ns) / dilation)
        means.append(fmean(each.mean_duration_ns for each in records) / dilation)
    times_ns = tuple(fmean(lasting[key]) for key in sorted(lasting))[test.skip :]
    every = [record for records in groups.values() for record in records]
    # A short burst may be faster than a collective's bound, as in the table of a run.
    known = [
        (min(bounds[each.identity.key], each.duration_ns), each.duration_ns)
        for each in every
        if bounds.get(each.identity.key)  # the bound of a burst in a lab may be 0
    ]
    of_bound = [sum(column) for column in zip(*known, strict=True)] if known else None
    match test.average:
        case 0 | 2 if not by_rank:
            time_ns = 0.0
        case 0:
            time_ns = fmean(by_rank[min(by_rank)])
        case 2:
            time_ns = min(map(fmean, by_rank.values()))
        case 3:
            time_ns = fmean(times_ns or [0.0])
        case _:
            time_ns = fmean(means)
    return BenchRow(
        size=size,
        time_ns=time_ns,
        times_ns=times_ns,
        wrong=sum(each.wrong for each in every) if looked else None,
        bound_ns=of_bound[0] / len(known) / dilation if of_bound else None,
        bound_share=of_bound[0] / of_bound[1] if of_bound and of_bound[1] else None,
        net_bytes=net_bytes,
        generator_bound=sum(each.generator_bound for each in every),
    )


def _net_bytes(results: RunResults) -> dict[int, float]:
    """Return the mean bytes that the busiest rank moves per collective, by size S."""
    names = ["iteration", "job", "group", "k", "src", "dst"]
    table = results.table("flows", *names, "measured", "bytes").unify_dictionaries()
    if not table.num_rows:
        return {}
    size_of = {
        record.identity.key: record.identity.size_bytes
        for record in results.collectives()
    }
    transport = results.message_transport()
    within = frozenset() if transport is None else transport.within_hosts
    moved: dict[int, dict[tuple[int, int], dict[tuple[str, int], int]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(int))
    )
    grouped = table.group_by([*names, "measured"]).aggregate([("bytes", "sum")])
    for row in grouped.to_pylist():
        job, src, dst = row["job"], row["src"], row["dst"]
        size_bytes = size_of.get(CollectiveKey(job, row["group"], row["k"]))
        if not row["measured"] or size_bytes is None or (job, src, dst) in within:
            continue
        ends = moved[size_bytes][row["iteration"], row["k"]]
        ends["sent", src] += row["bytes_sum"]
        ends["received", dst] += row["bytes_sum"]
    return {
        size_bytes: fmean(max(ends.values()) for ends in every.values())
        for size_bytes, every in moved.items()
    }


def are_checked(manifest: RunManifest) -> bool:
    """Return whether a run verified payload. RDMA NICs do not always verify it."""
    verification = manifest.verification
    if manifest.nics and not verification.get("packets", 0):
        return False
    return bool(verification.get("every", 0))
