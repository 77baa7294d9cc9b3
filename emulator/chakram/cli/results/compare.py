"""``chakram compare`` and ``chakram diff``: compare results and settings."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chakram.cli.common import options
from chakram.cli.common.fast_arrow_import import import_arrow_only

if TYPE_CHECKING:
    from chakram.analysis.comparison import Comparison, Difference, Times

_LISTED = 10
_LEAST_LABEL = 24
_MANY = ">9999"
_NUMBERS_WIDTH = 52
"""Approximate width of all numbers in a row."""


def compare(
    first: Annotated[
        Path,
        typer.Argument(metavar="A", help="Baseline: the same kinds of input as B."),
    ],
    others: Annotated[
        list[Path],
        typer.Argument(
            metavar="B...",
            help="Run directories, folders of repeated runs, or files. Files are "
            "output of `run --json` or nccl-tests (text or JSON), an ASTRA-sim log, "
            "an fct.txt file from ns-3, or replayedCommsPerf files from PARAM.",
        ),
    ],
    every: Annotated[
        bool, typer.Option("--all", help="List all compared values.")
    ] = False,
    wide: options.Wide = False,
    as_json: options.Json = False,
) -> None:
    """Compare results of runs, simulations and other tools.

    Without --all, the tables list only differences that exceed the variation between
    repetitions.
    """
    import_arrow_only()
    from chakram.analysis.comparison import compare as compared
    from chakram.analysis.comparison_inputs import read_side

    a = read_side(first)
    found = [compared(a, read_side(path)) for path in others]
    if as_json:
        options.print_json(
            "comparison", {"comparisons": [_document(each) for each in found]}
        )
        return
    width = options.output_width(wide=wide)
    for place, each in enumerate(found):
        if place:
            print()
        _print(each, every=every, width=width)


def _print(found: Comparison, *, every: bool, width: int | None) -> None:
    from chakram.analysis.comparison import LEVELS, sentences

    for name, side in (("A", found.a), ("B", found.b)):
        print(f"{name}  {side.name} ({side.kind})")
    print()
    for sentence in sentences(found):
        print(_wrapped(sentence, width))
    for note in dict.fromkeys((*found.a.notes, *found.b.notes)):
        names = [
            name
            for name, side in (("A", found.a), ("B", found.b))
            if note in side.notes
        ]
        print(_wrapped(f"!! {', '.join(names)}: {note}", width))
    for level, differences in found.levels.items():
        listed = [each for each in differences if every or each.significant]
        # If each kind of collective occurs once, this level repeats the level ``size``.
        alike = level in ("instance", "named") and len(differences) == len(
            found.levels.get("size", ())
        )
        if not listed or (alike and not every):
            continue
        shown = listed if every else listed[:_LISTED]
        differ = sum(bool(each.significant) for each in differences)
        which = f"; the {len(shown)} largest" if len(shown) < len(listed) else ""
        print()
        print(f"# {LEVELS[level]}: {differ} of {len(differences)} differ{which}")
        _print_rows(shown, width=width)
    for level, (mine, theirs) in found.only.items():
        if mine or theirs:
            print(
                _wrapped(
                    f"# {LEVELS[level]} on one side only: A {mine}, B {theirs}",
                    width,
                )
            )


def _print_rows(rows: Sequence[Difference], *, width: int | None) -> None:
    from chakram.console.number_format import errors_text, percent_text, time_text
    from chakram.console.text_table import Column

    most = max(len(each.label) for each in rows)
    if width is not None:
        most = min(most, max(_LEAST_LABEL, width - _NUMBERS_WIDTH))
    options.print_columns(
        [
            Column(heading="what".ljust(most)),
            Column(heading="A"),
            Column(heading="B"),
            Column(heading="change", unit="(%)"),
            Column(heading="errors", order=1),
            Column(heading="cv A", unit="(%)", order=2),
            Column(heading="cv B", unit="(%)", order=2),
            Column(heading="n A/B", order=3),
        ],
        [
            (
                _shortened(each.label, most).ljust(most),
                time_text(each.a.mean_ns),
                time_text(each.b.mean_ns),
                _MANY
                if (each.change or 0) >= 100
                else percent_text(each.change, sign="+"),
                errors_text(each.errors),
                percent_text(each.a.cv),
                percent_text(each.b.cv),
                f"{each.a.samples}/{each.b.samples}",
            )
            for each in rows
        ],
        width=width,
    )


def _shortened(text: str, most: int) -> str:
    """Shorten a string in the middle if it is too long."""
    if len(text) <= most:
        return text
    tail = most * 2 // 3
    return f"{text[: most - tail - 2]}..{text[-tail:]}"


def _wrapped(text: str, width: int | None) -> str:
    if width is None:
        return text
    return textwrap.fill(
        text, width=width, break_long_words=False, break_on_hyphens=False
    )


def _document(found: Comparison) -> dict[str, Any]:
    from chakram.analysis.comparison import sentences

    first = found.first
    return {
        **{
            name: {"name": side.name, "kind": side.kind, "notes": list(side.notes)}
            for name, side in (("a", found.a), ("b", found.b))
        },
        "sentences": sentences(found),
        "differs": first is not None,
        "first": None if first is None else _row(first),
        "levels": {
            level: [_row(each) for each in rows] for level, rows in found.levels.items()
        },
        "only": {
            level: {"a": mine, "b": theirs}
            for level, (mine, theirs) in found.only.items()
        },
        "counters": {
            name: {"a": a.value, "b": b.value, "unit": a.unit}
            for name, (a, b) in found.counters.items()
        },
        "settings": {key: {"a": a, "b": b} for key, (a, b) in found.settings.items()},
    }


def _row(each: Difference) -> dict[str, Any]:
    return {
        "key": list(each.key),
        "label": each.label,
        "a": _times(each.a),
        "b": _times(each.b),
        "change": each.change,
        "lost_ns": each.lost_ns,
        # If both sides are exact, there are no standard errors.
        "errors": None if each.errors in (None, float("inf")) else each.errors,
        "significant": each.significant,
    }


def _times(times: Times) -> dict[str, Any]:
    found = times._asdict()
    del found["freedom"]
    return found


def diff(
    first: Annotated[
        Path, typer.Argument(metavar="A", help="Run directory or experiment file.")
    ],
    second: Annotated[
        Path, typer.Argument(metavar="B", help="Run directory or experiment file.")
    ],
    wide: options.Wide = False,
    as_json: options.Json = False,
) -> None:
    """Compare the settings of two runs or experiments."""
    from chakram.analysis.comparison import differing_settings, setting_text
    from chakram.console.text_table import Column

    a, b = (_settings(path) for path in (first, second))
    # An experiment file does not contain versions or hosts.
    sections = {_section(key) for key in a} & {_section(key) for key in b}
    differing = {
        key: both
        for key, both in differing_settings(a, b).items()
        if _section(key) in sections
    }
    if as_json:
        document = {key: {"a": old, "b": new} for key, (old, new) in differing.items()}
        options.print_json(
            "diff", {"a": str(first), "b": str(second), "differing": document}
        )
        return
    if not differing:
        print(f"{first} and {second} have the same settings")
        return
    rows = [
        (key, setting_text(old), setting_text(new))
        for key, (old, new) in differing.items()
    ]
    width = options.output_width(wide=wide)
    names = ("setting", "A", "B")
    widths = [max(map(len, column)) for column in zip(names, *rows, strict=True)]
    while width is not None and sum(widths) > max(36, width - 4):
        widths[widths.index(max(widths))] -= 1
    cells = [tuple(map(_shortened, row, widths)) for row in rows]
    print(f"# A  {first}\n# B  {second}")
    options.print_columns(
        [
            Column(heading=name.ljust(size))
            for name, size in zip(names, widths, strict=True)
        ],
        [
            [cell.ljust(size) for cell, size in zip(row, widths, strict=True)]
            for row in cells
        ],
        width=width,
    )


def _section(key: str) -> str:
    """Return the first part of a key, e.g. ``jobs`` of ``jobs[0].name``."""
    return re.split(r"[.\[]", key, maxsplit=1)[0]


def _settings(path: Path) -> dict[str, Any]:
    from chakram.analysis.comparison_inputs import flattened, run_settings
    from chakram.run_directory.reader import open_run

    if path.is_dir():
        return run_settings(open_run(path))
    experiment, _ = options.read_experiment(path, None)
    return flattened(
        {
            key: value
            for key, value in experiment.written.model_dump(
                mode="json", by_alias=True
            ).items()
            if key not in ("name", "description", "runs", "lab", "metrics")
        }
    )
