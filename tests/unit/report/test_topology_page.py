"""Pages and plots of topologies: what a line, a box and a fact say."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from bokeh.models import ColorBar, MultiLine, Scatter, Text

from chakram.report import topology_page
from chakram.report.topology_page import (
    fabric_page,
    topology_facts,
    topology_plot,
)
from chakram.topology.topology import Link, PortRef, Topology
from tests.drawn_plots import data_of, legend_of, renderers, tips_of
from tests.leaf_spines import clos

GBIT = 10**9


def plot_of(topology: Topology, loads: dict[str, int] | None = None) -> Any:
    plot = topology_plot(topology, loads or {})
    assert plot is not None
    return plot


def lines_of(plot: Any) -> dict[str, dict[str, Any]]:
    """Return what is drawn of every line, by what the pointer says of it."""
    return {
        text: {name: data[name][at] for name in ("xs", "ys", "bytes")}
        for data in data_of(plot, MultiLine)
        for at, text in enumerate(data["text"])
    }


def test_lines_join_the_places_of_their_ends() -> None:
    plot = plot_of(clos(1, 1, 2, GBIT, 2 * GBIT))
    (nodes,) = data_of(plot, Scatter)
    place = {
        label: (nodes["x"][at], nodes["y"][at])
        for at, label in enumerate(nodes["label"])
    }
    # Hosts lie at the bottom, from left to right, and switches in tiers above.
    assert place == {
        "h0": (0.25, 0), "h1": (0.75, 0), "leaf0": (0.5, 1), "spine0": (0.5, 2),
    }  # fmt: skip
    ends = {
        text: re.findall(r"\w+", text.partition("(")[2].partition(" to ")[0])
        + re.findall(r"\w+", text.partition(" to ")[2].partition(")")[0])
        for text in lines_of(plot)
    }
    assert sorted(map(sorted, ends.values())) == [
        ["h0", "leaf0"], ["h1", "leaf0"], ["leaf0", "spine0"],
    ]  # fmt: skip
    for text, line in lines_of(plot).items():
        a, b = ends[text]
        assert (line["xs"][0], line["ys"][0]) == place[a]
        assert (line["xs"][1], line["ys"][1]) == place[b]
    assert (plot.x_range.start, plot.x_range.end) == (-0.02, 1.02)
    assert (plot.y_range.start, plot.y_range.end) == (-0.5, 2.5)
    assert plot.height == 120 + 3 * 110
    assert not any(each.visible for each in plot.axis)
    assert not any(each.visible for each in plot.grid)


def test_labels_of_hosts_stand_below_and_those_of_switches_above() -> None:
    plot = plot_of(clos(1, 1, 1, GBIT, GBIT))
    (nodes,) = data_of(plot, Text)
    offset = dict(zip(nodes["label"], nodes["offset"], strict=True))
    assert offset["h0"] > 0 > offset["leaf0"]
    assert offset["h0"] == -offset["spine0"]
    color = dict(zip(nodes["label"], nodes["color"], strict=True))
    assert color["h0"] != color["leaf0"] == color["spine0"]
    assert tips_of(plot)[-1] == "@label"


def test_without_loads_rates_have_colors_and_a_legend() -> None:
    plot = plot_of(clos(2, 1, 1, GBIT, None))
    assert plot.title.text == "Topology; color: rate of a link"
    assert legend_of(plot) == ["1Gbit/s", "no rate"]
    with_rate, without = renderers(plot, MultiLine)
    assert with_rate.glyph.line_color != without.glyph.line_color
    # Without loads, there are no bytes.
    assert all(
        text.endswith(": 1Gbit/s") for text in with_rate.data_source.data["text"]
    )
    assert all(text.endswith(": no rate") for text in without.data_source.data["text"])
    assert len(with_rate.data_source.data["text"]) == 2
    assert not [each for each in plot.right if isinstance(each, ColorBar)]
    assert plot.below[-1] is plot.legend[0]


def test_with_loads_bytes_of_links_have_colors_and_a_bar() -> None:
    topology = clos(1, 1, 2, GBIT, GBIT)
    names = [link.name for link in topology.links]
    loads = {name: 1024 * (number + 1) for number, name in enumerate(names)}
    plot = plot_of(topology, loads)
    assert plot.title.text == "Topology; color: bytes of a link, both directions"
    (lines,) = renderers(plot, MultiLine)
    assert lines.data_source.data["bytes"] == [1024, 2048, 3072]
    assert lines.data_source.data["text"][2].endswith(": 1Gbit/s, 3KiB")
    colors = lines.glyph.line_color["transform"]
    assert (colors.low, colors.high) == (0, 3072)
    assert len([each for each in plot.right if isinstance(each, ColorBar)]) == 1
    assert legend_of(plot) == []


def test_a_line_that_stands_for_several_links_tells_their_mean_and_their_sum() -> None:
    hosts = topology_page.HOSTS_DRAWN + 1
    topology = clos(1, 1, hosts, GBIT, GBIT)
    loads = {link.name: 1000 for link in topology.links}
    loads[topology.links[0].name] = 1000 + hosts * 24
    plot = plot_of(topology, loads)
    line = next(
        each for text, each in lines_of(plot).items() if text.startswith(f"{hosts} ")
    )
    assert line["bytes"] == pytest.approx(1024)
    (text,) = [each for each in lines_of(plot) if each.startswith(f"{hosts} ")]
    assert text == f"{hosts} links (h0 to leaf0): 1Gbit/s, 65KiB"
    (nodes,) = data_of(plot, Text)
    assert f"x{hosts}" in nodes["label"]
    # As many as can be seen are drawn each by itself.
    few = plot_of(clos(1, 1, hosts - 1, GBIT, GBIT))
    assert len(data_of(few, Text)[0]["label"]) == hosts - 1 + 2


@pytest.mark.parametrize(
    # In 980 pixels: 6.6 each of a large character, 4.8 of a small one.
    ("hosts", "name", "size"),
    [(37, "abc", "11px"), (38, "abc", "8px"), (51, "abc", "8px"), (52, "abc", None)],
)
def test_labels_that_would_overlap_are_smaller_and_then_left_out(
    hosts: int, name: str, size: str | None
) -> None:
    made = clos(
        1,
        1,
        hosts,
        GBIT,
        GBIT,
        names=[f"{name}{each:02}"[-3:] for each in range(hosts)],
    )
    plot = plot_of(made)
    (nodes,) = data_of(plot, Text)
    first = nodes["label"].index(made.hosts[0])
    assert nodes["shown"][first] == ("" if size is None else made.hosts[0])
    assert nodes["size"][first] == (size or "8px")
    # What is left out is shown by the pointer all the same.
    assert nodes["label"][first] == made.hosts[0]


@pytest.mark.parametrize(("hosts", "size"), [(32, 16), (33, 8)])
def test_boxes_of_a_crowd_are_smaller(hosts: int, size: int) -> None:
    (boxes,) = renderers(plot_of(clos(1, 1, hosts, GBIT, GBIT)), Scatter)
    assert boxes.glyph.size == size


def test_too_many_lines_are_not_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    topology = clos(1, 1, 2, GBIT, GBIT)
    monkeypatch.setattr(topology_page, "_LINKS_DRAWN", 3)
    assert topology_plot(topology, {}) is not None
    monkeypatch.setattr(topology_page, "_LINKS_DRAWN", 2)
    assert topology_plot(topology, {}) is None
    text = fabric_page(topology, name="n", description="d")
    assert "No topology is drawn: it has too many links." in text
    assert "<figure" not in text


def facts_of(topology: Topology | str) -> dict[str, str]:
    return dict(topology_facts(topology))


@pytest.mark.parametrize(
    ("topology", "ratio"),
    [
        # 4 x 1 down to hosts over 2 x 1 up.
        (clos(2, 2, 4, GBIT, GBIT), "2:1 at the most oversubscribed leaf switch"),
        (clos(2, 2, 4, GBIT, 4 * GBIT), "0.5:1 at the most oversubscribed leaf switch"),
        (clos(2, 2, 4, GBIT, None), "none: no links between switches with rates"),
        (clos(2, 2, 4, None, GBIT), "none: no links between switches with rates"),
    ],
)
def test_oversubscription_is_rates_to_hosts_over_rates_to_switches(
    topology: Topology, ratio: str
) -> None:
    facts = facts_of(topology)
    assert facts["oversubscription"] == ratio
    assert facts["topology"] == "8 hosts, 4 switches, 4 links between switches"


def test_oversubscription_is_that_of_the_worst_switch() -> None:
    def link(a: str, b: str) -> Link:
        ends = PortRef(node=a, port=b), PortRef(node=b, port=a)
        return Link(a=ends[0], b=ends[1], rate_bps=GBIT, name=f"{a}-{b}")

    uneven = Topology(
        hosts=("h0", "h1", "h2", "h3"),
        switches=("s0", "s1"),
        links=(*(link(f"h{n}", "s0") for n in range(3)), link("h3", "s1"),
               link("s0", "s1")),
    )  # fmt: skip
    assert facts_of(uneven)["oversubscription"].startswith("3:1 ")


def test_of_an_unknown_topology_nothing_is_told() -> None:
    assert topology_facts("nobody knows it") == []


def test_the_page_of_a_fabric_lists_its_links() -> None:
    topology = clos(
        1, 1, 1, GBIT, None, host_delay_ns=500, host_queue_bytes=64 * 1024,
        uplink_delay_ns=2000,
    )  # fmt: skip
    text = fabric_page(topology, name="lab", description="one <leaf>")
    assert "<title>Fabric of lab</title>" in text
    assert "one &lt;leaf&gt;" in text
    rows = [
        re.findall(r"<td[^>]*>(.*?)</td>", row)
        for row in re.findall(r"<tr>(.*?)</tr>", text, re.DOTALL)
    ]
    host, uplink = topology.links
    assert rows[-2:] == [
        [host.name, str(host.a), str(host.b), "1Gbit/s", "500ns", "64KiB"],
        [uplink.name, str(uplink.a), str(uplink.b), "no limit", "2us", "no limit"],
    ]
    found = re.search(r'id="data">(.*?)</script>', text)
    assert found
    document = json.loads(found[1])
    assert document["hosts"] == ["h0"]
    assert document["switches"] == ["leaf0", "spine0"]
    assert document["links"][0] == {
        "name": host.name,
        "ends": [str(host.a), str(host.b)],
        "rate_bps": GBIT,
        "delay_ns": 500,
    }
