"""The section of a run's page that says what its time was lost by."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chakram.observe.report import plots
from chakram.observe.report.blocks import Facts, Table
from chakram.observe.report.page import Plot, Section
from chakram.units import format_time

if TYPE_CHECKING:
    from chakram.observe.report.run_data import RunData


_CAUSES_SHOWN, _PLACES_SHOWN = 10, 5


def why_section(data: RunData) -> Section:
    """Return causes of lost time, and what the critical path is made of."""
    title, found = "Why", data.why
    if isinstance(found, str):
        return Section(title=title, text=f"{found}.")
    if not found.time_ns:
        return Section(title=title, text="the critical paths take no time.")

    def mean(time_ns: float) -> str:
        return format_time(time_ns / found.iterations / data.dilation)

    def share(time_ns: float) -> str:
        return f"{100 * time_ns / found.time_ns:.1f}"

    first = found.first
    facts = (
        (
            "largest charge",
            "no charge takes 3 % of the iterations"
            if first is None
            else f"{first}: {share(first.lost_ns)} %",
        ),
        ("critical path", f"{mean(found.time_ns)}, mean of {found.iterations}"),
        ("lost on it", f"{mean(found.lost_ns)}, {share(found.lost_ns)} %"),
        ("unknown", f"{100 * found.unknown_share:.1f} % of the path"),
    )
    lists = (
        ("rank", [(str(rank), lost_ns) for rank, lost_ns in found.by_rank]),
        ("collective or computation", list(found.by_collective)),
    )
    parts = sorted(found.parts_ns.items(), key=lambda item: -item[1])
    parts = [(part, time_ns) for part, time_ns in parts if time_ns]
    return Section(
        title=title,
        text="The critical path of an iteration goes back from its last end to what "
        "was waited for each time. Time on it beyond what its parts take at nominal "
        "rates is lost; each lost nanosecond is charged to one cause. A charge says "
        "where time is felt; chakram why tests what the run saves without a cause.",
        observed=data.seen("c", "m"),
        blocks=(
            Facts(rows=facts),
            Table(
                title="Causes of lost time",
                header=("cause", "place", "mean per iteration", "% of the iteration"),
                rows=tuple(
                    (each.cause, each.place, mean(each.lost_ns), share(each.lost_ns))
                    for each in found.causes[:_CAUSES_SHOWN]
                ),
                left=2,
                note=f"{len(found.causes)} causes in all.",
            ),
            Plot(
                figure=plots.bars(
                    {
                        "mean": [
                            time_ns / found.iterations / data.dilation
                            for _, time_ns in parts
                        ]
                    },
                    names=[str(part) for part, _ in parts],
                    title="Parts of the critical path",
                    unit="ns",
                    name="path-parts",
                ),
                caption="Mean over the measured iterations; the parts sum to them.",
            ),
            *(
                Table(
                    title=f"Lost time by {what}",
                    header=(what, "mean per iteration", "% of the iteration"),
                    rows=tuple(
                        (name, mean(lost_ns), share(lost_ns))
                        for name, lost_ns in lost[:_PLACES_SHOWN]
                    ),
                )
                for what, lost in lists
                if lost
            ),
        ),
    )
