"""Plot and facts of a topology, for pages of runs, and the page of a fabric."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from bokeh import models

from chakram.console.summary_document import fabric_document
from chakram.foundation.units import about_size, format_rate, format_time
from chakram.report import figure_elements
from chakram.report.blocks import facts, table
from chakram.report.page import Plot, Section, render_page
from chakram.report.palette import GRAY, SERIES
from chakram.topology.drawing import Drawing, laid_out

if TYPE_CHECKING:
    from bokeh.plotting import figure

    from chakram.topology.topology import Topology


HOSTS_DRAWN = 64
"""Limit on hosts to draw individually. If there are more, one host represents all hosts
of a switch."""

_LINKS_DRAWN, _LINKS_LISTED = 6000, 1000


class _Line(NamedTuple):
    """Parallel links that the plot shows as one line.

    ``rate_bps`` and ``name`` are those of the first link, ``bytes`` is the total.
    """

    links: int
    bytes: int
    rate_bps: int | None
    name: str


def topology_plot(topology: Topology, loads: Mapping[str, int]) -> figure | None:
    """Return a plot of hosts, switches and links, or None if it has too many lines.

    Args:
        topology: The topology. With many hosts, one host represents all hosts of its
            switch.
        loads: Bytes of links in both directions, which set the colors. If empty, rates
            set the colors.
    """
    drawing = laid_out(topology, most_hosts=HOSTS_DRAWN)
    if len(drawing.lines) > _LINKS_DRAWN:
        return None
    places = drawing.places
    ntiers = len(drawing.tiers)
    lines = {
        ends: _Line(
            len(links),
            sum(loads.get(link.name, 0) for link in links),
            links[0].rate_bps,
            links[0].name,
        )
        for ends, links in drawing.lines.items()
    }
    plot = figure_elements.new_figure(
        name="topology",
        title="Topology; color: bytes of a link, both directions"
        if loads
        else "Topology; color: rate of a link",
        least=max(440, min(figure_elements.WHOLE, 60 * max(map(len, drawing.tiers)))),
        height=120 + 110 * ntiers,
        x_range=models.Range1d(-0.02, 1.02),
        y_range=models.Range1d(-0.5, ntiers - 0.5),
    )
    plot.axis.visible = False
    plot.grid.visible = False
    highest = max((line.bytes / line.links for line in lines.values()), default=0)
    colors = figure_elements.load_colors(highest or 1)
    rates = dict.fromkeys(line.rate_bps for line in lines.values())
    for number, rate in enumerate([None] if highest else rates):
        own = [ends for ends in lines if highest or lines[ends].rate_bps == rate]
        look: dict[str, Any] = (
            {"line_color": {"field": "bytes", "transform": colors}}
            if highest
            else {
                "line_color": SERIES[number % 10],
                "legend_label": "no rate" if rate is None else format_rate(rate),
            }
        )
        drawn = figure_elements.draw(
            plot,
            "MultiLine",
            {
                "xs": [[places[a][0], places[b][0]] for a, b in own],
                "ys": [[places[a][1], places[b][1]] for a, b in own],
                "bytes": [lines[ends].bytes / lines[ends].links for ends in own],
                "text": [
                    _link_text(*ends, lines[ends], is_counted=bool(loads))
                    for ends in own
                ],
            },
            xs="xs",
            ys="ys",
            line_width=2 if len(lines) < 200 else 1,
            **look,
        )
        figure_elements.hover(plot, drawn, "@text")
    figure_elements.legend_below(plot)
    _add_nodes(plot, drawing)
    if highest:
        figure_elements.add_color_bar(plot, colors, "bytes")
    return plot


def _add_nodes(plot: figure, drawing: Drawing) -> None:
    """Draw hosts and switches with their names."""
    places, labels = drawing.places, drawing.labels
    crowd = max(map(len, drawing.tiers))
    sizes = {node: _label_size(drawing, own) for own in drawing.tiers for node in own}
    columns = {
        "x": [at[0] for at in places.values()],
        "y": [at[1] for at in places.values()],
        "label": [labels[node] for node in places],
        "shown": [labels[node] if sizes[node] else "" for node in places],
        "size": [sizes[node] or "8px" for node in places],
        "color": ["#f5f7fa" if tier else "#b9d4ef" for _, tier in places.values()],
        "offset": [-16 if tier else 16 for _, tier in places.values()],
    }
    nodes = models.ColumnDataSource(columns)
    boxes = figure_elements.draw(
        plot,
        "Scatter",
        nodes,
        x="x",
        y="y",
        marker="square",
        size=16 if crowd <= 32 else 8,
        fill_color="color",
        line_color="#345",
    )
    figure_elements.hover(plot, boxes, "@label")
    look = {"text_align": "center", "text_baseline": "middle", "text_color": GRAY}
    place = {"x": "x", "y": "y", "text": "shown", "y_offset": "offset"}
    figure_elements.draw(plot, "Text", nodes, **place, text_font_size="size", **look)


def _label_size(drawing: Drawing, tier: Sequence[str]) -> str | None:
    """Return a font size at which a tier's labels do not overlap, or None."""
    room = (figure_elements.WHOLE - 120) / len(tier)
    longest = max(len(drawing.labels[node]) for node in tier) + 1
    return next((f"{size}px" for size in (11, 8) if 0.6 * size * longest <= room), None)


def _link_text(a: str, b: str, line: _Line, *, is_counted: bool) -> str:
    rate = "no rate" if line.rate_bps is None else format_rate(line.rate_bps)
    what = line.name if line.links == 1 else f"{line.links} links"
    text = f"{what} ({a} to {b}): {rate}"
    return f"{text}, {about_size(line.bytes)}" if is_counted else text


def topology_facts(topology: Topology | str) -> list[tuple[str, str]]:
    """Return facts about a topology's size and oversubscription, empty if unknown."""
    if isinstance(topology, str):
        return []
    ratios = []
    uplinks = topology.uplinks()
    names = {link.name for link in uplinks}
    for switch in dict.fromkeys(topology.switch_of(host) for host in topology.hosts):
        own = topology.links_of(switch)
        up = [link.rate_bps for link in own if link.name in names]
        down = [link.rate_bps for link in own if link.name not in names]
        if up and all(up) and all(down):
            ratios.append(sum(filter(None, down)) / sum(filter(None, up)))
    return [
        (
            "topology",
            f"{len(topology.hosts)} hosts, {len(topology.switches)} switches, "
            f"{len(uplinks)} links between switches",
        ),
        (
            "oversubscription",
            f"{max(ratios):.3g}:1 at the most oversubscribed leaf switch"
            if ratios
            else "none: no links between switches with rates",
        ),
    ]


def fabric_page(topology: Topology, *, name: str, description: str) -> str:
    """Return the page of a fabric as HTML.

    Args:
        topology: Topology of the fabric.
        name: Name of the experiment that contains the fabric.
        description: Description of the fabric in words.
    """
    plot = topology_plot(topology, {})
    links = table(
        "Links",
        "link | from | to | rate | delay | queue",
        (
            (
                *(link.name, str(link.a), str(link.b)),
                "no limit" if link.rate_bps is None else format_rate(link.rate_bps),
                format_time(link.delay_ns),
                "no limit" if (size := link.queue_bytes) is None else about_size(size),
            )
            for link in topology.links
        ),
        left=3,
        limit=_LINKS_LISTED,
    )
    left_out = "" if plot else "No topology is drawn: it has too many links."
    about = facts(("fabric", description), *topology_facts(topology))
    blocks = (about, *((Plot(figure=plot),) if plot else ()))
    return render_page(
        title=f"Fabric of {name}",
        lead=description,
        groups=[
            Section(title="Topology", text=left_out, observed="(f)", blocks=blocks),
            Section(title="Links", observed="(f)", blocks=(links,)),
        ],
        letters="f",
        document=fabric_document(topology, description),
    )
