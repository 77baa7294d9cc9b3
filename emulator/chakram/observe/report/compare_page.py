"""The page of several runs side by side: what ``chakram report A B`` writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from chakram.observe.document import summary_document
from chakram.observe.number_format import MISSING, percent_text
from chakram.observe.report.blocks import Facts, Table
from chakram.observe.report.columns import percentiles
from chakram.observe.report.page import Block, Plot, Section, render_page
from chakram.observe.report.run_curves import (
    bandwidth_figure,
    bandwidth_lines,
    fct_curves,
    fct_figure,
)
from chakram.observe.report.run_data import RunData
from chakram.observe.report.run_page import notes_of, raw_files, title_of
from chakram.observe.report.run_plots import WHOLE, Curve
from chakram.observe.report.run_rows import ReportRow, report_rows
from chakram.observe.report.run_traffic import SESSION_PERCENTS
from chakram.observe.sides import run_settings, side_of_runs
from chakram.results.comparison import compare, sentences, setting_text
from chakram.units import about_size, format_rate, format_time

if TYPE_CHECKING:
    from chakram.observe.run_results import RunResults


_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
MOST_RUNS = len(_LETTERS)
_DIFFERENCES_SHOWN, _CAUSES_SHOWN = 100, 12


def compare_page(results: Sequence[RunResults]) -> str:
    """Return the page of two to 26 runs as HTML; the first is what others are held to.

    Raises:
        RunDirectoryError: If a directory cannot be read.
    """
    runs = {
        letter: RunData(each) for letter, each in zip(_LETTERS, results, strict=False)
    }
    rows = {letter: report_rows(data) for letter, data in runs.items()}
    banners = [
        f"{letter}: {banner}"
        for letter, data in runs.items()
        for banner in data.summary.banners
    ]
    sections = [
        _verdicts(runs),
        _runs(runs),
        _differences(runs),
        _iterations(runs),
        _collectives(runs, rows),
        _bandwidth(runs, rows),
        _completion_times(runs),
        _sessions(runs),
        *(
            Section(
                title=f"{files.title} of {letter}", text=files.text, blocks=files.blocks
            )
            for letter, data in runs.items()
            for files in (raw_files(data.results.path),)
        ),
    ]
    return render_page(
        title=_title(runs),
        lead="Differences below the spread of a run (CV) say nothing. Factors are over "
        "A.",
        notes=_notes(runs),
        banners=banners,
        sections=sections,
        document={
            letter: summary_document(data.summary) for letter, data in runs.items()
        },
    )


def _title(runs: Mapping[str, RunData]) -> str:
    """Return the names of runs, or of those of one name what they differ in."""
    names = {letter: title_of(data) for letter, data in runs.items()}
    rows = _settings_that_differ(runs)
    if len(set(names.values())) > 1 or len(rows) != 1:
        return " against ".join(f"{each}: {name}" for each, name in names.items())
    ((key, *values),) = rows
    sides = " against ".join(
        f"{value} ({letter})" for letter, value in zip(runs, values, strict=True)
    )
    return f"{names['A']}: {key} {sides}"


def _notes(runs: Mapping[str, RunData]) -> list[str]:
    """Return what holds for runs; of all of them said once."""
    of = {letter: notes_of(data) for letter, data in runs.items()}
    return list(
        dict.fromkeys(
            note if all(note in each for each in of.values()) else f"{letter}: {note}"
            for letter, notes in of.items()
            for note in notes
        )
    )


def _verdicts(runs: Mapping[str, RunData]) -> Section:
    """Return what ``chakram compare`` says of each run and the first."""
    title = "What differs"
    (first, *others) = (
        side_of_runs(data.results.path, [data.results]) for data in runs.values()
    )
    rows: list[tuple[str, str]] = []
    parts: dict[str, dict[str, float]] = {}
    for letter, other in zip(list(runs)[1:], others, strict=True):
        found = compare(first, other)
        told = sentences(found)
        rows.append((f"{letter} against A", told[0].replace(" in B", f" in {letter}")))
        rows += [("", each.replace("A -> B", f"A -> {letter}")) for each in told[1:]]
        for each in found.levels.get("part", ()):
            line = parts.setdefault(each.label, {"A": each.a.mean_ns})
            line[letter] = each.b.mean_ns
    blocks: tuple[Block, ...] = (Facts(rows=tuple(rows), observed=""),)
    if parts:
        largest = sorted(parts.items(), key=lambda item: -max(item[1].values()))
        table = _table(
            "Critical path: what it takes at least, and lost time by cause",
            runs,
            [
                (name, *(format_time(line.get(letter, 0.0)) for letter in runs))
                for name, line in largest
            ],
            left=1,
            note="Mean of the measured iterations, in sum the iteration.",
        )
        blocks += (table.cut(_CAUSES_SHOWN),)
    return Section(title=title, observed=_seen(runs), blocks=blocks)


def _table(
    title: str,
    runs: Mapping[str, object],
    rows: Sequence[tuple[str, ...]],
    *,
    left: int | None = None,
    note: str = "",
) -> Table:
    return Table(
        title=title,
        header=("", *runs),
        rows=tuple(rows),
        left=1 + len(runs) if left is None else left,
        note=note,
        observed="",
    )


def _runs(runs: Mapping[str, RunData]) -> Section:
    manifests = [data.manifest for data in runs.values()]
    rows = [
        ("run", *(each.run_id for each in manifests)),
        ("directory", *(str(data.results.path) for data in runs.values())),
        (
            "name",
            *(each.name + f" ({each.case})" * bool(each.case) for each in manifests),
        ),
        ("world", *(each.world for each in manifests)),
        ("status", *(each.status for each in manifests)),
        ("device under test", *(each.fabric for each in manifests)),
        ("transport", *(each.transport for each in manifests)),
        ("iterations", *(f"{each.measured} after {each.warmup}" for each in manifests)),
        ("ranks", *(str(len(data.summary.ranks)) for data in runs.values())),
        (
            "generator-bound",
            *(
                "virtual time"
                if data.is_simulated
                else f"{data.summary.generator_bound} of {data.summary.verdicts}"
                for data in runs.values()
            ),
        ),
        (
            "clock bound",
            *(
                format_time(each.clock_uncertainty_ns / each.dilation)
                for each in manifests
            ),
        ),
    ]
    return Section(title="Runs", blocks=(_table("Runs", runs, rows),))


def _seen(runs: Mapping[str, RunData]) -> str:
    return ", ".join(dict.fromkeys(data.seen("c") for data in runs.values()))


def _settings_that_differ(runs: Mapping[str, RunData]) -> list[tuple[str, ...]]:
    settings = [
        {key: setting_text(each) for key, each in run_settings(data.results).items()}
        for data in runs.values()
    ]
    keys = dict.fromkeys(key for each in settings for key in each)
    return [
        (key, *(each.get(key, MISSING) for each in settings))
        for key in keys
        if len({each.get(key, MISSING) for each in settings}) > 1
    ]


def _differences(runs: Mapping[str, RunData]) -> Section:
    rows = _settings_that_differ(runs)
    if not rows:
        return Section(
            title="Settings that differ",
            text="none does: neither settings nor versions.",
        )
    table = _table("Settings that differ", runs, rows).cut(_DIFFERENCES_SHOWN)
    return Section(
        title="Settings that differ",
        observed="(f)",
        blocks=(table,),
    )


def _iterations(runs: Mapping[str, RunData]) -> Section:
    jobs = dict.fromkeys(
        each.job for data in runs.values() for each in data.summary.iterations
    )
    rows: list[tuple[str, ...]] = []
    for job in jobs:
        found = [
            next((each for each in data.summary.iterations if each.job == job), None)
            for data in runs.values()
        ]
        first = found[0]
        rows.append(
            (
                f"JCT of {job}, mean",
                *(
                    MISSING
                    if each is None
                    else f"{format_time(each.mean_ns)} (CV {percent_text(each.cv)} %)"
                    for each in found
                ),
            )
        )
        rows.append(
            (
                f"JCT of {job}, factor",
                *(
                    MISSING
                    if each is None or first is None
                    else f"{each.mean_ns / max(1, first.mean_ns):.3f}"
                    for each in found
                ),
            )
        )
        ratios = [
            next((each.ratio for each in data.rooflines if each.job == job), None)
            for data in runs.values()
        ]
        texts = (MISSING if each is None else f"{each:.3f}" for each in ratios)
        rows.append((f"JCT ratio of {job} (m)", *texts))
    for what, name in (
        ("compute", "compute_ns"),
        ("exposed communication", "exposed_ns"),
        ("idle", "idle_ns"),
    ):
        shares = []
        for data in runs.values():
            total = sum(rank.iteration_ns for rank in data.summary.ranks)
            own = sum(getattr(rank, name) for rank in data.summary.ranks)
            shares.append(f"{percent_text(own / total if total else None)} %")
        rows.append((f"{what}, of the iteration", *shares))
    counts = [data.summary for data in runs.values()]
    rows += [
        ("data packets", *(f"{each.packets:,}" for each in counts)),
        ("marked CE", *(f"{each.marked:,}" for each in counts)),
        ("sent again", *(f"{each.retransmitted:,}" for each in counts)),
        (
            "uplinks: MMR, Jain's index (b)",
            *(
                f"{each.uplinks.max_over_mean:.3f}, {each.uplinks.jain:.4f}"
                if each.uplinks
                else MISSING
                for each in counts
            ),
        ),
    ]
    return Section(
        title="Iterations",
        observed=_seen(runs),
        blocks=(_table("Iterations", runs, rows),),
    )


def _collectives(
    runs: Mapping[str, RunData], rows: Mapping[str, Sequence[ReportRow]]
) -> Section:
    title = "Collectives"
    by_kind: dict[tuple[Any, ...], dict[str, ReportRow]] = {}
    for letter, own in rows.items():
        for each in own:
            row = each.row
            kind = row.job, row.op, row.nranks, row.trace_size_bytes, row.size_bytes
            # The algorithm is what may be compared: it does not tell rows apart,
            # unless a run has several.
            key = kind if letter not in by_kind.get(kind, {}) else (*kind, each.name)
            by_kind.setdefault(key, {})[letter] = each
    if not by_kind:
        return Section(title=title, text="none was measured.")
    cells = []
    for found in by_kind.values():
        first = found.get(next(iter(rows)))
        example = next(iter(found.values()))
        one = [f"{example.row.op}", about_size(example.row.size_bytes)]
        one.append(str(example.row.nranks))
        for letter in rows:
            other = found.get(letter)
            factor = (
                MISSING
                if other is None or first is None
                else f"{other.row.time_ns / max(1.0, first.row.time_ns):.3f}"
            )
            one += (
                [MISSING] * (3 if letter == next(iter(rows)) else 4)
                if other is None
                else [
                    f"{format_time(other.row.time_ns)} ({percent_text(other.row.cv)})",
                    MISSING
                    if other.row.busbw is None
                    else f"{other.row.busbw / 1e9:.4g}",
                    percent_text(other.share),
                    *([] if letter == next(iter(rows)) else [factor]),
                ]
            )
        cells.append(tuple(one))
    header = ["collective", "S", "N"]
    for letter in rows:
        header += [f"{letter}: time (CV %)", f"{letter}: GB/s", f"{letter}: % of rate"]
        if letter != next(iter(rows)):
            header.append(f"{letter}/{next(iter(rows))}")
    return Section(
        title=title,
        observed=_seen(runs),
        blocks=(
            Table(
                title=title,
                header=tuple(header),
                rows=tuple(cells),
                observed="",
                note="Mean times, bus bandwidths and their shares of the line rate. "
                "Rows are joined by job, collective, ranks and size.",
            ).cut(_DIFFERENCES_SHOWN),
        ),
    )


def _bandwidth(
    runs: Mapping[str, RunData], rows: Mapping[str, Sequence[ReportRow]]
) -> Section:
    lines: dict[str, Curve] = {}
    for letter, own in rows.items():
        lines |= bandwidth_lines(own, f"{letter}: ")
    if not lines:
        return Section(
            title="Bus bandwidth by size",
            text="no collective with a bus bandwidth was measured.",
        )
    return Section(
        title="Bus bandwidth by size",
        observed=_seen(runs),
        blocks=(Plot(figure=bandwidth_figure(lines)),),
    )


def _completion_times(runs: Mapping[str, RunData]) -> Section:
    lines: dict[str, Curve] = {}
    for letter, data in runs.items():
        lines |= fct_curves(data.measured, f"{letter}: ")
    if not lines:
        return Section(
            title="Flow completion times",
            text="no flow of a measured iteration was recorded.",
        )
    return Section(
        title="Flow completion times",
        observed=_seen(runs),
        blocks=(
            Plot(
                figure=fct_figure(lines, width=WHOLE),
                caption="Of each line 200 points evenly chosen, and the 100 slowest "
                "flows each by itself.",
            ),
        ),
    )


def _sessions(runs: Mapping[str, RunData]) -> Section:
    rates = {letter: data.session_rates for letter, data in runs.items()}
    ops = dict.fromkeys(op for each in rates.values() for op in each)
    if not ops:
        return Section(
            title="Session bandwidth",
            text="no flow of a measured iteration was recorded.",
        )
    rows = []
    for op in ops:
        found = [
            percentiles(each[op], SESSION_PERCENTS) if op in each else None
            for each in rates.values()
        ]
        rows += [
            (
                f"{op}, P{percent:02}",
                *(MISSING if each is None else format_rate(each[at]) for each in found),
            )
            for at, percent in enumerate(SESSION_PERCENTS)
        ]
    return Section(
        title="Session bandwidth",
        observed=_seen(runs),
        blocks=(_table("Session bandwidth", runs, rows, left=1),),
    )
