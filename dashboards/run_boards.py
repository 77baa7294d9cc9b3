"""Dashboards that compare runs, or the jobs of a run."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard, table
from grafana_foundation_sdk.models import units

from dashboards.panels import (
    SOURCE,
    bars,
    figure,
    graph,
    logarithmic,
    query,
    with_queries,
)
from dashboards.queries import (
    DONE_OF_PLANNED,
    JOB,
    PLANNED,
    quotient,
    rate,
    share,
)

RUNS = (("A", 'job=~"$job", run_id="$run_a"'), ("B", 'job=~"$job", run_id="$run_b"'))
BOTH = 'job=~"$job", run_id=~"$run_a|$run_b"'


def last(metric: str, selector: str) -> str:
    """Return the last values of a metric in the time range."""
    return f"last_over_time({metric}{{{selector}}}[$__range])"


def whole(part: str, all_of: str, by: str, selector: str) -> str:
    """Return the ratio of two totals of a whole run."""
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
            "Bus bandwidth of all collectives so far, as defined by nccl-tests.",
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
        (
            "Bytes of links",
            "The 12 most loaded link directions.",
            units.BytesSI,
            lambda selector: (
                "topk(12, sum by (link, direction) "
                f"({last('chakram_link_bytes_total', selector)}))"
            ),
            "{{link}} {{direction}}",
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
        board.with_panel(bars(title, about, *queries, unit=unit))


def add_courses(board: dashboard.Dashboard) -> None:
    """Add the row that shows both runs over time."""
    board.with_row(dashboard.Row("Over time"))
    board.with_panel(
        graph(
            "Goodput",
            "Payload delivered per second.",
            *(
                query(
                    f"8 * sum({rate('chakram_delivered_bytes_total', selector)})", name
                )
                for name, selector in RUNS
            ),
            unit=units.BitsPerSecondSI,
            span=12,
        )
    )
    iteration = "chakram_iteration_duration_seconds"
    board.with_panel(
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


def add_jobs(board: dashboard.Dashboard) -> None:
    """Add the row that shows the jobs."""
    board.with_row(dashboard.Row("Jobs"))
    board.with_panel(
        bars(
            "Iterations done",
            "Warm-up included. Background jobs repeat until the others end.",
            query(
                f"sum by (chakram_job) (chakram_iterations_total{{{JOB}}})",
                "{{chakram_job}}",
            ),
            unit=units.Short,
            span=6,
        )
    )
    board.with_panel(
        bars(
            "Progress",
            "Share of the planned iterations that are done, for jobs that have an end.",
            query(
                f"sum by (chakram_job) ({DONE_OF_PLANNED}) / "
                f"sum by (chakram_job) ({PLANNED})",
                "{{chakram_job}}",
            ),
            unit=units.PercentUnit,
            span=6,
        ).max(1)
    )
    iteration = "chakram_iteration_duration_seconds"
    buckets = f"sum by (chakram_job, le) ({rate(f'{iteration}_bucket', JOB)})"
    board.with_panel(
        graph(
            "Iteration time",
            "First start to last end over the ranks: mean and 99 %.",
            query(
                quotient(f"{iteration}_sum", f"{iteration}_count", "chakram_job", JOB),
                "{{chakram_job}} mean",
            ),
            query(f"histogram_quantile(0.99, {buckets})", "{{chakram_job}} p99"),
            unit=units.Seconds,
            span=12,
        ).scale_distribution(logarithmic())
    )
    activity = rate("chakram_rank_seconds_total", f'{JOB}, activity!="communication"')
    board.with_panel(
        graph(
            "Rank activity by job",
            "Shares of time: compute, exposed communication, idle.",
            query(
                f"sum by (chakram_job, activity) ({activity}) "
                "/ on (chakram_job) group_left () "
                f"sum by (chakram_job) ({activity})",
                "{{chakram_job}} {{activity}}",
            ),
            unit=units.PercentUnit,
            span=12,
        ).max(1)
    )
    board.with_panel(
        graph(
            "Bus bandwidth of jobs",
            "Bus bandwidth over all collectives of a job, as defined by nccl-tests.",
            query(
                quotient(
                    "chakram_job_bus_bytes_total",
                    "chakram_job_collective_seconds_total",
                    "chakram_job",
                    JOB,
                ),
                "{{chakram_job}}",
            ),
            unit=units.BytesPerSecondSI,
            span=12,
        )
    )
    packets = rate("chakram_job_packets_total", JOB)
    for title, about, expression, unit in (
        (
            "Sent",
            "Payload of finished collectives and messages.",
            f"8 * sum by (chakram_job) ({rate('chakram_job_sent_bytes_total', JOB)})",
            units.BitsPerSecondSI,
        ),
        (
            "Collectives",
            "Collectives and messages finished by a job.",
            f"sum by (chakram_job) ({rate('chakram_job_collectives_total', JOB)})",
            "ops",
        ),
        (
            "Retransmitted",
            "Share of a job's packets that were retransmitted.",
            share(
                rate("chakram_job_retransmitted_packets_total", JOB),
                packets,
                "chakram_job",
            ),
            units.PercentUnit,
        ),
        (
            "Marked",
            "Share of a job's packets that arrived with a congestion mark.",
            share(
                rate("chakram_job_marked_packets_total", JOB), packets, "chakram_job"
            ),
            units.PercentUnit,
        ),
    ):
        board.with_panel(
            graph(title, about, query(expression, "{{chakram_job}}"), unit=unit, span=6)
        )
