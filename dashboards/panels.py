"""Panels of the dashboards, all in the same style and with the colors of reports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from grafana_foundation_sdk.builders import (
    bargauge,
    common,
    dashboard,
    prometheus,
    stat,
    timeseries,
)
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models import units
from grafana_foundation_sdk.models.common import (
    BigValueColorMode,
    BigValueGraphMode,
    DataSourceRef,
    GraphThresholdsStyleMode,
    LegendDisplayMode,
    LegendPlacement,
    ScaleDistribution,
    SortOrder,
    TooltipDisplayMode,
    VisibilityMode,
    VizOrientation,
)
from grafana_foundation_sdk.models.dashboard import (
    DynamicConfigValue,
    FieldColorModeId,
    Threshold,
    ThresholdsMode,
    ValueMap,
    ValueMapping,
    ValueMappingResult,
)

from chakram.report.palette import BLUE, GRAY, GREEN, ORANGE, RED
from dashboards.norms import MAX_LOSS_SHARE, MAX_RETRANSMITTED_SHARE
from dashboards.queries import RUN, share, sums

if TYPE_CHECKING:
    from collections.abc import Mapping

    from grafana_foundation_sdk.models.prometheus import PromQueryFormat

Panel: TypeAlias = Builder[models.Panel]

SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")

EVENTS_PER_SECOND = "eps"
"""Grafana's unit for events per second, which the library does not define."""

STAT_HEIGHT = 4
GRAPH_HEIGHT = 8

GOOD, WARNING, BAD = GREEN, ORANGE, RED
"""Colors of values below and above the limits in ``dashboards.norms``. Other single
numbers have no color."""

ACTIVITY_COLORS = {"compute": RED, "exposed": BLUE, "idle": GRAY}
"""Colors of the activities of ranks."""

RUN_COLORS = {"A": BLUE, "B": ORANGE}
"""Colors of the two runs that a dashboard compares."""


def query(
    expr: str,
    legend: str = "",
    *,
    instant: bool = False,
    format_val: PromQueryFormat | None = None,
) -> prometheus.Dataquery:
    """Return a range query, or an instant query if *instant* is True."""
    built = prometheus.Dataquery().datasource(SOURCE).expr(expr)
    built = built.instant() if instant else built.range()
    if format_val is not None:
        built = built.format(format_val)
    return built.legend_format(legend) if legend else built


def rates(
    metric: str, by: str = "", *, legend: str = "", selector: str = RUN
) -> prometheus.Dataquery:
    """Return a query for the rate of a counter, summed by a label.

    The label's values are the legend, unless another is given.
    """
    return query(sums(metric, by, selector), legend or f"{{{{{by}}}}}")


def figure(
    title: str, about: str, *queries: prometheus.Dataquery, unit: str
) -> stat.Panel:
    """Return a panel that shows one number."""
    panel = (
        stat.Panel()
        .title(title)
        .description(about)
        .datasource(SOURCE)
        .unit(unit)
        .height(STAT_HEIGHT)
        .span(3)
        .color_mode(BigValueColorMode.VALUE)
        .graph_mode(BigValueGraphMode.NONE)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .color_scheme(dashboard.FieldColor().mode(FieldColorModeId.THRESHOLDS))
        .thresholds(thresholds((None, "text")))
    )
    return with_queries(panel, *queries)


def retransmitted_share() -> stat.Panel:
    """Return the panel that shows the share of retransmitted packets."""
    return figure(
        "Retransmitted",
        "Share of the packets sent that were retransmissions.",
        query(
            share("chakram_retransmitted_packets_total", "chakram_tx_packets_total"),
            "retransmitted",
        ),
        unit=units.PercentUnit,
    ).thresholds(
        thresholds(
            (None, GOOD), (MAX_LOSS_SHARE, WARNING), (MAX_RETRANSMITTED_SHARE, BAD)
        )
    )


def bars(
    title: str, about: str, *queries: prometheus.Dataquery, unit: str, span: int = 8
) -> bargauge.Panel:
    """Return a panel with one bar per series, for its last value."""
    panel = (
        bargauge.Panel()
        .title(title)
        .description(about)
        .datasource(SOURCE)
        .unit(unit)
        .min(0)
        .height(GRAPH_HEIGHT)
        .span(span)
        .color_scheme(_by_name())
        .orientation(VizOrientation.HORIZONTAL)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    )
    return with_queries(panel, *queries)


def graph(
    title: str, about: str, *queries: prometheus.Dataquery, unit: str, span: int = 8
) -> timeseries.Panel:
    """Return a panel that shows lines over time."""
    panel = (
        timeseries.Panel()
        .title(title)
        .description(about)
        .datasource(SOURCE)
        .unit(unit)
        .min(0)
        .height(GRAPH_HEIGHT)
        .span(span)
        .color_scheme(_by_name())
        .line_width(1)
        .fill_opacity(8)
        .show_points(VisibilityMode.NEVER)
        .legend(
            common.VizLegendOptions()
            .display_mode(LegendDisplayMode.TABLE)
            .placement(LegendPlacement.BOTTOM)
            .show_legend(True)
            .calcs(["mean", "max"])
        )
        .tooltip(
            common.VizTooltipOptions()
            .mode(TooltipDisplayMode.MULTI)
            .sort(SortOrder.DESCENDING)
        )
    )
    return with_queries(panel, *queries)


def _by_name() -> dashboard.FieldColor:
    """Return the color mode that gives a name the same color in every panel."""
    return dashboard.FieldColor().mode(FieldColorModeId.PALETTE_CLASSIC_BY_NAME)


def colored(panel: Any, colors: Mapping[str, str], *, pattern: str) -> Any:
    """Give series of a panel fixed colors.

    Args:
        panel: The panel.
        colors: Colors by name.
        pattern: Regular expression that matches the series of a name. It contains
            ``{}`` in place of the name.
    """
    for name, color in colors.items():
        value = {"mode": FieldColorModeId.FIXED, "fixedColor": color}
        panel = panel.override_by_regexp(
            pattern.format(name), [DynamicConfigValue(id_val="color", value=value)]
        )
    return panel


def with_limit(panel: timeseries.Panel, limit: float) -> timeseries.Panel:
    """Draw a dashed line at a limit."""
    return panel.thresholds(
        thresholds((None, "transparent"), (limit, BAD))
    ).thresholds_style(
        common.GraphThresholdsStyleConfig().mode(GraphThresholdsStyleMode.DASHED)
    )


def with_queries(panel: Any, *queries: prometheus.Dataquery) -> Any:
    """Add queries with the reference IDs A, B, C ..."""
    for number, built in enumerate(queries):
        panel = panel.with_target(built.ref_id(chr(ord("A") + number)))
    return panel


def thresholds(*steps: tuple[float | None, str]) -> dashboard.ThresholdsConfig:
    """Return thresholds. Each color applies from its value. The first value is None."""
    return (
        dashboard.ThresholdsConfig()
        .mode(ThresholdsMode.ABSOLUTE)
        .steps([Threshold(value=value, color=color) for value, color in steps])
    )


def words(**texts: tuple[str, str]) -> ValueMapping:
    """Return a mapping from values (passed as ``v0``, ``v1``) to words and colors."""
    return ValueMap(
        options={
            value.removeprefix("v"): ValueMappingResult(
                text=text, color=color, index=index
            )
            for index, (value, (text, color)) in enumerate(texts.items())
        }
    )


def logarithmic() -> common.ScaleDistributionConfig:
    """Return a logarithmic axis with base 2, like the histogram buckets."""
    return common.ScaleDistributionConfig().type(ScaleDistribution.LOG).log(2)
