"""The table of a run on the console, as people know it from nccl-tests.

The columns of nccl-tests come first and mean the same: size, count, type, redop, root,
then time, algbw, busbw and #wrong.  Lines that begin with ``#`` are no data.  #wrong is
always N/A, because payload is not checked; type is always uint8, because a trace says
how many bytes it moves and not of what.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chakram.core.collectives import CollectiveOp
from chakram.observe.message_tables import message_lines
from chakram.observe.texts import MISSING, percent_text, time_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chakram.core.generator_health import GeneratorSummary
    from chakram.core.summary import RankSummary, RunFacts, Summary, SummaryRow

ROOTLESS = "-1"
SUMMED = frozenset(
    {CollectiveOp.ALL_REDUCE, CollectiveOp.REDUCE, CollectiveOp.REDUCE_SCATTER}
)
"""Collectives whose redop nccl-tests prints as ``sum``."""

DIVIDED = frozenset(
    {
        CollectiveOp.ALL_GATHER,
        CollectiveOp.REDUCE_SCATTER,
        CollectiveOp.ALL_TO_ALL,
        CollectiveOp.ALL_TO_ALL_V,
        CollectiveOp.GATHER,
        CollectiveOp.SCATTER,
    }
)
"""Collectives whose count nccl-tests gives per rank: elements of S over the ranks."""

GENERATOR_BOUND_MARK = " *"
"""Ends the line of a row that holds generator-bound collectives."""

RANKS_LISTED = 16
LINKS_LISTED = 16

_COLUMNS = (
    # (width, heading, unit)
    (12, "size", "(B)"),
    (12, "count", "(elements)"),
    (6, "type", ""),
    (6, "redop", ""),
    (5, "root", ""),
    (9, "time", "(us)"),
    (8, "algbw", "(GB/s)"),
    (8, "busbw", "(GB/s)"),
    (7, "#wrong", ""),
    (10, "ideal", "(us)"),
    (7, "%ideal", "(%)"),
    (10, "simulated", "(us)"),
    (7, "dev", "(%)"),
    (10, "FCT p50", "(us)"),
    (9, "p99", "(us)"),
    (9, "p100", "(us)"),
    (7, "retx", "(pkts)"),
    (6, "n", ""),
    (6, "cv", "(%)"),
)


_BLOCKS = ((5, ""), (4, " out-of-place "), (4, " expected "), (3, " flows "), (3, ""))
"""How many columns belong together, and what the line above them says."""


def render_table(summary: Summary, *, simulated: str = "simulate") -> str:
    """Return the whole table with its header and footer, without a last newline.

    Args:
        summary: What to print.
        simulated: The source of predictions that the two columns show.
    """
    lines = [f"# !! {banner}" for banner in summary.banners]
    lines += _header(summary)
    bound = [row for row in summary.rows if row.generator_bound and row.busbw]
    kind: tuple[object, ...] = ()
    several = len({row.job for row in summary.rows}) > 1
    for row in summary.rows:
        if kind != (row.job, row.op, row.algorithm, row.nranks, row.groups):
            kind = (row.job, row.op, row.algorithm, row.nranks, row.groups)
            lines.append(_headline(row, job=f"job {row.job}: " if several else ""))
        mark = GENERATOR_BOUND_MARK if row in bound else ""
        lines.append(_line(_cells(row, simulated)) + mark)
    if not summary.rows:
        lines.append("# no collective was measured")
    lines += _footer(summary)
    return "\n".join(line.rstrip() for line in lines)


def _header(summary: Summary) -> list[str]:
    facts = summary.facts
    case = f"  case {facts.case}" if facts.case else ""
    warmup = f", after {facts.warmup} of warm-up" if facts.warmup else ""
    clock = ""
    if facts.clock_uncertainty_ns:
        clock = f"; clocks agree to {time_text(facts.clock_uncertainty_ns)} us"
    return [
        f"# chakram run {facts.run_id}  {facts.name}{case}",
        f"# fabric     {_fabric(facts)}",
        *([f"# transport  {facts.transport}"] if facts.transport else []),
        f"# iterations {facts.measured} measured{warmup}, sync {facts.sync}",
        "# time       first start to last end over the ranks, mean over the n "
        f"collectives measured{clock}",
        "#",
        "#" + _over_columns()[1:],
        "#" + _line([heading for _, heading, _ in _COLUMNS])[1:],
        "#" + _line([unit for _, _, unit in _COLUMNS])[1:],
    ]


def _fabric(facts: RunFacts) -> str:
    """Return the fabric in one line; that of a simulation says that it is one."""
    if not facts.fabric or facts.fabric.startswith(facts.world):
        return facts.fabric or facts.world
    return f"{facts.world}: {facts.fabric}"


def _over_columns() -> str:
    """Return the line that says what belongs together."""
    line = ""
    start = 0
    for count, title in _BLOCKS:
        width = sum(width for width, _, _ in _COLUMNS[start : start + count])
        start += count
        line += title.center(width - 1, "-").rjust(width) if title else " " * width
    return line


def _headline(row: SummaryRow, *, job: str) -> str:
    groups = "1 group" if row.groups == 1 else f"{row.groups} groups"
    if row.op is CollectiveOp.SEND_RECV:
        pairs = "1 pair" if row.groups == 1 else f"{row.groups} pairs"
        return f"# {job}send_recv: {pairs} of ranks"
    return f"# {job}{row.op}: {row.algorithm}, {groups} of {row.nranks} ranks"


def _cells(row: SummaryRow, simulated: str) -> list[str]:
    count = row.size_bytes
    if row.op in DIVIDED:
        count //= row.nranks
    prediction = row.predictions.get(simulated)
    completion = row.completion
    return [
        str(row.size_bytes),
        str(count),
        "uint8",
        redop(row.op),
        ROOTLESS if row.root is None else str(row.root),
        time_text(row.time_ns),
        _gigabytes(row.algbw),
        _gigabytes(row.busbw),
        MISSING,
        time_text(row.ideal_ns),
        percent_text(row.ideal_share),
        time_text(prediction.time_ns if prediction else None),
        percent_text(prediction.deviation if prediction else None, sign="+"),
        time_text(completion.p50_ns if completion else None),
        time_text(completion.p99_ns if completion else None),
        time_text(completion.p100_ns if completion else None),
        str(row.retransmitted),
        str(row.samples),
        percent_text(row.cv),
    ]


def redop(op: CollectiveOp) -> str:
    """Return what nccl-tests prints as the reduction of a collective."""
    return "sum" if op in SUMMED else "none"


def _footer(summary: Summary) -> list[str]:
    facts = summary.facts
    average = _gigabytes(summary.average_busbw)
    lines = []
    if summary.generator_bound:
        lines.append(
            f"#{GENERATOR_BOUND_MARK} generator-bound: {summary.generator_bound} of "
            f"{summary.verdicts} collectives"
        )
    lines += [
        "# Out of bounds values : N/A (payload is not checked)",
        f"# Avg bus bandwidth    : {average}",
        "#",
    ]
    several = len(summary.iterations) > 1
    for iteration in summary.iterations:
        job = f" of {iteration.job}" if several else ""
        lines.append(
            f"# Iteration{job}: mean {time_text(iteration.mean_ns)} us, "
            f"p50 {time_text(iteration.p50_ns)}, p99 {time_text(iteration.p99_ns)}, "
            f"max {time_text(iteration.max_ns)}, cv {percent_text(iteration.cv)} %"
        )
    for slip in summary.slips:
        job = f" of {slip.job}" if several else ""
        lines.append(
            f"# Schedule slip{job}: {slip.late} of {slip.collectives} collectives "
            f"started later than recorded, p50 {time_text(slip.p50_ns)} us, "
            f"p99 {time_text(slip.p99_ns)}, max {time_text(slip.max_ns)}"
        )
    if summary.messages is not None:
        lines += message_lines(summary.messages)
    lines += _exposed(summary.ranks)
    lines.append(
        f"# Packets: {summary.packets} sent, "
        f"{summary.retransmitted} sent again ({_share(summary.retransmitted, summary)}"
        f" %), {summary.marked} marked for congestion "
        f"({_share(summary.marked, summary)} %)"
    )
    lines += _links(summary)
    if summary.verdicts and not summary.generator_bound:
        lines.append(
            f"# Generator: kept up with all {summary.verdicts} collectives "
            "(waits of at most 5 % of their time)"
        )
    if summary.generator is not None:
        lines += _generator(summary.generator)
    if facts.directory:
        lines.append(f"# Run directory: {facts.directory}")
    lines.append(f"# Run {facts.status}.")
    return lines


def _generator(health: GeneratorSummary) -> list[str]:
    """Return what was measured of the generator; times are upper bounds in us."""
    pacing, lag, median, tail = (
        _bound(health, name)
        for name in (
            "pacing_error_p99_ns",
            "generator_lag_p99_ns",
            "round_trip_p50_ns",
            "round_trip_p99_ns",
        )
    )
    lines = [
        f"# Generator: pacing error p99 {pacing}, loop lag p99 {lag} "
        f"(max {time_text(health.generator_lag_max_ns)}) us; "
        f"busy {percent_text(health.busy_share)} %, "
        f"CPU {percent_text(health.cpu_share)} % of the busiest process",
        f"# Round trips: p50 {median}, p99 {tail} us",
    ]
    if health.socket_drops or health.send_retries:
        lines.append(
            f"# Sockets: {health.socket_drops} packets dropped on arrival, "
            f"{health.send_retries} times no room to send, or no interface"
        )
    return lines


def _bound(health: GeneratorSummary, name: str) -> str:
    time_ns: float | None = getattr(health, name)
    if time_ns is None:
        return MISSING
    return f"{'>' if name in health.beyond else '<='} {time_text(time_ns)}"


def _exposed(ranks: Sequence[RankSummary]) -> list[str]:
    if not ranks:
        return []
    exposed_ns = sum(rank.exposed_ns for rank in ranks)
    share = exposed_ns / (sum(rank.iteration_ns for rank in ranks) or 1)
    listed = list(ranks)
    which = ""
    if len(ranks) > RANKS_LISTED:
        listed = sorted(ranks, key=lambda rank: -rank.exposed_ns)[:RANKS_LISTED]
        which = f"; the {RANKS_LISTED} most exposed of {len(ranks)} ranks"
    several = len({rank.job for rank in ranks}) > 1
    lines = [
        f"# Exposed communication: {percent_text(share)} % of the iteration, "
        f"{time_text(exposed_ns / len(ranks))} us per rank (times in us{which})",
        _rank_line("rank", "iteration", "compute", "communication", "exposed", "idle"),
    ]
    for rank in listed:
        times_ns = (
            rank.iteration_ns,
            rank.compute_ns,
            rank.communication_ns,
            rank.exposed_ns,
            rank.idle_ns,
        )
        name = f"{rank.job}:{rank.rank}" if several else str(rank.rank)
        lines.append(_rank_line(name, *(time_text(time_ns) for time_ns in times_ns)))
    return lines


def _rank_line(name: str, *cells: str) -> str:
    return f"# {name:>12}" + "".join(f"{cell:>14}" for cell in cells)


def _links(summary: Summary) -> list[str]:
    uplinks = [link for link in summary.links if link.kind == "uplink"]
    lines = []
    if uplinks and summary.uplinks is not None:
        balance = summary.uplinks
        lines.append(
            f"# Uplinks: {balance.links} directions, "
            f"max/mean {balance.max_over_mean:.3f}, Jain {balance.jain:.4f}"
        )
        busiest = sorted(uplinks, key=lambda link: (-link.bytes, link.link))
        listed = busiest[:LINKS_LISTED]
        width = max(len(link.link) for link in listed)
        for link in listed:
            dropped = f"  {link.drops} drops" if link.drops else ""
            lines.append(
                f"#   {link.link:<{width}} {link.direction:<4} "
                f"{link.bytes / 1e6:>12.3f} MB{dropped}"
            )
        if len(busiest) > LINKS_LISTED:
            lines.append(f"#   and {len(busiest) - LINKS_LISTED} with fewer bytes")
    drops = sum(link.drops or 0 for link in summary.links)
    if drops:
        lines.append(f"# Drops: {drops} packets in the queues of links")
    return lines


def _share(count: int, summary: Summary) -> str:
    return f"{100 * count / summary.packets:.3f}" if summary.packets else "0"


def _line(cells: Sequence[str]) -> str:
    return "".join(
        f" {cell:>{width - 1}}"
        for (width, _, _), cell in zip(_COLUMNS, cells, strict=True)
    )


def _gigabytes(bandwidth: float | None) -> str:
    """Return a bandwidth in GB/s with at least three digits."""
    if bandwidth is None:
        return MISSING
    gigabytes = bandwidth / 1e9
    for limit, digits in ((100, 1), (10, 2), (1, 3), (0.01, 4)):
        if gigabytes >= limit:
            return f"{gigabytes:.{digits}f}"
    return f"{gigabytes:.5f}"
