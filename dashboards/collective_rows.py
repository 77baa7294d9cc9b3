"""Rows about the state of a run, and about collectives, lost time and flows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from grafana_foundation_sdk.builders import common, heatmap
from grafana_foundation_sdk.models import units
from grafana_foundation_sdk.models.common import (
    BigValueTextMode,
    HeatmapCellLayout,
    StackingMode,
    TooltipDisplayMode,
)
from grafana_foundation_sdk.models.heatmap import HeatmapColorMode
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from dashboards.panels import (
    ACTIVITY_COLORS,
    BAD,
    EVENTS_PER_SECOND,
    GOOD,
    GRAPH_HEIGHT,
    SOURCE,
    bars,
    colored,
    figure,
    graph,
    logarithmic,
    query,
    rates,
    retransmitted_share,
    with_queries,
    words,
)
from dashboards.queries import (
    COLLECTIVE,
    DONE_OF_PLANNED,
    JOB,
    LOST_SHARE,
    PLANNED,
    PREDICTED_BUS_BANDWIDTH,
    RUN,
    WINDOW,
    bus_bandwidth,
    final,
    mean,
    quantile,
    rate,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dashboards.panels import Panel


def run_panels() -> Iterator[Panel]:
    """Yield the panels with the state of the run."""
    yield figure(
        "State",
        "Last state of the run.",
        query(
            f"max by (state) (last_over_time(chakram_run_state{{{RUN}}}[$__range])) "
            "== 1",
            "{{state}}",
            instant=True,
        ),
        unit=units.NoUnit,
    ).text_mode(BigValueTextMode.NAME)
    yield figure(
        "Iterations",
        "Iterations done and planned, warm-up included, of jobs that have an end.",
        query(f"sum({DONE_OF_PLANNED})", "done"),
        query(f"sum({PLANNED})", "planned"),
        unit=units.Short,
    )
    yield figure(
        "Delivered",
        "Payload acknowledged so far.",
        query(f"sum(chakram_delivered_bytes_total{{{RUN}}})", "delivered"),
        unit=units.BytesSI,
    )
    yield figure(
        "Bus bandwidth",
        "Bus bandwidth over all collectives, as defined by nccl-tests, in bytes "
        "per second.",
        query(bus_bandwidth(by=""), "busbw"),
        unit=units.BytesPerSecondSI,
    )
    yield figure(
        "FCT p99",
        "99 % of the flows completed within this time. Bucket bounds double.",
        query(quantile(0.99, "chakram_flow_completion_seconds", by=""), "p99"),
        unit=units.Seconds,
    )
    yield retransmitted_share()
    yield figure(
        "Generator",
        "Whether the generator kept up. If not, times are the generator's, not the "
        "network's.",
        query(f"max(chakram_generator_bound{{{RUN}}})", "generator"),
        unit=units.NoUnit,
    ).mappings([words(v0=("kept up", GOOD), v1=("BOUND", BAD))])
    yield figure(
        "Agents",
        "Agents that answer.",
        query(f"sum(chakram_agent_up{{{RUN}}})", "up"),
        unit=units.Short,
    )


def collective_panels() -> Iterator[Panel]:
    """Yield the panels of collectives, with measured and predicted values."""
    yield graph(
        "Bus bandwidth, measured and predicted",
        "By collective, as defined by nccl-tests, in bytes per second. Dashed: the "
        "same collectives with the times of bound, alone and simulation, which "
        "need `predict`.",
        query(bus_bandwidth(by="collective"), "{{collective}}"),
        query(PREDICTED_BUS_BANDWIDTH, "{{collective}} {{source}}"),
        unit=units.BytesPerSecondSI,
        span=12,
    ).override_by_query(
        "B",
        [
            {"id": "custom.lineStyle", "value": {"fill": "dash", "dash": [8, 6]}},
            {"id": "custom.fillOpacity", "value": 0},
        ],
    )
    duration = "chakram_collective_duration_seconds"
    yield graph(
        "Collective time",
        "First start to last end over the ranks: median and 99 % by collective.",
        query(quantile(0.5, duration), "{{collective}} p50"),
        query(quantile(0.99, duration), "{{collective}} p99"),
        unit=units.Seconds,
        span=12,
    ).scale_distribution(logarithmic())
    iteration = "chakram_iteration_duration_seconds"
    yield graph(
        "Iteration time",
        "By job, first start to last end over its ranks.",
        query(mean(iteration, "chakram_job", JOB), "{{chakram_job}} mean"),
        query(quantile(0.99, iteration, "chakram_job", JOB), "{{chakram_job}} p99"),
        unit=units.Seconds,
    )
    activity = rate("chakram_rank_seconds_total", f'{JOB}, activity!="communication"')
    yield (
        colored(
            graph(
                "Rank activity",
                "Shares of time: compute, exposed communication, idle.",
                query(
                    f"sum by (activity) ({activity}) "
                    f"/ on () group_left () sum({activity})",
                    "{{activity}}",
                ),
                unit=units.PercentUnit,
            ),
            ACTIVITY_COLORS,
            pattern="/^{}$/",
        )
        .stacking(common.StackingConfig().mode(StackingMode.NORMAL))
        .fill_opacity(40)
        .max(1)
    )
    yield graph(
        "Collectives finished",
        "By collective and size.",
        rates(
            "chakram_collectives_total",
            "collective, message_size",
            legend="{{collective}} {{message_size}}",
            selector=COLLECTIVE,
        ),
        unit=EVENTS_PER_SECOND,
    )


def lost_time_panels() -> Iterator[Panel]:
    """Yield the panels that show where time is spent and lost."""
    yield (
        graph(
            "Messages by part",
            "Mean number of finished messages in each part of their time: waiting for "
            "the data plane, for their port, for a window, for a pace or for a pause, "
            "being sent, being retransmitted, or in the network.",
            rates("chakram_message_seconds_total", "part"),
            unit=units.Short,
        )
        .stacking(common.StackingConfig().mode(StackingMode.NORMAL))
        .fill_opacity(40)
    )
    yield bars(
        "Lost time by cause",
        "Share of the critical paths of the measured iterations, as in `chakram "
        "why`. Available when the run has ended.",
        query(LOST_SHARE, "{{cause}} at {{place}}"),
        unit=units.PercentUnit,
    ).no_value("available when the run has ended")
    yield bars(
        "Critical path",
        "Parts of the critical paths of the measured iterations. Available when "
        "the run has ended.",
        query(
            f"sum by (part) ({final('chakram_critical_path_seconds')}) "
            "/ on () group_left () "
            f"sum({final('chakram_critical_path_seconds')})",
            "{{part}}",
        ),
        unit=units.PercentUnit,
    ).no_value("available when the run has ended")


def flow_panels() -> Iterator[Panel]:
    """Yield the panels with flow completion times."""
    flows = "chakram_flow_completion_seconds"
    yield graph(
        "Flow completion time",
        "From posted to last byte acknowledged: median and 99 % by collective. "
        "Bucket bounds double, so a quantile is accurate to a factor of two. The "
        "report has exact values.",
        query(quantile(0.5, flows), "{{collective}} p50"),
        query(quantile(0.99, flows), "{{collective}} p99"),
        unit=units.Seconds,
    ).scale_distribution(logarithmic())
    increase = f"increase({flows}_bucket{{{COLLECTIVE}}}{WINDOW})"
    yield with_queries(
        heatmap.Panel()
        .title("Flow completion times")
        .description("How many flows completed within each time.")
        .datasource(SOURCE)
        .height(GRAPH_HEIGHT)
        .span(8)
        .calculate(False)
        .cell_gap(1)
        .color(
            heatmap.HeatmapColorOptions()
            .mode(HeatmapColorMode.SCHEME)
            .scheme("Oranges")
            .steps(64)
        )
        .rows_frame(heatmap.RowsHeatmapOptions().layout(HeatmapCellLayout.LE))
        .y_axis(heatmap.YAxisConfig().unit(units.Seconds))
        .tooltip(
            heatmap.HeatmapTooltip().mode(TooltipDisplayMode.SINGLE).y_histogram(True)
        ),
        query(
            f"sum by (le) ({increase})", "{{le}}", format_val=PromQueryFormat.HEATMAP
        ),
    )
    yield graph(
        "Flows in flight",
        "Messages posted and not yet finished.",
        query(f"sum(chakram_flows_active{{{RUN}}})", "in flight"),
        unit=units.Short,
        span=4,
    )
    yield graph(
        "Flows completed",
        "Flows completed per second, by outcome.",
        rates("chakram_flows_completed_total", "outcome"),
        unit=EVENTS_PER_SECOND,
        span=4,
    )
