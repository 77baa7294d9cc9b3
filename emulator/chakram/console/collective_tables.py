"""The table of a run on the console, in the style of nccl-tests.

The nccl-tests columns come first, with the same meaning as there: size, count, type,
redop, root, then time, algbw, busbw and #wrong. Lines that start with ``#`` are not
data. #wrong counts accepted packets with a wrong payload, and is N/A if payload was not
checked (``transport.verify``). The type is always uint8, because a trace contains only
the number of bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING

from chakram.collectives.ops import CollectiveOp
from chakram.console.message_tables import message_lines
from chakram.console.number_format import (
    MISSING,
    counted_text,
    microseconds_text,
    percent_text,
    time_text,
    variation_text,
)
from chakram.console.text_table import Column, fitted

if TYPE_CHECKING:
    from chakram.summary.generator_health import GeneratorSummary
    from chakram.summary.retransmissions import Traffic
    from chakram.summary.run_summary import (
        Prediction,
        RankSummary,
        RunFacts,
        Summary,
        SummaryRow,
        Verification,
    )

ROOTLESS = "-1"
SUMMED = frozenset(
    {CollectiveOp.ALL_REDUCE, CollectiveOp.REDUCE, CollectiveOp.REDUCE_SCATTER}
)
"""Collectives whose reduction (redop) nccl-tests prints as ``sum``."""

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
"""Collectives whose count nccl-tests gives per rank: the elements of the size S,
divided by the number of ranks."""

GENERATOR_BOUND_MARK = " *"
"""Suffix of table rows that include generator-bound collectives."""

LARGEST_DEVIATION = 9.99
"""Largest deviation that is printed as a number. Above 999 %, the measured time depends
mainly on effects that are not predicted."""

RANKS_LISTED = 16
LINKS_LISTED = 16

_MEASURED = "out-of-place"
_EXPECTED = "expected"
_FLOWS = "flows"
_COLUMNS = (
    # nccl-tests columns. They stay together, because parsers count columns.
    Column(heading="size", unit="(B)"),
    Column(heading="count", unit="(elements)", order=5),
    Column(heading="type", order=5, width=5),
    Column(heading="redop", order=5),
    Column(heading="root", order=5),
    Column(heading="time", unit="(us)", block=_MEASURED),
    Column(heading="algbw", unit="(GB/s)", block=_MEASURED, width=7),
    Column(heading="busbw", unit="(GB/s)", block=_MEASURED, width=7),
    Column(heading="#wrong", block=_MEASURED),
    # Additional columns.
    Column(heading="skew", unit="(us)", order=4),
    Column(heading="bound", unit="(us)", block=_EXPECTED, order=6),
    Column(heading="%bound", unit="(%)", block=_EXPECTED, order=10),
    Column(heading="alone", unit="(us)", block=_EXPECTED, order=7),
    Column(heading="%alone", unit="(%)", block=_EXPECTED, order=1),
    Column(heading="simulated", unit="(us)", block=_EXPECTED, order=6),
    Column(heading="dev", unit="(%)", block=_EXPECTED, order=2),
    Column(heading="FCT p50", unit="(us)", block=_FLOWS, order=9),
    Column(heading="FCT p99", unit="(us)", block=_FLOWS, order=9),
    Column(heading="FCT p100", unit="(us)", block=_FLOWS, order=9),
    Column(heading="retx", unit="(pkts)", order=3),
    Column(heading="n", order=3),
    Column(heading="cv", unit="(%)", order=8),
)
"""docs/reference/table.md explains the columns."""

_RANK_TIMES = ("iteration", "compute", "communication", "exposed", "idle")
_RANK_COLUMNS = (
    Column(heading="rank", width=10),
    *(Column(heading=heading, width=12) for heading in _RANK_TIMES),
)


def render_table(summary: Summary, *, width: int | None = None) -> str:
    """Return the whole table with header and footer, without a final newline.

    Args:
        summary: Summary to print.
        width: Maximum width of tables in characters. None means no limit. Sentences are
            not wrapped (see ``wrapped``).
    """
    lines = [f"# !! {banner}" for banner in summary.banners]
    lines += _header(summary)
    mark_width = len(GENERATOR_BOUND_MARK) if summary.generator_bound else 0
    heading, rows = fitted(
        _COLUMNS,
        list(map(_cells, summary.rows)),
        width=None if width is None else width - mark_width,
    )
    lines += [f"#{line[1:]}" for line in heading]
    kind: tuple[object, ...] = ()
    several = len({row.job for row in summary.rows}) > 1
    for row, line in zip(summary.rows, rows, strict=True):
        if kind != (row.job, row.op, row.algorithm, row.nranks, row.groups):
            kind = (row.job, row.op, row.algorithm, row.nranks, row.groups)
            lines.append(_headline(row, job=f"job {row.job}: " if several else ""))
        bound = row.generator_bound and row.busbw
        lines.append(line + GENERATOR_BOUND_MARK if bound else line)
    if not summary.rows:
        lines.append("# no collective was measured")
    lines += _footer(summary, width)
    return "\n".join(line.rstrip() for line in lines)


def wrapped(line: str, width: int | None) -> list[str]:
    """Return a line that starts with ``#`` as lines of at most *width* characters."""
    if width is None or len(line) <= width or not line.startswith("#"):
        return [line]
    label = re.match(r"# ( *\w+ {2,}|!! |)", line)
    indent = len(label[0]) if label else 2
    return wrap(
        line,
        max(width, 2 * indent),
        subsequent_indent="#".ljust(indent),
        break_long_words=False,
        break_on_hyphens=False,
    )


def _header(summary: Summary) -> list[str]:
    facts = summary.facts
    case = f"  case {facts.case}" if facts.case else ""
    warmup = f", after {facts.warmup} of warm-up" if facts.warmup else ""
    clock = ""
    if facts.clock_uncertainty_ns:
        clock = f"; clocks agree to {time_text(facts.clock_uncertainty_ns)}"
    return [
        f"# chakram run {facts.run_id}  {facts.name}{case}",
        f"# fabric     {_fabric(facts)}",
        *([f"# transport  {facts.transport}"] if facts.transport else []),
        f"# iterations {facts.measured} measured{warmup}, sync {facts.sync}",
        "# time       first start to last end over the ranks, mean of the n "
        f"collectives measured{clock}",
        *(
            ["#            of a barrier: last start to last end"]
            if any(row.op is CollectiveOp.BARRIER for row in summary.rows)
            else []
        ),
        *_drawn(summary),
        "#",
    ]


def _drawn(summary: Summary) -> list[str]:
    """Return a note that explains predictions that are ranges, if there are any."""
    draws = max(
        (each.draws for row in summary.rows for each in row.predictions.values()),
        default=1,
    )
    if draws == 1:
        return []
    return [
        f"# simulated  median of {draws} simulations of unknown paths or host delays; "
        "dev: deviation from their range"
    ]


def _fabric(facts: RunFacts) -> str:
    """Return the fabric in one line, with the world unless it is obvious."""
    if not facts.fabric or facts.fabric.startswith(facts.world):
        return facts.fabric or facts.world
    return f"{facts.world}: {facts.fabric}"


def _headline(row: SummaryRow, *, job: str) -> str:
    groups = "1 group" if row.groups == 1 else f"{row.groups} groups"
    if row.op is CollectiveOp.SEND_RECV:
        pairs = "1 pair" if row.groups == 1 else f"{row.groups} pairs"
        return f"# {job}send_recv: {pairs} of ranks"
    return f"# {job}{row.op}: {row.algorithm}, {groups} of {row.nranks} ranks"


def _cells(row: SummaryRow) -> list[str]:
    count = row.size_bytes
    if row.op in DIVIDED:
        count //= row.nranks
    prediction = row.predictions.get("simulate")
    completion = row.completion
    return [
        str(row.size_bytes),
        str(count),
        "uint8",
        redop(row.op),
        ROOTLESS if row.root is None else str(row.root),
        microseconds_text(row.time_ns),
        _gigabytes(row.algbw),
        _gigabytes(row.busbw),
        MISSING if row.wrong is None else str(row.wrong),
        microseconds_text(row.skew_ns),
        microseconds_text(row.bound_ns),
        percent_text(row.bound_share),
        microseconds_text(row.alone_ns),
        percent_text(row.alone_share),
        microseconds_text(prediction.time_ns if prediction else None),
        _deviation(prediction),
        microseconds_text(completion.p50_ns if completion else None),
        microseconds_text(completion.p99_ns if completion else None),
        microseconds_text(completion.p100_ns if completion else None),
        MISSING if row.retransmitted is None else str(row.retransmitted),
        str(row.samples),
        percent_text(row.cv),
    ]


def _deviation(prediction: Prediction | None) -> str:
    """Return a deviation in percent, with about three digits."""
    deviation = None if prediction is None else prediction.deviation
    if deviation is None or abs(deviation) < 1:
        return percent_text(deviation, sign="+")
    if deviation > LARGEST_DEVIATION:
        return f">+{100 * LARGEST_DEVIATION:.0f}"
    return f"{100 * deviation:+.0f}"


def redop(op: CollectiveOp) -> str:
    """Return the reduction that nccl-tests prints for a collective."""
    return "sum" if op in SUMMED else "none"


def _verification(found: Verification, *, on_nics: bool) -> list[str]:
    """Return the results of payload and ICRC checks."""
    if not found.packets:
        return ["# Out of bounds values : N/A (not checked)"]
    what = "ICRC and payload" if found.has_icrcs else "payload"
    share = "every packet checked"
    if found.every > 1:
        share = f"{found.packets} packets checked, 1 in {found.every}"
    if on_nics:
        # Only the last piece of a long message is checked.
        share = f"{found.packets} packets checked"
    verdict = "FAILED" if found.wrong_payloads else "OK"
    lines = [
        f"# Out of bounds values : {found.wrong_payloads} {verdict} ({what} of {share})"
    ]
    if found.icrc_errors:
        lines.append(f"# Wrong ICRCs          : {found.icrc_errors} packets dropped")
    return lines


def _footer(summary: Summary, width: int | None) -> Iterator[str]:
    facts = summary.facts
    average = _gigabytes(summary.average_busbw)
    if summary.generator_bound:
        yield (
            f"#{GENERATOR_BOUND_MARK} generator-bound: {summary.generator_bound} of "
            f"{summary.verdicts} collectives; waits take at most "
            f"{100 * summary.generator_wait_share:.1f} % of a row's time"
        )
    yield from [
        *_verification(facts.verification, on_nics=bool(facts.nics)),
        f"# Avg bus bandwidth    : {average}",
        "#",
    ]
    several = len(summary.iterations) > 1
    for iteration in summary.iterations:
        job = f" of {iteration.job}" if several else ""
        yield (
            f"# Iteration{job}: mean {time_text(iteration.mean_ns)}, "
            f"p50 {time_text(iteration.p50_ns)}, p99 {time_text(iteration.p99_ns)}, "
            f"max {time_text(iteration.max_ns)}{variation_text(iteration.cv)}"
        )
    for slip in summary.slips:
        job = f" of {slip.job}" if several else ""
        yield (
            f"# Schedule slip{job}: {slip.late} of {slip.collectives} collectives "
            f"started later than recorded, p50 {time_text(slip.p50_ns)}, "
            f"p99 {time_text(slip.p99_ns)}, max {time_text(slip.max_ns)}"
        )
    if summary.messages is not None:
        yield from message_lines(summary.messages, width=width)
    yield from _exposed(summary.ranks, width)
    yield (
        "# Packets: N/A, NICs send them"
        if facts.nics
        else "# Packets: N/A, the run ended before they were counted"
        if not summary.is_counted
        else (
            f"# Packets: {summary.packets} sent, {summary.retransmitted} retransmitted "
            f"({_share(summary.retransmitted, summary)} %), {summary.marked} marked "
            f"for congestion ({_share(summary.marked, summary)} %)"
        )
    )
    yield from (f"# {name}: {text}" for name, text in facts.nic_counters())
    if summary.traffic is not None:
        yield from _sent_again(summary.traffic)
    yield from _links(summary)
    if summary.verdicts and not summary.generator_bound:
        yield (
            f"# Generator: kept up with all {summary.verdicts} collectives "
            "(waits of at most 5 % of their time)"
        )
    if summary.generator is not None:
        yield from _generator(summary.generator)
    if facts.directory:
        yield f"# Run directory: {facts.directory}"
    yield f"# Run {facts.status}."


def _sent_again(traffic: Traffic) -> Iterator[str]:
    """Return the causes of retransmissions, if there are any."""
    if traffic.retransmitted:
        reasons = [
            f"{traffic.for_nak} after {counted_text(traffic.naks, 'NAK')} "
            f"({traffic.lost} lost, {traffic.reordered} reordered)",
            f"{traffic.for_timeout} after {counted_text(traffic.timeouts, 'timeout')}",
            f"{traffic.for_rnr} after RNR NAKs",
        ]
        yield f"# Retransmitted: {', '.join(reasons)}"
    if traffic.corrupted:
        yield (
            f"# Corrupted: {counted_text(traffic.corrupted, 'packet')} dropped on "
            "arrival because of a wrong ICRC"
        )


def _generator(health: GeneratorSummary) -> list[str]:
    """Return the measurements of the generator, with upper bounds as times."""
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
        f"(max {time_text(health.generator_lag_max_ns)}); "
        f"busy {percent_text(health.busy_share)} %, "
        f"CPU {percent_text(health.cpu_share)} % of the busiest process",
        f"# Round trips: p50 {median}, p99 {tail}",
    ]
    if health.socket_drops or health.send_retries:
        lines.append(
            f"# Sockets: {health.socket_drops} packets dropped on arrival, "
            f"{health.send_retries} failed sends (no buffer space, or interface down)"
        )
    return lines


def _bound(health: GeneratorSummary, name: str) -> str:
    time_ns: float | None = getattr(health, name)
    if time_ns is None:
        return MISSING
    return f"{'>' if name in health.beyond else '<='} {time_text(time_ns)}"


def _exposed(ranks: Sequence[RankSummary], width: int | None) -> list[str]:
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
    rows = []
    for rank in listed:
        times_ns = (getattr(rank, f"{each}_ns") for each in _RANK_TIMES)
        name = f"{rank.job}:{rank.rank}" if several else str(rank.rank)
        rows.append([name, *map(time_text, times_ns)])
    heading, table = fitted(_RANK_COLUMNS, rows, width=width, indent=1)
    return [
        f"# Exposed communication: {percent_text(share)} % of the iteration, "
        f"{time_text(exposed_ns / len(ranks))} per rank{which}",
        *(f"#{line}" for line in (*heading, *table)),
    ]


def _links(summary: Summary) -> Iterator[str]:
    uplinks = [link for link in summary.links if link.kind == "uplink"]
    if uplinks and summary.uplinks is not None:
        balance = summary.uplinks
        yield (
            f"# Uplinks: {balance.links} directions, "
            f"max/mean {balance.max_over_mean:.3f}, Jain {balance.jain:.4f}"
        )
        busiest = sorted(uplinks, key=lambda link: (-link.bytes, link.link))
        listed = busiest[:LINKS_LISTED]
        width = max(len(link.link) for link in listed)
        for link in listed:
            dropped = f"  {link.drops} drops" if link.drops else ""
            yield (
                f"#   {link.link:<{width}} {link.direction:<4} "
                f"{link.bytes / 1e6:>12.3f} MB{dropped}"
            )
        if len(busiest) > LINKS_LISTED:
            yield f"#   and {len(busiest) - LINKS_LISTED} with fewer bytes"
    drops = sum(link.drops or 0 for link in summary.links)
    if drops:
        yield f"# Drops: {drops} in link queues"
    pauses = sum(link.pauses or 0 for link in summary.links)
    if pauses:
        paused_ns = sum(link.paused_ns or 0 for link in summary.links)
        yield (
            f"# Pauses: {pauses} frames, link directions paused for "
            f"{time_text(paused_ns)} in total"
        )


def _share(count: int, summary: Summary) -> str:
    return f"{100 * count / summary.packets:.3f}" if summary.packets else "0"


def _gigabytes(bandwidth: float | None) -> str:
    """Return a bandwidth in GB/s with at least three digits."""
    if bandwidth is None:
        return MISSING
    gigabytes = bandwidth / 1e9
    for limit, digits in ((100, 1), (10, 2), (1, 3), (0.01, 4)):
        if gigabytes >= limit:
            return f"{gigabytes:.{digits}f}"
    return f"{gigabytes:.5f}"
