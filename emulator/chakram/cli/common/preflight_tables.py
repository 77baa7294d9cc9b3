"""Result tables of a preflight: a verdict per check, and a matrix of pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rich.text import Text

from chakram.cli.common.escaping_console import Console, Table
from chakram.foundation.units import format_rate
from chakram.preflight.report import (
    CHECKS,
    FAILED,
    UNPROVEN,
    Finding,
    PairReport,
    PreflightReport,
)

MATRIX_PORTS = 16
"""Maximum number of ports for a matrix. With more ports, the worst pairs are listed."""
WORST_PAIRS = 16
FINDINGS_SHOWN = 24

_STYLES = {"passed": "green", FAILED: "bold red", UNPROVEN: "yellow", "-": "dim"}


def print_report(report: PreflightReport, console: Console | None = None) -> None:
    """Print a whole report on *console*, or on standard output if it is None."""
    console = console or Console()
    if len(report.ports) <= MATRIX_PORTS:
        for title, table in _matrices(report):
            # Rich would wrap a table title at the width of the table.
            console.print(Text(title, style="italic"))
            console.print(table)
    else:
        console.print(_worst(report))
    console.print(_checks(report))
    for finding in report.findings[:FINDINGS_SHOWN]:
        console.print(_sentence(finding), soft_wrap=True)
    hidden = len(report.findings) - FINDINGS_SHOWN
    if hidden > 0:
        console.print(f"and {hidden} more findings")
    verdict = FAILED if not report.passed else UNPROVEN if report.findings else "passed"
    outcome = {
        FAILED: "preflight failed",
        UNPROVEN: "preflight passed, but not everything could be proven",
        "passed": "preflight passed",
    }
    console.print(Text(outcome[verdict], style=_STYLES[verdict]))


def _matrices(report: PreflightReport) -> Iterator[tuple[str, Table]]:
    failed = {
        (pair, finding.check) for finding in report.failures for pair in finding.pairs
    }
    if report.settings.check_rate:
        fastest = max((pair.goodput_bps or 0.0 for pair in report.pairs), default=0.0)
        unit, name = (1e9, "Gbit/s") if fastest >= 1e9 else (1e6, "Mbit/s")
        yield (
            f"goodput ({name}): row sends, column receives",
            _matrix(
                report,
                lambda pair: _number(pair.goodput_bps, unit),
                lambda pair: bool({(pair, "rate"), (pair, "loss")} & failed),
            ),
        )
    if report.settings.check_latency:
        yield (
            "median round trip (us)",
            _matrix(
                report,
                lambda pair: _number(pair.round_trip_p50_ns, 1e3),
                lambda pair: (pair, "latency") in failed,
            ),
        )
    if report.settings.check_mtu:
        yield (
            "path MTU (bytes)",
            _matrix(
                report,
                lambda pair: "-" if pair.path_mtu is None else str(pair.path_mtu),
                lambda pair: bool({(pair, "mtu"), (pair, "reach")} & failed),
            ),
        )


def _matrix(
    report: PreflightReport,
    cell: Callable[[PairReport], str],
    is_bad: Callable[[tuple[str, str]], bool],
) -> Table:
    table = Table("")
    for name in report.ports:
        table.add_column(name, justify="right")
    pairs = {(pair.source, pair.destination): pair for pair in report.pairs}
    for source in report.ports:
        cells = [Text(source, style="bold")]
        for destination in report.ports:
            key = (source, destination)
            pair = pairs.get(key)
            text = "" if source == destination else "-" if pair is None else cell(pair)
            cells.append(Text(text, style=_STYLES[FAILED] if is_bad(key) else ""))
        table.add_row(*cells)
    return table


def _worst(report: PreflightReport) -> Table:
    """Return a table of the worst pairs: first pairs with failures, then slow ones."""
    bad = {pair for finding in report.failures for pair in finding.pairs}

    def badness(pair: PairReport) -> tuple[bool, float, float]:
        share = pair.rate_share
        return (
            (pair.source, pair.destination) not in bad,
            1.0 if share is None else share,
            -(pair.round_trip_p50_ns or 0),
        )

    table = Table(title=f"the worst of {len(report.pairs)} pairs", title_justify="left")
    for name in ("pair", "goodput", "of stated", "round trip p50, p99", "jitter"):
        table.add_column(name, justify="left" if name == "pair" else "right")
    for name in ("path MTU", "probes lost", "sent again"):
        table.add_column(name, justify="right")
    for pair in sorted(report.pairs, key=badness)[:WORST_PAIRS]:
        is_bad = (pair.source, pair.destination) in bad
        share = pair.rate_share
        table.add_row(
            Text(f"{pair.source} -> {pair.destination}"),
            "-" if pair.goodput_bps is None else format_rate(round(pair.goodput_bps)),
            "-" if share is None else f"{share:.0%}",
            f"{_number(pair.round_trip_p50_ns, 1e3)}, "
            f"{_number(pair.round_trip_p99_ns, 1e3)} us",
            f"{_number(pair.jitter_ns, 1e3)} us",
            "-" if pair.path_mtu is None else str(pair.path_mtu),
            str(pair.probes_sent - pair.probes_arrived),
            str(pair.retransmitted),
            style=_STYLES[FAILED] if is_bad else "",
        )
    return table


def _checks(report: PreflightReport) -> Table:
    table = Table(title="checks", title_justify="left")
    for name in ("check", "verdict", "pairs", "demanded", "measured"):
        table.add_column(name, justify="right" if name == "pairs" else "left")
    for check in CHECKS:
        demanded, measured, is_done = _figures(check, report)
        found = [each for each in report.findings if each.check == check]
        if not is_done and not found:
            continue
        verdict = "-" if "-" in (demanded, measured) else "passed"
        if found:
            failed = any(each.verdict == FAILED for each in found)
            verdict = FAILED if failed else UNPROVEN
        count = len({pair for each in found for pair in each.pairs})
        table.add_row(
            check,
            Text(verdict, style=_STYLES[verdict]),
            f"{count} of {len(report.pairs)}" if count else "",
            demanded,
            measured,
        )
    return table


def _figures(check: str, report: PreflightReport) -> tuple[str, str, bool]:
    """Return the requirement and result of a check, and whether it was requested.

    The result is "-" if nothing could be measured. Such a check has not passed.
    """
    settings = report.settings
    pairs = report.pairs
    match check:
        case "reach":
            lost = sum(pair.probes_sent - pair.probes_arrived for pair in pairs)
            sent = sum(pair.probes_sent for pair in pairs)
            return "all paths", f"{lost} of {sent} probes lost", True
        case "mtu":
            mtus = [pair.path_mtu for pair in pairs if pair.path_mtu is not None]
            measured = f"{min(mtus)} to {max(mtus)}" if mtus else "-"
            return f"path MTU {settings.path_mtu}", measured, settings.check_mtu
        case "dscp" | "ecn":
            kinds = {sent for pair in pairs for sent, _, _ in pair.classes}
            measured = f"{len(kinds)} packet types" if kinds else "-"
            return "unchanged", measured, settings.check_classes
        case "latency":
            p50s = [p.round_trip_p50_ns for p in pairs if p.round_trip_p50_ns]
            p99s = [p.round_trip_p99_ns for p in pairs if p.round_trip_p99_ns]
            measured = (
                f"p50 {min(p50s) / 1e3:.0f} to {max(p50s) / 1e3:.0f} us, "
                f"p99 up to {max(p99s) / 1e3:.0f} us"
                if p50s
                else "-"
            )
            limit_ns = settings.max_latency_ns
            demanded = "-" if limit_ns is None else f"p50 <= {limit_ns / 1e3:g} us"
            return demanded, measured, settings.check_latency
        case "rate":
            shares = [pair.rate_share for pair in pairs]
            demanded = (
                f">= {settings.min_rate_share:.0%} of the links"
                if any(pair.expected_bps for pair in pairs)
                else "-"
            )
            return demanded, _span(shares), settings.check_rate
        case "loss":
            lost = sum(pair.retransmitted for pair in pairs)
            sent = sum(pair.packets for pair in pairs)
            noun = "retransmission" if lost == 1 else "retransmissions"
            return (
                f"<= {settings.max_loss_share:.2%}",
                f"{lost} {noun} for {sent} packets" if sent else "-",
                settings.check_rate,
            )
        case "permutation":
            shares = [pair.together_share for pair in pairs if pair.together_bps]
            needed = settings.min_permutation_share
            demanded = "-" if needed is None else f">= {needed:.0%} of the links"
            return demanded, _span(shares), settings.check_permutation
    return "usable", "", False


def _span(shares: list[float | None]) -> str:
    known = [share for share in shares if share is not None]
    return f"{min(known):.0%} to {max(known):.0%}" if known else "-"


def _number(value: float | None, unit: float) -> str:
    if value is None:
        return "-"
    scaled = value / unit
    return f"{scaled:.{3 if scaled < 1 else 2 if scaled < 10 else 1}f}"


def _sentence(finding: Finding) -> Text:
    text = Text(f"{finding.verdict} ", style=_STYLES[finding.verdict])
    text.append(str(finding), style="default not bold")
    return text
