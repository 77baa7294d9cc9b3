"""Row that compares the jobs of a run."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.models import units

from dashboards.norms import MAX_RETRANSMITTED_SHARE
from dashboards.panels import (
    EVENTS_PER_SECOND,
    bars,
    graph,
    logarithmic,
    query,
    with_limit,
)
from dashboards.queries import DONE_OF_PLANNED, JOB, PLANNED, quotient, rate, share


def add_jobs(board: dashboard.Dashboard) -> None:
    """Add the row that shows the jobs."""
    board.with_row(dashboard.Row("Jobs"))
    _add_iterations(board)
    _add_traffic(board)


def _add_iterations(board: dashboard.Dashboard) -> None:
    """Add panels about the progress of jobs and the times of their iterations."""
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


def _add_traffic(board: dashboard.Dashboard) -> None:
    """Add panels about the traffic of jobs, with retransmissions and marks."""
    board.with_panel(
        graph(
            "Bus bandwidth of jobs",
            "Bus bandwidth over all collectives of a job, as defined by nccl-tests, in "
            "bytes per second.",
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
            EVENTS_PER_SECOND,
        ),
        (
            "Retransmitted",
            "Share of a job's packets that were retransmitted. Dashed: limit of the "
            "alert `ChakramRetransmissions`.",
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
        panel = graph(
            title, about, query(expression, "{{chakram_job}}"), unit=unit, span=6
        )
        if title == "Retransmitted":
            panel = with_limit(panel, MAX_RETRANSMITTED_SHARE)
        board.with_panel(panel)
