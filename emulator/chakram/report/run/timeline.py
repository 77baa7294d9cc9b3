"""The timeline of ranks: activities and critical path of a run's slowest iteration."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from chakram.foundation import grouping
from chakram.foundation.units import about_size, format_time
from chakram.report.page import NO_FLOWS, Absent, Observed, Parts, Plot, section
from chakram.report.plots import spans
from chakram.report.run.flows import shares_of

if TYPE_CHECKING:
    from bokeh.models import Range1d

    from chakram.report.run.data import RunData


_RANKS_SHOWN = 64
_BARS_SHOWN = 20_000


class _Bar(NamedTuple):
    """Time span of a rank's activity, with the activity's kind and text."""

    rank: int
    start_ns: float
    end_ns: float
    kind: str
    text: str


@section("Timeline of ranks")
def gantt(data: RunData, x_range: Range1d) -> Parts:
    """Return the section of ranks' activities in the slowest iteration."""
    spans_of = grouping.spans(
        ((rank.job, rank.iteration), rank.start_ns, rank.end_ns)
        for rank in data.ranks
        if rank.measured and (rank.job, rank.iteration) in data.whole_iterations
    )
    if not spans_of:
        raise Absent("no rank completed a measured iteration.")
    slowest = max(spans_of, key=lambda each: spans_of[each][1] - spans_of[each][0])
    path = None if isinstance(data.why, str) else data.why.path
    bars = [] if path is None else _bars_of_operations(data, path.job)
    what = "from its start on the rank to its end there"
    if path is not None and bars:
        slowest = path.job, path.iteration
    else:
        bars, path = _bars_of_flows(data, *slowest), None
        what = (
            "from the first message that a rank posted or that was sent to it, to the "
            "last one acknowledged"
        )
    if not bars:
        raise Absent(NO_FLOWS)
    job, iteration = slowest
    x_range.start, x_range.end = map(data.undilated, spans_of[slowest])
    on_path = {} if path is None else {each.rank: 0 for each in path.pieces}
    ranks = sorted({bar.rank for bar in bars})
    evenly = ranks[:: -(-len(ranks) // _RANKS_SHOWN)]
    drawn = sorted(list(dict.fromkeys([*on_path, *evenly]))[:_RANKS_SHOWN])
    names = {rank: str(rank) for rank in drawn}
    chosen = sorted(
        (bar for bar in bars if bar.rank in names),
        key=lambda bar: bar.start_ns - bar.end_ns,
    )
    kinds: dict[str, list[_Bar]] = {}
    for bar in chosen[:_BARS_SHOWN]:
        kinds.setdefault(bar.kind, []).append(bar)
    caption = f"Measured iteration {iteration}, the slowest; each bar: {what}."
    if path is not None or len({name for name, _ in spans_of}) > 1:
        caption += f" Of job {job}."
    stretches = []
    if path is not None:
        caption += (
            " The red line is the critical path (m): what the end of the iteration had "
            "to wait for."
        )
        stretches = [
            (
                names[each.rank],
                data.undilated(each.start_ns),
                data.undilated(each.end_ns),
                f"{each.part}: {format_time(each.time_ns / data.dilation)}",
            )
            for each in path.pieces
            if each.rank in names
        ]
    if len(drawn) < len(ranks):
        caption += f" {len(drawn)} of {len(ranks)} ranks are drawn, those on the path "
        caption += "first, the others evenly chosen."
    if len(chosen) > _BARS_SHOWN:
        caption += f" The {_BARS_SHOWN} longest of {len(chosen)} bars are drawn."
    yield Observed(data.seen("c") if path is None else data.seen("c", "m"))
    figure = spans(
        {
            kind: {
                "row": [names[bar.rank] for bar in own],
                "left": [bar.start_ns for bar in own],
                "right": [bar.end_ns for bar in own],
                "text": [bar.text for bar in own],
            }
            for kind, own in sorted(kinds.items())
        },
        rows=list(names.values()),
        name="gantt",
        title="Activity of each rank",
        y_label="rank",
        x_range=x_range,
        path=stretches,
    )
    yield Plot(figure=figure, caption=caption)


def _bars_of_operations(data: RunData, job: str) -> list[_Bar]:
    ops = {
        (record.identity.key.group, record.identity.key.k): str(record.identity.op)
        for record in data.collectives
        if record.identity.key.job == job
    }
    bars = []
    for each in data.operations:
        kind = each.kind
        what = each.name
        if each.group is not None and each.k is not None:
            kind = ops.get((each.group, each.k), kind)
            what = f"{each.name}, {each.group} #{each.k}"
        took = format_time((each.end_ns - each.start_ns) / data.dilation)
        start_ns, end_ns = data.undilated(each.start_ns), data.undilated(each.end_ns)
        text = f"rank {each.rank}, {what}: {took}"
        bars.append(_Bar(each.rank, start_ns, end_ns, kind, text))
    return bars


def _bars_of_flows(data: RunData, job: str, iteration: int) -> list[_Bar]:
    flows = data.measured
    jobs, groups, ops = (flows.names[name] for name in ("job", "group", "collective"))
    number = jobs.index(job) if job in jobs else -1
    own_flows = (flows["iteration"] == iteration) & (flows["job"] == number)
    shares = shares_of(flows.where(own_flows))
    bars = []
    for at in range(len(shares)):
        own = {name: int(column[at]) for name, column in shares.columns.items()}
        took = format_time(own["end_ns"] - own["start_ns"])
        text = (
            f"rank {own['rank']}, {groups[own['group']]} #{own['k']}: {took}, "
            f"{about_size(own['sent_bytes'])} sent"
        )
        times_ns = float(own["start_ns"]), float(own["end_ns"])
        bars.append(_Bar(own["rank"], *times_ns, str(ops[own["collective"]]), text))
    return bars
