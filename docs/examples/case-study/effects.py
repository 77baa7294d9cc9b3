"""Tables and figures of the effects of concurrent collectives on each other.

    python effects.py SUITE.yaml FOLDER [--figures FOLDER]

The script reads the runs of a sweep whose cases have the names of those in
``configs/moe-mix``. A collective counts if the other type ran from its start to its
end. In runs of one type, all collectives count. A number is the median over the
repetitions, with the quartiles in brackets. Factors compare runs with the same seed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from chakram.config.suite import load_suite
from chakram.report.chromium_figures import export_figures
from chakram.report.column_arithmetic import cdf_points, percentiles
from chakram.report.page import Plot, Section, render_page
from chakram.report.plots import Curve, curves
from chakram.run_directory.reader import RunResults, open_run
from chakram.summary.bandwidth import bus_factor

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from chakram.records.run_records import CollectiveRecord

OPS = ("all_reduce", "all_to_all")
PARTS = (
    *("own_port", "window", "pace", "pause", "transfer", "repair"),
    *("queue", "switch_pause", "serialise"),
)
ALONE = {"all_reduce": "all-reduce-alone", "all_to_all": "all-to-all-alone"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The collectives of one type in one run that count. Times are undilated.

    Attributes:
        times_ns: Duration of each collective.
        busbw: Bus bandwidth of each collective in GB/s.
        numbers: Number of each collective among all of its type.
        fct_ns: Completion times of all their flows.
        rates_bps: Rate of each flow's queue pair when the flow started; 0: no limit.
        parts_ns: Parts of the completion times, by name.
        left_out: Number of collectives that do not count.
    """

    times_ns: NDArray[Any]
    busbw: NDArray[Any]
    numbers: NDArray[Any]
    fct_ns: NDArray[Any]
    rates_bps: NDArray[Any]
    parts_ns: Mapping[str, NDArray[Any]]
    left_out: int

    def tail_share(self, part: str) -> float:
        """Return the share of a part in the time of the slowest hundredth of flows."""
        (limit_ns,) = percentiles(self.fct_ns, (99,))
        slow = self.fct_ns >= limit_ns
        return float(self.parts_ns[part][slow].sum() / self.fct_ns[slow].sum())


def is_overlapped(own: CollectiveRecord, others: Iterable[CollectiveRecord]) -> bool:
    """Return whether the other type ran from a collective's start to its end.

    Collectives of one type follow each other without a gap. So it is enough if one of
    them started before this collective, and one ended after it.
    """
    beside = [
        each
        for each in others
        if each.iteration == own.iteration and each.identity.op != own.identity.op
    ]
    return not beside or (
        min(each.start_ns for each in beside) <= own.start_ns
        and max(each.end_ns for each in beside) >= own.end_ns
    )


def samples_of(results: RunResults) -> dict[str, Sample]:
    """Return the collectives of a run that count, by operation."""
    dilation = results.manifest.dilation
    found = [
        each
        for each in results.collectives()
        if each.measured and each.identity.op.value in OPS
    ]
    flows = results.table("flows")
    places = list(
        zip(
            flows["iteration"].to_pylist(),
            flows["group"].to_pylist(),
            flows["k"].to_pylist(),
            strict=True,
        )
    )
    samples: dict[str, Sample] = {}
    for op in OPS:
        mine = [each for each in found if each.identity.op.value == op]
        kept = [each for each in mine if is_overlapped(each, found)]
        if not kept:
            continue
        wanted = {
            (each.iteration, each.identity.key.group, each.identity.key.k)
            for each in kept
        }
        own = flows.filter([place in wanted for place in places])
        times_ns = np.array([each.duration_ns for each in kept]) / dilation
        bus_bytes = np.array(
            [
                float(bus_factor(each.identity.op, nranks=each.identity.nranks))
                * each.identity.size_bytes
                for each in kept
            ]
        )
        samples[op] = Sample(
            times_ns=times_ns,
            busbw=bus_bytes / times_ns,
            numbers=np.array([each.identity.key.k for each in kept]),
            fct_ns=own["fct_ns"].to_numpy() / dilation,
            rates_bps=own["rate_at_start_bps"].to_numpy() * float(dilation),
            parts_ns={
                part: own[f"{part}_ns"].fill_null(0).to_numpy() / dilation
                for part in PARTS
            },
            left_out=len(mine) - len(kept),
        )
    return samples


Study = dict[tuple[str, str], dict[int, dict[str, Sample]]]
"""By case and congestion control, by repetition, by operation."""


def read_study(suite: Path, folder: Path) -> Study:
    """Return the collectives of a sweep that count."""
    plan = load_suite(suite)
    study: Study = defaultdict(dict)
    for cell, repetition in plan.turns():
        path = folder / "cells" / f"{cell.number:04d}-{repetition}.json"
        if not path.exists():
            continue
        outcome = json.loads(path.read_text(encoding="utf-8"))
        if outcome["status"] != "complete":
            raise SystemExit(f"{cell.name} {repetition}: {outcome['reason']}")
        name = " ".join(map(said, cell.values.values()))
        samples = samples_of(open_run(Path(outcome["directory"])))
        study[cell.case, name][repetition] = samples
    return study


def said(value: Any) -> str:
    """Return a value of the matrix as a word. A congestion control is its profile."""
    while isinstance(value, dict):
        (value,) = value.values()
    return str(value)


def spread(values: Sequence[float], scale: float = 1.0) -> str:
    """Return a median with its quartiles, or an empty string if there are no values."""
    if not values:
        return ""
    low, median, high = np.percentile(np.array(values) / scale, (25, 50, 75))
    return f"{median:.3g} ({low:.3g}-{high:.3g})"


def table(study: Study, op: str) -> list[str]:
    """Return the effects on one type of collective as a Markdown table."""
    lines = [
        f"| {op} | control | runs | left out | p50 (us) | p99 (us) | times alone | "
        "collective (us) | times alone | CV (%) | busbw (GB/s) |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for (case, control), runs in study.items():
        mine = {number: each[op] for number, each in runs.items() if op in each}
        if not mine:
            continue
        own = list(mine.values())
        alone = {
            number: each[op]
            for number, each in study.get((ALONE[op], control), {}).items()
        }
        pairs = [
            (each, alone[number]) for number, each in mine.items() if number in alone
        ]
        cells = [
            *(case, control, str(len(own)), str(sum(each.left_out for each in own))),
            spread([percentiles(each.fct_ns, (50,))[0] for each in own], 1e3),
            spread([percentiles(each.fct_ns, (99,))[0] for each in own], 1e3),
            spread([tail(each) / tail(other) for each, other in pairs]),
            spread([float(np.median(each.times_ns)) for each in own], 1e3),
            spread(
                [
                    float(np.median(each.times_ns) / np.median(other.times_ns))
                    for each, other in pairs
                ]
            ),
            spread([100 * each.times_ns.std() / each.times_ns.mean() for each in own]),
            spread([float(np.median(each.busbw)) for each in own]),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def tail(sample: Sample) -> float:
    """Return the 99th percentile of the completion times of flows."""
    return percentiles(sample.fct_ns, (99,))[0]


def tails(study: Study, op: str) -> list[str]:
    """Return the parts of the time of the slowest hundredth of flows, as a table."""
    lines = [
        f"| slowest hundredth of {op} | control | {' | '.join(PARTS)} | "
        "queue pair at its start (Gbit/s) |",
        f"|---|---|{'---|' * len(PARTS)}---|",
    ]
    for (case, control), runs in study.items():
        own = [each[op] for each in runs.values() if op in each]
        if not own:
            continue
        shares = [
            f"{100 * np.median([each.tail_share(part) for each in own]):.0f} %"
            for part in PARTS
        ]
        rates = [
            float(np.median(each.rates_bps[each.fct_ns >= tail(each)])) for each in own
        ]
        said = spread(rates, 1e9) if any(rates) else "no limit"
        lines.append(f"| {case} | {control} | {' | '.join(shares)} | {said} |")
    return lines


CONTROL = "dcqcn-nvidia"
"""Congestion control in the figures, in addition to ``none``."""


def figures(study: Study, control: str = CONTROL) -> list[Plot]:
    """Return plots of bus bandwidths and of the distribution of completion times."""
    plots = []
    for op in OPS:
        lines = {}
        for case, name in (
            (ALONE[op], control),
            ("mixed", "none"),
            ("mixed", control),
            ("classes-apart", control),
        ):
            found = study.get((case, name), {}).values()
            runs = [each[op] for each in found if op in each]
            by_number: dict[int, list[float]] = defaultdict(list)
            for each in runs:
                for number, busbw in zip(each.numbers, each.busbw, strict=True):
                    by_number[int(number)].append(float(busbw))
            numbers = [
                at for at in sorted(by_number) if 2 * len(by_number[at]) > len(runs)
            ]
            if not numbers:
                continue
            low, median, high = (
                [float(np.percentile(by_number[at], part)) for at in numbers]
                for part in (25, 50, 75)
            )
            lines[f"{case}, {name}"] = Curve(x=numbers, y=median, low=low, high=high)
        plots.append(
            Plot(
                figure=curves(
                    lines,
                    name=f"case-study-busbw-{op.replace('_', '-')}",
                    title=f"Bus bandwidth of each {op}",
                    x="",
                    y="GB/s",
                    x_label=f"number of the {op}",
                    y_label="bus bandwidth",
                )
            )
        )
    lines = {}
    for case, each in (
        (ALONE["all_to_all"], control),
        ("mixed", "none"),
        ("mixed", control),
        ("classes-apart", control),
    ):
        runs = [one["all_to_all"] for one in study.get((case, each), {}).values()]
        runs = [one for one in runs if len(one.fct_ns)]
        if not runs:
            continue
        times_ns, parts = cdf_points(np.concatenate([one.fct_ns for one in runs]))
        lines[f"{case}, {each}"] = Curve(x=times_ns, y=parts)
    plots.append(
        Plot(
            figure=curves(
                lines,
                name="case-study-fct",
                title="Completion times of the flows of all_to_all",
                x="ns",
                y="",
                x_label="completion time",
                y_label="part of the flows",
                x_log=True,
                steps=True,
            )
        )
    )
    return plots


def main() -> None:
    """Print the tables, and draw the figures if a folder for them is given."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("suite", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--figures", type=Path)
    arguments = parser.parse_args()
    study = read_study(arguments.suite, arguments.folder)
    for op in OPS:
        sys.stdout.write("\n".join([*table(study, op), "", *tails(study, op), "", ""]))
    if arguments.figures:
        page = render_page(
            title="Case study",
            lead="",
            groups=[Section(title="Figures", blocks=tuple(figures(study)))],
            document={},
        )
        for path in export_figures(page, arguments.figures):
            sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    main()
