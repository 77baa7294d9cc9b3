"""Row that compares the jobs of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
from dashboards.queries import (
    DONE_OF_PLANNED,
    JOB,
    PLANNED,
    mean,
    quantile,
    quotient,
    rate,
    share,
    sums,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dashboards.panels import Panel


def job_panels() -> Iterator[Panel]:
    """Yield the panels that compare the jobs."""
    yield from _iteration_panels()
    yield from _traffic_panels()


def _iteration_panels() -> Iterator[Panel]:
    """Yield panels about the progress of jobs and the times of their iterations."""
    yield bars(
        "Iterations done",
        "Warm-up included. Background jobs repeat until the others end.",
        query(
            f"sum by (chakram_job) (chakram_iterations_total{{{JOB}}})",
            "{{chakram_job}}",
        ),
        unit=units.Short,
        span=6,
    )
    yield bars(
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
    iteration = "chakram_iteration_duration_seconds"
    yield graph(
        "Iteration time",
        "First start to last end over the ranks: mean and 99 %.",
        query(mean(iteration, "chakram_job", JOB), "{{chakram_job}} mean"),
        query(quantile(0.99, iteration, "chakram_job", JOB), "{{chakram_job}} p99"),
        unit=units.Seconds,
        span=12,
    ).scale_distribution(logarithmic())
    activity = rate("chakram_rank_seconds_total", f'{JOB}, activity!="communication"')
    yield graph(
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


def _traffic_panels() -> Iterator[Panel]:
    """Yield panels about the traffic of jobs, with retransmissions and marks."""
    yield graph(
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
    packets = "chakram_job_packets_total"
    for title, about, expression, unit in (
        (
            "Sent",
            "Payload of finished collectives and messages.",
            f"8 * {sums('chakram_job_sent_bytes_total', 'chakram_job', JOB)}",
            units.BitsPerSecondSI,
        ),
        (
            "Collectives",
            "Collectives and messages finished by a job.",
            sums("chakram_job_collectives_total", "chakram_job", JOB),
            EVENTS_PER_SECOND,
        ),
        (
            "Retransmitted",
            "Share of a job's packets that were retransmitted. Dashed: limit of the "
            "alert `ChakramRetransmissions`.",
            share(
                "chakram_job_retransmitted_packets_total", packets, "chakram_job", JOB
            ),
            units.PercentUnit,
        ),
        (
            "Marked",
            "Share of a job's packets that arrived with a congestion mark.",
            share("chakram_job_marked_packets_total", packets, "chakram_job", JOB),
            units.PercentUnit,
        ),
    ):
        panel = graph(
            title, about, query(expression, "{{chakram_job}}"), unit=unit, span=6
        )
        if title == "Retransmitted":
            panel = with_limit(panel, MAX_RETRANSMITTED_SHARE)
        yield panel
