"""The tables of point-to-point messages on the console: by port, and slowest pairs.

Their lines begin with ``#``, so that readers of the table of nccl-tests skip them.
``chakram.core.message_summary`` says what the numbers mean.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chakram.core.summarise_messages import PAIRS_EXPLAINED
from chakram.observe.texts import MISSING, percent_text, time_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chakram.core.message_summary import (
        FctPercentiles,
        MessageSummary,
        PairSummary,
        PortSummary,
    )

__all__ = ["message_lines"]

PORTS_LISTED = 16

_TIMES = ((10, "FCT min"), (10, "p50"), (10, "p95"), (10, "p99"), (10, "max"))
_PORT_COLUMNS = (
    (8, "rank"),
    (6, "peers"),
    (5, "fan"),
    (7, "n"),
    (9, "goodput"),
    (7, "%rate"),
    (7, "%wire"),
    (10, "time"),
    (10, "ideal"),
    (8, "%ideal"),
    *_TIMES,
    (8, "Jain"),
    (9, "skew"),
    (6, "retx"),
    (7, "CE"),
    (7, "CNP"),
    (7, "drops"),
)
_PAIR_COLUMNS = (
    (12, "pair"),
    (7, "n"),
    (9, "goodput"),
    (7, "%rate"),
    (10, "mean"),
    (10, "ideal"),
    (8, "%ideal"),
    *_TIMES,
    (6, "retx"),
    (7, "CNP"),
)


def message_lines(messages: MessageSummary) -> list[str]:
    """Return the tables: receivers, senders of several at once, slowest pairs."""
    rows = (*messages.receivers, *messages.senders)
    several = len({row.job for row in rows}) > 1
    lines = _port_lines("receiver", messages.receivers, several)
    if any(row.fan > 1 and row.peers > 1 for row in messages.senders):
        lines += _port_lines("sender", messages.senders, several)
    return lines + _pair_lines(messages, several)


def _port_lines(side: str, rows: Sequence[PortSummary], several: bool) -> list[str]:
    listed = rows
    which = ""
    if len(rows) > PORTS_LISTED:
        listed = sorted(rows, key=_slowest_first)[:PORTS_LISTED]
        which = f"; the {PORTS_LISTED} slowest of {len(rows)}"
    periods = sum(row.periods for row in rows)
    lines = [
        f"# Messages by {side}: {sum(row.messages for row in rows)} in {periods} busy "
        f"periods (goodput in Gbit/s, times in us{which})",
        _line(_PORT_COLUMNS, [heading for _, heading in _PORT_COLUMNS]),
    ]
    for row in listed:
        cells = [
            _ranks(row, several),
            str(row.peers),
            str(row.fan),
            str(row.messages),
            _gigabits(row.goodput_bps),
            percent_text(row.goodput_share),
            percent_text(row.wire_share),
            time_text(row.time_ns),
            time_text(row.ideal_ns),
            percent_text(row.ideal_share),
            *_times(row.fct),
            MISSING if row.fairness is None else f"{row.fairness:.4f}",
            time_text(row.skew_ns),
            str(row.retransmitted),
            str(row.marked),
            str(row.cnp),
            MISSING if row.drops is None else str(row.drops),
        ]
        lines.append(_line(_PORT_COLUMNS, cells))
    return lines


def _slowest_first(row: PortSummary) -> tuple[float, str, int]:
    share = row.goodput_share if row.ideal_share is None else row.ideal_share
    return (1.0 if share is None else share), row.job, row.port


def _pair_lines(messages: MessageSummary, several: bool) -> list[str]:
    ratio = messages.worst_over_median
    listed = messages.pairs[:PAIRS_EXPLAINED]
    count = len(messages.pairs)
    which = (
        f"the {len(listed)} slowest of {count}" if count > len(listed) else f"{count}"
    )
    lines = [
        f"# Messages by pair of ranks: {which}"
        + ("" if ratio is None else f"; worst over median {ratio:.2f}"),
        _line(_PAIR_COLUMNS, [heading for _, heading in _PAIR_COLUMNS]),
    ]
    for row in listed:
        job = f"{row.job}:" if several else ""
        cells = [
            f"{job}{row.src}>{row.dst}",
            str(row.messages),
            _gigabits(row.goodput_bps),
            percent_text(row.goodput_share),
            time_text(row.mean_ns),
            time_text(row.ideal_ns),
            percent_text(row.ideal_share),
            *_times(row.fct),
            str(row.retransmitted),
            str(row.cnp),
        ]
        lines.append(_line(_PAIR_COLUMNS, cells) + _way(row, several))
    return lines


def _way(row: PairSummary, several: bool) -> str:
    """Return the paths of a pair, and whom it met on them."""
    ways = ", ".join(" ".join(path) for path in row.paths[:2])
    if len(row.paths) > 2:
        ways += f" and {len(row.paths) - 2} more"
    met: dict[str, list[str]] = {}
    for each in row.met:
        job = f"{each.job}:" if several else ""
        share = f"{job}{each.src}>{each.dst} {percent_text(each.share)} %"
        met.setdefault(each.at, []).append(share)
    meetings = "; ".join(f"at {at} met {', '.join(who)}" for at, who in met.items())
    return "  ".join(["", *filter(None, [ways, meetings])])


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


def _line(columns: Sequence[tuple[int, str]], cells: Sequence[str]) -> str:
    return "#" + "".join(
        f" {cell:>{width - 1}}" for (width, _), cell in zip(columns, cells, strict=True)
    )
