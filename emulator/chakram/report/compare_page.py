"""The report page that compares several runs, as ``chakram report A B`` writes it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from chakram.analysis.comparison import Comparison, compare, sentences, setting_text
from chakram.analysis.comparison_inputs import run_settings, side_of_runs
from chakram.console.number_format import MISSING, percent_text, variation_text
from chakram.console.summary_document import summary_document
from chakram.foundation.units import about_size, format_rate, format_time
from chakram.report import page
from chakram.report.blocks import Table, facts, table
from chakram.report.column_arithmetic import percentiles
from chakram.report.figure_elements import WHOLE
from chakram.report.plots import Curve, curves
from chakram.report.run import bandwidth_and_fct
from chakram.report.run.data import RunData
from chakram.report.run.page import notes_of, raw_files, title_of, warnings_of
from chakram.report.run.rows import RANK_PARTS, ReportRow, report_rows
from chakram.report.run.traffic import SESSION_PERCENTS

if TYPE_CHECKING:
    from chakram.run_directory.reader import RunResults


_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
MOST_RUNS = len(_LETTERS)
_DIFFERENCES_SHOWN, _CAUSES_SHOWN, _BARS = 100, 12, 8


class _Runs(dict[str, RunData]):
    """The runs of a page, by the letter that represents each run."""

    def seen(self, *letters: str) -> str:
        """Return the observation points of some letters, over all runs."""
        return ", ".join(dict.fromkeys(data.seen(*letters) for data in self.values()))

    @cached_property
    def rows(self) -> dict[str, tuple[ReportRow, ...]]:
        """The result rows of each run, by letter."""
        return {letter: report_rows(data) for letter, data in self.items()}

    @cached_property
    def compared(self) -> dict[str, Comparison]:
        """The comparison of every other run with the first run, by letter."""
        (first, *others) = (
            side_of_runs(data.results.path, [data.results]) for data in self.values()
        )
        found = (compare(first, other) for other in others)
        return dict(zip(list(self)[1:], found, strict=True))

    @cached_property
    def kinds(self) -> list[tuple[str, dict[str, ReportRow]]]:
        """Groups of matching rows: the name of each group, and its rows by run.

        Rows match if they have the same job, collective, number of ranks and size. Runs
        may differ in the algorithm, so the algorithm distinguishes rows only if a run
        has several algorithms.
        """
        repeated = {
            kind
            for own in self.rows.values()
            for kind, count in Counter(map(self._kind, own)).items()
            if count > 1
        }
        found: dict[tuple[Any, ...], tuple[str, dict[str, ReportRow]]] = {}
        for letter, own in self.rows.items():
            for each in own:
                kind, name = self._kind(each), str(each.row.op)
                if kind in repeated:
                    kind, name = (*kind, each.row.algorithm), each.name
                found.setdefault(kind, (name, {}))[1][letter] = each
        return list(found.values())

    def _kind(self, each: ReportRow) -> tuple[Any, ...]:
        row = each.row
        sizes = row.trace_size_bytes, row.size_bytes
        return self.job(row.job), row.op, row.nranks, *sizes

    @cached_property
    def _only_job(self) -> str | None:
        """The job of the first run, if every run has a single job."""
        names = [
            {each.job for each in data.summary.iterations}
            | {each.row.job for each in self.rows[letter]}
            for letter, data in self.items()
        ]
        return None if any(len(each) != 1 for each in names) else min(names[0])

    def job(self, name: str) -> str:
        """Return the name by which a job is matched with jobs of other runs.

        If every run has a single job, these jobs match even if their names differ.
        """
        return self._only_job or name

    def said(self, letter: str) -> list[str]:
        """Return sentences about how a run differs from the first run."""
        first, *more = sentences(self.compared[letter])
        first = first.replace(" in B", f" in {letter}")
        return [first, *(each.replace("A -> B", f"A -> {letter}") for each in more)]


def compare_page(results: Sequence[RunResults]) -> str:
    """Return the page that compares up to 25 runs with a first run, as HTML.

    Raises:
        RunDirectoryError: If a directory cannot be read.
    """
    runs = _Runs(zip(_LETTERS, map(RunData, results), strict=False))
    files = [
        replace(raw_files(data.results.path), title=f"Raw files of {letter}")
        for letter, data in runs.items()
    ]
    details = [_completion_times(runs), _sessions(runs)]
    worlds = {data.is_simulated for data in runs.values()}
    return page.render_page(
        title=_title(runs),
        lead=" · ".join(
            [
                "differences below two standard errors are not significant",
                "factors are relative to A",
                *_notes(runs),
            ]
        ),
        answer=_answer(runs),
        warnings=[
            f"{letter}: {each}"
            for letter, data in runs.items()
            for each in warnings_of(data)
        ],
        groups=[
            page.Group("Differences", [_verdicts(runs), _differences(runs)], True),
            page.Group("Iterations", [_iterations(runs)], True),
            page.Group("Collectives", [_collectives(runs), _bandwidth(runs)], True),
            page.Group("Flows", details),
            page.Group("Runs and raw files", [_runs(runs), *files]),
        ],
        document={
            letter: summary_document(data.summary) for letter, data in runs.items()
        },
        letters="bc" * (False in worlds) + "v" * (True in worlds) + "mf",
    )


def _title(runs: Mapping[str, RunData]) -> str:
    """Return the names of runs, or the setting that differs if the names are equal."""
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
    """Return notes on the runs. A note that applies to all runs appears once."""
    of = {letter: notes_of(data) for letter, data in runs.items()}
    return list(
        dict.fromkeys(
            note if all(note in each for each in of.values()) else f"{letter}: {note}"
            for letter, notes in of.items()
            for note in notes
        )
    )


def _answer(runs: _Runs) -> page.Answer:
    """Return the answer: verdict, iteration times and collectives of all runs."""
    tiles = []
    for letter, data in runs.items():
        longest = data.summary.longest
        tiles.append(
            page.Tile(
                "" if longest is None else format_time(longest.mean_ns),
                f"iteration of {letter}"
                + (variation_text(longest.cv) if longest else ""),
                "No iteration was measured.",
            )
        )
    rows = []
    for name, kind in runs.kinds[:_BARS]:
        row = next(iter(kind.values())).row
        times = [kind[each].row.time_ns if each in kind else None for each in runs]
        rows.append(
            (f"{name}, {row.nranks} ranks, {about_size(row.size_bytes)}", times)
        )
    bars = page.Bars(
        title="Time of each collective", series=list(runs), rows=rows, text=format_time
    )
    return page.Answer(
        verdict=" ".join(
            runs.said(letter)[0]
            if len(runs) == 2
            else f"{letter}: {runs.said(letter)[0]}"
            for letter in list(runs)[1:]
        ),
        tiles=tiles,
        bars=bars if rows else None,
        heading="Settings that differ",
        points=[
            (key, " · ".join(f"{k}: {v}" for k, v in zip(runs, values, strict=True)))
            for key, *values in _settings_that_differ(runs)[:5]
        ],
    )


@page.section("What differs", "c")
def _verdicts(runs: _Runs) -> page.Parts:
    """Return the section that compares each run with the first run in sentences."""
    rows: list[tuple[str, str]] = []
    parts: dict[str, dict[str, float]] = {}
    # If the causes of a run are known, a cause that is not among them cost no time.
    explained = {
        letter: 0.0 for letter, found in runs.compared.items() if "part" in found.levels
    }
    for letter, found in runs.compared.items():
        told = runs.said(letter)
        rows.append((f"{letter} against A", told[0]))
        rows += [("", each) for each in told[1:]]
        for each in found.levels.get("part", ()):
            line = parts.setdefault(each.label, {"A": each.a.mean_ns, **explained})
            line[letter] = each.b.mean_ns
    yield facts(*rows)
    if parts:
        largest = sorted(parts.items(), key=lambda item: -max(item[1].values()))
        yield _table(
            "Critical path: nominal time, and lost time by cause",
            runs,
            [
                _each(name, format_time, (line.get(letter) for letter in runs))
                for name, line in largest
            ],
            left=1,
            note="Means over the measured iterations; the parts sum to the iteration.",
        ).cut(_CAUSES_SHOWN)


def _each(
    what: str, text: Callable[[Any], str], values: Iterable[object]
) -> tuple[str, ...]:
    """Return a table row: the label, then the text of each run's value if known."""
    return (what, *(MISSING if each is None else text(each) for each in values))


def _table(
    title: str,
    runs: Mapping[str, object],
    rows: Sequence[tuple[str, ...]],
    *,
    left: int | None = None,
    note: str = "",
) -> Table:
    left = 1 + len(runs) if left is None else left
    return table(title, "|".join(["", *runs]), rows, left=left, note=note)


_FACTS: Mapping[str, Callable[[RunData], str]] = {
    "run": lambda data: data.manifest.run_id,
    "directory": lambda data: str(data.results.path),
    "name": lambda data: (
        data.manifest.name + (f" ({data.manifest.case})" if data.manifest.case else "")
    ),
    "world": lambda data: data.manifest.world,
    "status": lambda data: data.manifest.status,
    "device under test": lambda data: data.manifest.fabric,
    "transport": lambda data: data.manifest.transport,
    "iterations": lambda data: f"{data.manifest.measured} after {data.manifest.warmup}",
    "ranks": lambda data: str(len(data.summary.ranks)),
    "generator-bound": lambda data: (
        "virtual time"
        if data.is_simulated
        else f"{data.summary.generator_bound} of {data.summary.verdicts}"
    ),
    "clock bound": lambda data: format_time(
        data.manifest.clock_uncertainty_ns / data.dilation
    ),
}


@page.section("Runs")
def _runs(runs: _Runs) -> page.Parts:
    rows = [(what, *map(text, runs.values())) for what, text in _FACTS.items()]
    yield _table("Runs", runs, rows)


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


@page.section("Settings that differ")
def _differences(runs: _Runs) -> page.Parts:
    rows = _settings_that_differ(runs)
    if rows:
        yield page.Observed("(f)")
        yield _table("Settings that differ", runs, rows).cut(_DIFFERENCES_SHOWN)
    else:
        yield "none: settings and versions are the same."


@page.section("Iterations", "c")
def _iterations(runs: _Runs) -> page.Parts:
    jobs = dict.fromkeys(
        runs.job(each.job) for data in runs.values() for each in data.summary.iterations
    )
    rows: list[tuple[str, ...]] = []
    for job in jobs:
        found = [
            next(
                (each for each in data.summary.iterations if runs.job(each.job) == job),
                None,
            )
            for data in runs.values()
        ]
        ratios = [
            next(
                (each.ratio for each in data.rooflines if runs.job(each.job) == job),
                None,
            )
            for data in runs.values()
        ]
        means = [None if each is None else each.mean_ns for each in found]
        rows += [
            _each(
                f"JCT of {job}, mean",
                lambda it: format_time(it.mean_ns) + variation_text(it.cv),
                found,
            ),
            _each(f"JCT of {job}, factor", "{:.3f}".format, _factors(means)),
            _each(f"JCT ratio of {job} (m)", "{:.3f}".format, ratios),
        ]
    for what, name in RANK_PARTS.items():
        shares = []
        for data in runs.values():
            total = sum(rank.iteration_ns for rank in data.summary.ranks)
            own = sum(getattr(rank, name) for rank in data.summary.ranks)
            shares.append(own / total if total else None)
        rows.append(
            _each(
                f"{what}, of the iteration", lambda it: f"{percent_text(it)} %", shares
            )
        )
    counts = [data.summary for data in runs.values()]
    rows += [
        *(
            (
                what,
                *(
                    f"{getattr(each, name):,}" if each.is_counted else MISSING
                    for each in counts
                ),
            )
            for what, name in _COUNTS.items()
        ),
        _each(
            "uplinks: MMR, Jain's index (b)",
            lambda uplinks: f"{uplinks.max_over_mean:.3f}, {uplinks.jain:.4f}",
            (each.uplinks for each in counts),
        ),
    ]
    yield _table("Iterations", runs, rows)


_COUNTS = {
    "data packets": "packets",
    "marked CE": "marked",
    "retransmitted": "retransmitted",
}


def _factors(times_ns: Sequence[float | None]) -> list[float | None]:
    """Return each time divided by the first time, or None if either is unknown."""
    first = times_ns[0]
    return [
        None if each is None or first is None else each / max(1.0, first)
        for each in times_ns
    ]


@page.section("Collectives", "c")
def _collectives(runs: _Runs) -> page.Parts:
    if not runs.kinds:
        raise page.Absent("none was measured.")
    cells = []
    for name, found in runs.kinds:
        example = next(iter(found.values())).row
        one = [name, about_size(example.size_bytes), str(example.nranks)]
        others = [found.get(letter) for letter in runs]
        factors = _factors([other.row.time_ns if other else None for other in others])
        for number, (other, factor) in enumerate(zip(others, factors, strict=True)):
            if other is None:
                one += [MISSING] * 3
            else:
                row, busbw = other.row, other.row.busbw
                one += [
                    f"{format_time(row.time_ns)} ({percent_text(row.cv)})",
                    MISSING if busbw is None else f"{busbw / 1e9:.4g}",
                    percent_text(other.share),
                ]
            if number:
                one.append(MISSING if factor is None else f"{factor:.3f}")
        cells.append(tuple(one))
    header = ["collective", "S", "N"]
    for letter in runs:
        header += [f"{letter}: time (CV %)", f"{letter}: GB/s", f"{letter}: % of rate"]
        header += [f"{letter}/A"] * (letter != "A")
    yield table(
        "Collectives",
        "|".join(header),
        cells,
        note="Mean times, bus bandwidths and their shares of the line rate. Rows are "
        "matched by job, collective, ranks and size, and by algorithm if a run has "
        "several.",
        limit=_DIFFERENCES_SHOWN,
    )


@page.section("Bus bandwidth by size", "c")
def _bandwidth(runs: _Runs) -> page.Parts:
    lines: dict[str, Curve] = {}
    for letter, own in runs.rows.items():
        lines |= bandwidth_and_fct.bandwidth_lines(own, f"{letter}: ")
    yield (
        page.Plot(figure=curves(lines, **bandwidth_and_fct.BANDWIDTH))
        if lines
        else page.NO_BANDWIDTHS
    )


@page.section("Flow completion times", "c")
def _completion_times(runs: _Runs) -> page.Parts:
    lines: dict[str, Curve] = {}
    for letter, data in runs.items():
        lines |= bandwidth_and_fct.fct_curves(data.measured, f"{letter}: ")
    if not lines:
        raise page.Absent(page.NO_FLOWS)
    caption = "Each line shows 200 evenly chosen points, and each of the 100 slowest "
    figure = curves(lines, **bandwidth_and_fct.COMPLETION, width=WHOLE)
    yield page.Plot(figure=figure, caption=f"{caption}flows.")


@page.section("Session bandwidth", "c")
def _sessions(runs: _Runs) -> page.Parts:
    rates = [data.session_rates for data in runs.values()]
    rows = []
    for op in dict.fromkeys(op for each in rates for op in each):
        found = [
            percentiles(each[op], SESSION_PERCENTS) if op in each else None
            for each in rates
        ]
        for at, percent in enumerate(SESSION_PERCENTS):
            values = (None if each is None else each[at] for each in found)
            rows.append(_each(f"{op}, P{percent:02}", format_rate, values))
    yield _table("Session bandwidth", runs, rows, left=1) if rows else page.NO_FLOWS
