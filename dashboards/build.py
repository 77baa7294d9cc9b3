"""Builds the Grafana dashboard "Chakram run" as classic dashboard JSON.

``python -m dashboards.build`` writes ``dashboards/grafana/chakram-run.json``, which is
committed: who runs Grafana needs nothing of this.  Tests build it again and compare,
check every query against the metric catalogue, and run every query against a real
Prometheus.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from grafana_foundation_sdk.builders import (
    common,
    dashboard,
    heatmap,
    prometheus,
    stat,
    timeseries,
)
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import units
from grafana_foundation_sdk.models.common import (
    BigValueColorMode,
    BigValueGraphMode,
    BigValueTextMode,
    DataSourceRef,
    HeatmapCellLayout,
    LegendDisplayMode,
    LegendPlacement,
    ScaleDistribution,
    SortOrder,
    StackingMode,
    TooltipDisplayMode,
    VisibilityMode,
)
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    Threshold,
    ThresholdsMode,
    ValueMap,
    ValueMapping,
    ValueMappingResult,
    VariableRefresh,
    VariableSort,
)
from grafana_foundation_sdk.models.heatmap import HeatmapColorMode
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

FOLDER = Path(__file__).parent / "grafana"
FILE = FOLDER / "chakram-run.json"
UID = "chakram-run"
TITLE = "Chakram run"

SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
RUN = 'job=~"$job", instance=~"$instance", run_id=~"$run_id"'
COLLECTIVE = f'{RUN}, collective=~"$collective"'
WINDOW = "[$__rate_interval]"
IDENTITY = "job, instance, run_id, collective, message_size"

STAT_HEIGHT = 4
GRAPH_HEIGHT = 8


def rate(metric: str, selector: str = RUN) -> str:
    """Return the rate of a counter over the panel's window."""
    return f"rate({metric}{{{selector}}}{WINDOW})"


def quantile(share: float, metric: str) -> str:
    """Return a quantile of a histogram by collective."""
    buckets = rate(f"{metric}_bucket", COLLECTIVE)
    return f"histogram_quantile({share}, sum by (collective, le) ({buckets}))"


def ratio(part: str, whole: str) -> str:
    """Return the ratio of two rates, 0 where nothing happens."""
    return f"sum({part}) / clamp_min(sum({whole}), 1)"


BUS_BANDWIDTH = (
    f"sum by (collective) ({rate('chakram_collective_bus_bytes_total', COLLECTIVE)}) / "
    f"sum by (collective) "
    f"({rate('chakram_collective_busy_seconds_total', COLLECTIVE)})"
)
PREDICTED = f"chakram_predicted_collective_duration_seconds{{{COLLECTIVE}}}"
# The same collectives in the same mix, each in the time that the model says.
PREDICTED_BUS_BANDWIDTH = (
    f"sum by (collective, source) (({PREDICTED} > bool 0) "
    f"* on ({IDENTITY}) group_left () "
    f"{rate('chakram_collective_bus_bytes_total', COLLECTIVE)}) / "
    f"sum by (collective, source) ({PREDICTED} * on ({IDENTITY}) group_left () "
    f"{rate('chakram_collectives_total', COLLECTIVE)})"
)


def query(expr: str, legend: str = "", **options: Any) -> prometheus.Dataquery:
    """Return a query over the time range, or of this moment (``instant=True``)."""
    built = prometheus.Dataquery().datasource(SOURCE).expr(expr)
    built = built.instant() if options.get("instant") else built.range()
    if options.get("heatmap"):
        built = built.format(PromQueryFormat.HEATMAP)
    return built.legend_format(legend) if legend else built


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
        .color_scheme(dashboard.FieldColor().mode("thresholds"))
        .thresholds(thresholds((None, "text")))
    )
    return with_queries(panel, queries)


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
    return with_queries(panel, queries)


def with_queries(panel: Any, queries: tuple[prometheus.Dataquery, ...]) -> Any:
    """Add queries with the reference ids A, B, C ..."""
    for number, built in enumerate(queries):
        panel = panel.with_target(built.ref_id(chr(ord("A") + number)))
    return panel


def thresholds(*steps: tuple[float | None, str]) -> dashboard.ThresholdsConfig:
    """Return colours from (value, colour) on; the first value is None."""
    return (
        dashboard.ThresholdsConfig()
        .mode(ThresholdsMode.ABSOLUTE)
        .steps([Threshold(value=value, color=color) for value, color in steps])
    )


def words(**texts: tuple[str, str]) -> ValueMapping:
    """Return a mapping of values (``v0``, ``v1``) to words and colours."""
    return ValueMap(
        options={
            value.removeprefix("v"): ValueMappingResult(
                text=text, color=color, index=index
            )
            for index, (value, (text, color)) in enumerate(texts.items())
        }
    )


def logarithmic() -> common.ScaleDistributionConfig:
    """Return an axis of powers of two, as the buckets are."""
    return common.ScaleDistributionConfig().type(ScaleDistribution.LOG).log(2)


def add_run(board: dashboard.Dashboard) -> None:
    """Add the row with the state of the run."""
    board.with_row(dashboard.Row("Run"))
    board.with_panel(
        figure(
            "State",
            "What the run is doing.",
            query(
                f"max by (state) (chakram_run_state{{{RUN}}}) == 1",
                "{{state}}",
                instant=True,
            ),
            unit=units.NoUnit,
        ).text_mode(BigValueTextMode.NAME)
    )
    board.with_panel(
        figure(
            "Iterations",
            "Iterations done and planned, warm-up included.",
            query(f"sum(chakram_iterations_total{{{RUN}}})", "done"),
            query(f"sum(chakram_iterations_planned{{{RUN}}})", "planned"),
            unit=units.Short,
        )
    )
    board.with_panel(
        figure(
            "Delivered",
            "Payload acknowledged so far.",
            query(f"sum(chakram_delivered_bytes_total{{{RUN}}})", "delivered"),
            unit=units.BytesSI,
        )
    )
    bus_bytes = rate("chakram_collective_bus_bytes_total", COLLECTIVE)
    busy_seconds = rate("chakram_collective_busy_seconds_total", COLLECTIVE)
    board.with_panel(
        figure(
            "Bus bandwidth",
            "Over all collectives, as nccl-tests defines it.",
            query(f"sum({bus_bytes}) / sum({busy_seconds})", "busbw"),
            unit=units.BytesPerSecondSI,
        )
    )
    buckets = rate("chakram_flow_completion_seconds_bucket", COLLECTIVE)
    board.with_panel(
        figure(
            "FCT p99",
            "99 % of the flows completed within this time; buckets double.",
            query(f"histogram_quantile(0.99, sum by (le) ({buckets}))", "p99"),
            unit=units.Seconds,
        )
    )
    board.with_panel(
        figure(
            "Sent again",
            "Share of the packets sent that were retransmissions.",
            query(
                ratio(
                    rate("chakram_retransmitted_packets_total"),
                    rate("chakram_tx_packets_total"),
                ),
                "sent again",
            ),
            unit=units.PercentUnit,
        ).thresholds(thresholds((None, "green"), (0.0001, "orange"), (0.01, "red")))
    )
    board.with_panel(
        figure(
            "Generator",
            "Whether it kept up: if not, times are the generator's and not the "
            "network's.",
            query(f"max(chakram_generator_bound{{{RUN}}})", "generator"),
            unit=units.NoUnit,
        ).mappings([words(v0=("kept up", "green"), v1=("BOUND", "red"))])
    )
    board.with_panel(
        figure(
            "Agents",
            "Agents that answer.",
            query(f"sum(chakram_agent_up{{{RUN}}})", "up"),
            unit=units.Short,
        )
    )


def add_collectives(board: dashboard.Dashboard) -> None:
    """Add the row with the collectives beside what models say."""
    board.with_row(dashboard.Row("Collectives"))
    board.with_panel(
        graph(
            "Bus bandwidth, measured and predicted",
            "By collective, as nccl-tests defines it. Dashed: the same collectives in "
            "the times that the ideal and the simulator say.",
            query(BUS_BANDWIDTH, "{{collective}}"),
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
    )
    board.with_panel(
        graph(
            "Collective time",
            "First start to last end over the ranks: median and 99 % by collective.",
            query(
                quantile(0.5, "chakram_collective_duration_seconds"),
                "{{collective}} p50",
            ),
            query(
                quantile(0.99, "chakram_collective_duration_seconds"),
                "{{collective}} p99",
            ),
            unit=units.Seconds,
            span=12,
        ).scale_distribution(logarithmic())
    )
    iteration = "chakram_iteration_duration_seconds"
    buckets = f"sum by (le) ({rate(f'{iteration}_bucket')})"
    mean = f"sum({rate(f'{iteration}_sum')}) / sum({rate(f'{iteration}_count')})"
    board.with_panel(
        graph(
            "Iteration time",
            "First start to last end over the ranks of a job.",
            query(mean, "mean"),
            query(f"histogram_quantile(0.99, {buckets})", "p99"),
            unit=units.Seconds,
        )
    )
    activity = rate("chakram_rank_seconds_total", f'{RUN}, activity!="communication"')
    board.with_panel(
        graph(
            "What ranks do",
            "Shares of time: compute, communication that no compute hides, idle.",
            query(
                f"sum by (activity) ({activity}) / on () group_left () sum({activity})",
                "{{activity}}",
            ),
            unit=units.PercentUnit,
        )
        .stacking(common.StackingConfig().mode(StackingMode.NORMAL))
        .fill_opacity(40)
        .max(1)
    )
    board.with_panel(
        graph(
            "Collectives finished",
            "By collective and size.",
            query(
                "sum by (collective, message_size) "
                f"({rate('chakram_collectives_total', COLLECTIVE)})",
                "{{collective}} {{message_size}}",
            ),
            unit="ops",
        )
    )


def add_flows(board: dashboard.Dashboard) -> None:
    """Add the row with flow completion times."""
    flows = "chakram_flow_completion_seconds"
    board.with_row(dashboard.Row("Flows"))
    board.with_panel(
        graph(
            "Flow completion time",
            "Posted to last byte acknowledged: median and 99 % by collective. Buckets "
            "double, so a quantile is exact to a factor of two; exact ones are in the "
            "report.",
            query(quantile(0.5, flows), "{{collective}} p50"),
            query(quantile(0.99, flows), "{{collective}} p99"),
            unit=units.Seconds,
        ).scale_distribution(logarithmic())
    )
    increase = f"increase({flows}_bucket{{{COLLECTIVE}}}{WINDOW})"
    board.with_panel(
        with_queries(
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
                heatmap.HeatmapTooltip()
                .mode(TooltipDisplayMode.SINGLE)
                .y_histogram(True)
            ),
            (query(f"sum by (le) ({increase})", "{{le}}", heatmap=True),),
        )
    )
    board.with_panel(
        graph(
            "Flows",
            "Completed per second, by outcome, and under way.",
            query(
                f"sum by (outcome) ({rate('chakram_flows_completed_total')})",
                "{{outcome}} /s",
            ),
            query(f"sum(chakram_flows_active{{{RUN}}})", "under way"),
            unit=units.Short,
        )
    )


def add_transport(board: dashboard.Dashboard) -> None:
    """Add the row with what went over the wire."""
    board.with_row(dashboard.Row("Fabric and transport"))
    sent, received = rate("chakram_tx_bytes_total"), rate("chakram_rx_bytes_total")
    board.with_panel(
        graph(
            "Sent and received",
            "Bits on layer 2 by agent, and the payload among them that was delivered.",
            query(f"8 * sum by (agent) ({sent})", "{{agent}} sent"),
            query(f"8 * sum by (agent) ({received})", "{{agent}} received"),
            query(f"8 * sum({rate('chakram_delivered_bytes_total')})", "goodput"),
            unit=units.BitsPerSecondSI,
        )
    )
    board.with_panel(
        graph(
            "Losses and repairs",
            "Packets sent again by reason, negative acknowledgements, timeouts, and "
            "what arrived out of sequence or twice.",
            query(
                f"sum by (reason) ({rate('chakram_retransmitted_packets_total')})",
                "sent again: {{reason}}",
            ),
            query(f"sum({rate('chakram_nak_received_total')})", "NAK received"),
            query(f"sum({rate('chakram_nak_sent_total')})", "NAK sent"),
            query(f"sum({rate('chakram_ack_timeouts_total')})", "timeouts"),
            query(
                f"sum({rate('chakram_out_of_sequence_packets_total')})",
                "out of sequence",
            ),
            query(f"sum({rate('chakram_duplicate_packets_total')})", "duplicates"),
            unit=units.PacketsPerSecond,
        )
    )
    marked, packets = (
        rate("chakram_ecn_marked_packets_total"),
        rate("chakram_rx_packets_total"),
    )
    board.with_panel(
        graph(
            "Congestion",
            "Share of received packets with a congestion mark, and notifications per "
            "packet sent.",
            query(ratio(marked, packets), "marked"),
            query(
                ratio(
                    rate("chakram_cnp_received_total"), rate("chakram_tx_packets_total")
                ),
                "CNP received",
            ),
            query(ratio(rate("chakram_cnp_sent_total"), packets), "CNP sent"),
            unit=units.PercentUnit,
        )
    )
    links = rate("chakram_link_bytes_total")
    board.with_panel(
        graph(
            "Links",
            "The 12 most loaded directions of links of the fabric.",
            query(
                f"topk(12, 8 * sum by (link, direction) ({links}))",
                "{{link}} {{direction}}",
            ),
            unit=units.BitsPerSecondSI,
            span=12,
        )
    )
    board.with_panel(
        graph(
            "Packets that nobody used",
            "Dropped by the kernel for want of buffer, dropped on purpose, or wrong.",
            query(f"sum({rate('chakram_socket_drops_total')})", "receive buffer full"),
            query(f"sum({rate('chakram_injected_drops_total')})", "on purpose"),
            query(f"sum({rate('chakram_invalid_packets_total')})", "invalid"),
            query(f"sum({rate('chakram_send_retries_total')})", "send buffer full"),
            unit=units.PacketsPerSecond,
            span=12,
        )
    )


def add_generator(board: dashboard.Dashboard) -> None:
    """Add the row that tells whether the numbers are the network's."""
    board.with_row(dashboard.Row("Generator health"))
    board.with_panel(
        graph(
            "Waiting for the generator",
            "Seconds per second that due packets waited for the data plane, summed "
            "over flows; and the longest single lag since the start.",
            query(
                f"sum by (agent) ({rate('chakram_generator_wait_seconds_total')})",
                "{{agent}} waiting",
            ),
            query(
                f"max by (agent) (chakram_generator_lag_max_seconds{{{RUN}}})",
                "{{agent}} longest lag",
            ),
            unit=units.Seconds,
        )
    )
    late, rounds = (
        rate("chakram_generator_late_rounds_total"),
        rate("chakram_generator_rounds_total"),
    )
    board.with_panel(
        graph(
            "Data plane",
            "CPU of the data plane in cores, and the share of its rounds that came "
            "more than 1 ms late.",
            query(f"sum by (agent) ({rate('chakram_cpu_seconds_total')})", "{{agent}}"),
            query(ratio(late, rounds), "late rounds"),
            unit=units.Short,
        )
    )
    bound = rate("chakram_generator_bound_collectives_total", COLLECTIVE)
    board.with_panel(
        graph(
            "What makes numbers doubtful",
            "Samples lost so far, generator-bound collectives per second, and how far "
            "apart clocks may be (microseconds).",
            query(f"sum(chakram_samples_dropped_total{{{RUN}}})", "samples dropped"),
            query(f"sum({bound}) or vector(0)", "generator-bound /s"),
            query(
                f"1e6 * max(chakram_agent_clock_uncertainty_seconds{{{RUN}}})",
                "clock uncertainty (us)",
            ),
            unit=units.Short,
        )
    )


def add_variables(board: dashboard.Dashboard) -> None:
    """Add the variables, each asking only for what the ones before allow."""
    board.with_variable(
        dashboard.DatasourceVariable("datasource")
        .label("Data source")
        .type("prometheus")
    )
    selector = ""
    for name, label, metric in (
        ("job", "Job", "chakram_run_info"),
        ("instance", "Instance", "chakram_run_info"),
        ("run_id", "Run", "chakram_run_info"),
        ("collective", "Collective", "chakram_collectives_total"),
    ):
        board.with_variable(
            dashboard.QueryVariable(name)
            .label(label)
            .datasource(SOURCE)
            .query(
                {
                    "qryType": 1,
                    "query": f"label_values({metric}{selector}, {name})",
                    "refId": f"variable-{name}",
                }
            )
            .definition(f"label_values({metric}{selector}, {name})")
            .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
            .sort(VariableSort.ALPHABETICAL_ASC)
            .multi(True)
            .include_all(True)
            .all_value(".+")
        )
        chosen = f'{name}=~"${name}"'
        selector = f"{selector[:-1]}, {chosen}}}" if selector else f"{{{chosen}}}"


def build() -> dict[str, Any]:
    """Return the dashboard as plain JSON values, all panels numbered."""
    board = (
        dashboard.Dashboard(TITLE)
        .uid(UID)
        .description("One run of Chakram: collectives, flows, fabric, generator.")
        .tags(["chakram"])
        .readonly()
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .time("now-5m", "now")
        .refresh("5s")
        .timepicker(dashboard.TimePicker().refresh_intervals(["1s", "5s", "10s", "1m"]))
    )
    add_variables(board)
    for name, metric, color in (
        ("Start", "chakram_run_start_time_seconds", "green"),
        ("End", "chakram_run_end_time_seconds", "red"),
    ):
        board.annotation(
            dashboard.AnnotationQuery()
            .name(name)
            .datasource(SOURCE)
            .enable(True)
            .icon_color(color)
            .expr(f"{metric}{{{RUN}}} * 1000")
            .use_value_for_time(True)
            .title_format(f"{name} of run {{{{run_id}}}}")
        )
    for add in (add_run, add_collectives, add_flows, add_transport, add_generator):
        add(board)
    document: dict[str, Any] = json.loads(JSONEncoder().encode(board.build()))
    # The library leaves panels without numbers; links and annotations need them.
    number = 0
    for panel in document["panels"]:
        for own in (panel, *panel.get("panels", ())):
            number += 1
            own["id"] = number
    return document


def text() -> str:
    """Return the file's contents."""
    return json.dumps(build(), indent=2, sort_keys=True) + "\n"


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    FILE.write_text(text(), encoding="utf-8")
