"""Console tables of point-to-point messages: by port, and by slowest pairs of ranks.

The lines of these tables start with ``#``, so that parsers of the nccl-tests table skip
them. ``chakram.summary.message_summary`` explains the numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap

from chakram.console.number_format import MISSING, counted_text, percent_text, time_text
from chakram.console.text_table import Column, fitted
from chakram.summary.message_summary import (
    FctPercentiles,
    MessageSummary,
    PairSummary,
    PortSummary,
)
from chakram.summary.summarize_messages import PAIRS_EXPLAINED

PORTS_LISTED = 16


def _times_columns() -> tuple[Column, ...]:
    orders = {"min": 8, "p50": 7, "p95": 9, "p99": 3, "max": 5}
    return tuple(
        Column(heading=f"FCT {name}", order=order, width=9)
        for name, order in orders.items()
    )


_PORT_COLUMNS = (
    Column(heading="rank", width=7),
    Column(heading="peers", order=2),
    Column(heading="fan"),
    Column(heading="n", width=6),
    Column(heading="goodput", width=8),
    Column(heading="%rate", width=6),
    Column(heading="%wire", order=9, width=6),
    Column(heading="time", width=9),
    Column(heading="fair", order=7, width=9),
    Column(heading="%fair", width=6),
    *_times_columns(),
    Column(heading="Jain", order=1, width=7),
    Column(heading="skew", order=6, width=8),
    Column(heading="retx", order=2, width=5),
    Column(heading="CE", order=4, width=6),
    Column(heading="CNP", order=4, width=6),
    Column(heading="drops", order=2, width=6),
)
_PAIR_COLUMNS = (
    Column(heading="pair", width=11),
    Column(heading="n", width=6),
    Column(heading="goodput", width=8),
    Column(heading="%rate", order=2, width=6),
    Column(heading="mean", width=9),
    Column(heading="fair", order=4, width=9),
    Column(heading="%fair", width=6),
    *_times_columns(),
    Column(heading="retx", order=1, width=5),
    Column(heading="CNP", order=5, width=6),
)
"""docs/reference/table.md explains the columns."""

_WAY_INDENT = "#" + 14 * " "


def message_lines(messages: MessageSummary, *, width: int | None = None) -> list[str]:
    """Return the tables: receivers, senders with concurrent messages, slowest pairs.

    Args:
        messages: Summary to print.
        width: Maximum width of tables in characters. None means no limit.
    """
    rows = (*messages.receivers, *messages.senders)
    several = len({row.job for row in rows}) > 1
    lines = _port_lines("receiver", messages.receivers, several, width)
    if any(row.fan > 1 and row.peers > 1 for row in messages.senders):
        lines += _port_lines("sender", messages.senders, several, width)
    return lines + _pair_lines(messages, several, width) + _faster_lines(messages)


def _port_lines(
    side: str, rows: Sequence[PortSummary], several: bool, width: int | None
) -> list[str]:
    listed = rows
    which = ""
    if len(rows) > PORTS_LISTED:
        listed = sorted(rows, key=_slowest_first)[:PORTS_LISTED]
        which = f"; the {PORTS_LISTED} slowest of {len(rows)}"
    periods = sum(row.periods for row in rows)
    cells = [
        [
            _ranks(row, several),
            str(row.peers),
            str(row.fan),
            str(row.messages),
            _gigabits(row.goodput_bps),
            percent_text(row.goodput_share),
            percent_text(row.wire_share),
            time_text(row.time_ns),
            time_text(row.fair_ns),
            percent_text(row.fair_share),
            *_times(row.fct),
            MISSING if row.fairness is None else f"{row.fairness:.4f}",
            time_text(row.skew_ns),
            _count(row.retransmitted),
            # A run that counts retransmissions also counts marks.
            MISSING if row.retransmitted is None else str(row.marked),
            _count(row.cnp),
            _count(row.drops),
        ]
        for row in listed
    ]
    heading, table = fitted(_PORT_COLUMNS, cells, width=width, indent=1)
    return [
        f"# Messages by {side}: {sum(row.messages for row in rows)} in {periods} busy "
        f"periods (goodput in Gbit/s{which})",
        *(f"#{line}" for line in (*heading, *table)),
    ]


def _slowest_first(row: PortSummary) -> tuple[float, str, int]:
    share = row.goodput_share if row.fair_share is None else row.fair_share
    return (1.0 if share is None else share), row.job, row.port


def _pair_lines(
    messages: MessageSummary, several: bool, width: int | None
) -> list[str]:
    ratio = messages.worst_over_median
    listed = messages.pairs[:PAIRS_EXPLAINED]
    count = len(messages.pairs)
    which = (
        f"the {len(listed)} slowest of {count}" if count > len(listed) else f"{count}"
    )
    cells = [
        [
            f"{f'{row.job}:' if several else ''}{row.src}>{row.dst}",
            str(row.messages),
            _gigabits(row.goodput_bps),
            percent_text(row.goodput_share),
            time_text(row.mean_ns),
            time_text(row.fair_ns),
            percent_text(row.fair_share),
            *_times(row.fct),
            _count(row.retransmitted),
            _count(row.cnp),
        ]
        for row in listed
    ]
    heading, table = fitted(_PAIR_COLUMNS, cells, width=width, indent=1)
    lines = [
        f"# Messages by pair of ranks: {which}"
        + ("" if ratio is None else f"; worst over median {ratio:.2f}"),
        *(f"#{line}" for line in heading),
    ]
    for row, line in zip(listed, table, strict=True):
        lines += [f"#{line}", *_way(row, several, width)]
    return lines


def _faster_lines(messages: MessageSummary) -> list[str]:
    """Return a note on ports that were faster than their rate."""
    rows = (*messages.receivers, *messages.senders)
    faster = {row.port for row in rows if row.is_faster}
    if not faster:
        return []
    return [
        f"# No %rate of {counted_text(len(faster), 'port')}: messages were faster than "
        "the rate in the experiment (a shaper passes short bursts, or the port has "
        "another rate)"
    ]


def _way(row: PairSummary, several: bool, width: int | None) -> list[str]:
    """Return the paths of a pair, and the other pairs that shared these paths."""
    ways = ", ".join(" ".join(path) for path in row.paths[:2])
    if len(row.paths) > 2:
        ways += f" and {len(row.paths) - 2} more"
    met: dict[str, list[str]] = {}
    for each in row.met:
        job = f"{each.job}:" if several else ""
        share = f"{job}{each.src}>{each.dst} {percent_text(each.share)} %"
        met.setdefault(each.at, []).append(share)
    shared_paths = "; ".join(
        f"at {at} shared with {', '.join(who)}" for at, who in met.items()
    )
    text = "  ".join(filter(None, [ways, shared_paths]))
    if width is None:
        return [f"{_WAY_INDENT}{text}"] if text else []
    return wrap(
        text,
        max(width, 2 * len(_WAY_INDENT)),
        initial_indent=_WAY_INDENT,
        subsequent_indent=f"{_WAY_INDENT}  ",
        break_long_words=False,
    )


def _ranks(row: PortSummary, several: bool) -> str:
    first, last = row.ranks[0], row.ranks[-1]
    name = str(first) if first == last else f"{first}..{last}"
    return f"{row.job}:{name}" if several else name


def _times(fct: FctPercentiles) -> list[str]:
    times_ns = (fct.min_ns, fct.p50_ns, fct.p95_ns, fct.p99_ns, fct.max_ns)
    return [time_text(time_ns) for time_ns in times_ns]


def _gigabits(rate_bps: float | None) -> str:
    if rate_bps is None:
        return MISSING
    gigabits = rate_bps / 1e9
    return f"{gigabits:.2f}" if gigabits >= 10 else f"{gigabits:.4f}"


def _count(count: int | None) -> str:
    return MISSING if count is None else str(count)
