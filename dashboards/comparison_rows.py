"""Rows that compare two runs."""

from __future__ import annotations

from typing import Any

from grafana_foundation_sdk.builders import dashboard, table
from grafana_foundation_sdk.models import units

from dashboards.panels import (
    RUN_COLORS,
    SOURCE,
    bars,
    colored,
    figure,
    graph,
    query,
    with_queries,
)
from dashboards.queries import quotient, rate

_SPANS = {"Lost time by cause": 12, "Retransmitted and marked": 12}

RUNS = (("A", 'job=~"$job", run_id="$run_a"'), ("B", 'job=~"$job", run_id="$run_b"'))
BOTH = 'job=~"$job", run_id=~"$run_a|$run_b"'


def by_run(panel: Any) -> Any:
    """Give all series of run A one color, and all series of run B another color."""
    return colored(panel, RUN_COLORS, pattern="/^{}(:.*)?$/")


def last(metric: str, selector: str) -> str:
    """Return an expression for the last values of a metric in the time range."""
    return f"last_over_time({metric}{{{selector}}}[$__range])"


def whole(part: str, all_of: str, by: str, selector: str) -> str:
    """Return an expression for the ratio of two totals of a whole run."""
    return (
        f"sum by ({by}) ({last(part, selector)}) / "
        f"sum by ({by}) ({last(all_of, selector)})"
    )


def add_results(board: dashboard.Dashboard) -> None:
    """Add the row that compares whole runs."""
    board.with_row(dashboard.Row("Whole runs"))
    board.with_panel(
        with_queries(
            table.Panel()
            .title("Runs")
            .description("Properties of runs A and B.")
            .datasource(SOURCE)
            .height(6)
            .span(16),
            (
                query(
                    f"last_over_time(chakram_run_info{{{BOTH}}}[$__range])",
                    instant=True,
                    table=True,
                ),
            ),
        )
    )
    iteration = "chakram_iteration_duration_seconds"
    mean = [
        whole(f"{iteration}_sum", f"{iteration}_count", "chakram_job", selector)
        for _, selector in RUNS
    ]
    board.with_panel(
        figure(
            "Iteration time, B over A",
            "Mean over all iterations so far, by job. Above 1, B is slower.",
            query(f"({mean[1]}) / ({mean[0]})", "{{chakram_job}}", instant=True),
            unit=units.Short,
        )
        .height(6)
        .span(8)
    )
    _add_bars(board)


def _add_bars(board: dashboard.Dashboard) -> None:
    """Add panels with a bar for each run, by job, by collective or by cause."""
    iteration = "chakram_iteration_duration_seconds"
    bus = "chakram_collective_bus_bytes_total", "chakram_collective_busy_seconds_total"
    flows = "chakram_flow_completion_seconds_bucket"
    for title, about, unit, make, legend in (
        (
            "Iteration time",
            "Mean over all iterations so far, by job.",
            units.Seconds,
            lambda selector: whole(
                f"{iteration}_sum", f"{iteration}_count", "chakram_job", selector
            ),
            "{{chakram_job}}",
        ),
        (
            "Bus bandwidth",
            "Bus bandwidth of all collectives so far, as defined by nccl-tests, in "
            "bytes per second.",
            units.BytesPerSecondSI,
            lambda selector: whole(*bus, "collective", selector),
            "{{collective}}",
        ),
        (
            "FCT p99",
            "99 % of the flows completed within this time. Bucket bounds double.",
            units.Seconds,
            lambda selector: (
                "histogram_quantile(0.99, sum by (collective, le) "
                f"({last(flows, selector)}))"
            ),
            "{{collective}}",
        ),
        (
            "Lost time by cause",
            "Share of the critical paths of the measured iterations, as in `chakram "
            "why`. Only for runs that have ended.",
            units.PercentUnit,
            lambda selector: (
                f"sum by (cause) ({last('chakram_lost_seconds', selector)}) "
                "/ on () group_left () "
                f"sum({last('chakram_critical_path_seconds', selector)})"
            ),
            "{{cause}}",
        ),
        (
            "Retransmitted and marked",
            "Shares of the packets of each job.",
            units.PercentUnit,
            lambda selector: whole(
                "chakram_job_retransmitted_packets_total",
                "chakram_job_packets_total",
                "chakram_job",
                selector,
            ),
            "{{chakram_job}} retransmitted",
        ),
    ):
        queries = [
            query(make(selector), f"{name}: {legend}", instant=True)
            for name, selector in RUNS
        ]
        if title.startswith("Retransmitted"):
            queries += [
                query(
                    whole(
                        "chakram_job_marked_packets_total",
                        "chakram_job_packets_total",
                        "chakram_job",
                        selector,
                    ),
                    f"{name}: {{{{chakram_job}}}} marked",
                    instant=True,
                )
                for name, selector in RUNS
            ]
        board.with_panel(
            by_run(bars(title, about, *queries, unit=unit, span=_SPANS.get(title, 8)))
        )


def add_courses(board: dashboard.Dashboard) -> None:
    """Add the row that shows both runs over time."""
    board.with_row(dashboard.Row("Over time"))
    board.with_panel(
        by_run(
            graph(
                "Goodput",
                "Payload delivered per second.",
                *(
                    query(
                        f"8 * sum({rate('chakram_delivered_bytes_total', selector)})",
                        name,
                    )
                    for name, selector in RUNS
                ),
                unit=units.BitsPerSecondSI,
                span=12,
            )
        )
    )
    iteration = "chakram_iteration_duration_seconds"
    board.with_panel(
        by_run(
            graph(
                "Iterations",
                "Mean time, by job.",
                *(
                    query(
                        quotient(
                            f"{iteration}_sum",
                            f"{iteration}_count",
                            "chakram_job",
                            selector,
                        ),
                        f"{name}: {{{{chakram_job}}}}",
                    )
                    for name, selector in RUNS
                ),
                unit=units.Seconds,
                span=12,
            )
        )
    )
