"""Rows that compare two runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from grafana_foundation_sdk.builders import table
from grafana_foundation_sdk.models import units
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

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
from dashboards.queries import mean, sums

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from grafana_foundation_sdk.builders import prometheus

    from dashboards.panels import Panel

DELIVERED = "chakram_delivered_bytes_total"
ITERATION = "chakram_iteration_duration_seconds"
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


def both(
    make: Callable[[str], str], legend: str = "", **options: Any
) -> list[prometheus.Dataquery]:
    """Return a query for each of the two runs.

    Args:
        make: Function that returns the query for a selector.
        legend: Legend after the name of the run.
        options: Options of ``query``.
    """
    return [
        query(make(selector), f"{name}: {legend}" if legend else name, **options)
        for name, selector in RUNS
    ]


def result_panels() -> Iterator[Panel]:
    """Yield the panels that compare whole runs."""
    yield from _iteration_panels()
    yield from _collective_panels()
    yield from _cause_panels()


def _iteration_panels() -> Iterator[Panel]:
    yield with_queries(
        table.Panel()
        .title("Runs")
        .description("Properties of runs A and B.")
        .datasource(SOURCE)
        .height(6)
        .span(16),
        query(
            last("chakram_run_info", BOTH),
            instant=True,
            format_val=PromQueryFormat.TABLE,
        ),
    )

    def iteration_time(selector: str) -> str:
        return whole(f"{ITERATION}_sum", f"{ITERATION}_count", "chakram_job", selector)

    time_a, time_b = (iteration_time(selector) for _, selector in RUNS)
    yield (
        figure(
            "Iteration time, B over A",
            "Mean over all iterations so far, by job. Above 1, B is slower.",
            query(f"({time_b}) / ({time_a})", "{{chakram_job}}", instant=True),
            unit=units.Short,
        )
        .height(6)
        .span(8)
    )
    yield by_run(
        bars(
            "Iteration time",
            "Mean over all iterations so far, by job.",
            *both(iteration_time, "{{chakram_job}}", instant=True),
            unit=units.Seconds,
        )
    )


def _collective_panels() -> Iterator[Panel]:
    bus = "chakram_collective_bus_bytes_total", "chakram_collective_busy_seconds_total"
    yield by_run(
        bars(
            "Bus bandwidth",
            "Bus bandwidth of all collectives so far, as defined by nccl-tests, in "
            "bytes per second.",
            *both(
                lambda selector: whole(*bus, "collective", selector),
                "{{collective}}",
                instant=True,
            ),
            unit=units.BytesPerSecondSI,
        )
    )
    flows = "chakram_flow_completion_seconds_bucket"
    yield by_run(
        bars(
            "FCT p99",
            "99 % of the flows completed within this time. Bucket bounds double.",
            *both(
                lambda selector: (
                    "histogram_quantile(0.99, sum by (collective, le) "
                    f"({last(flows, selector)}))"
                ),
                "{{collective}}",
                instant=True,
            ),
            unit=units.Seconds,
        )
    )


def _cause_panels() -> Iterator[Panel]:
    yield by_run(
        bars(
            "Lost time by cause",
            "Share of the critical paths of the measured iterations, as in `chakram "
            "why`. Only for runs that have ended.",
            *both(
                lambda selector: (
                    f"sum by (cause) ({last('chakram_lost_seconds', selector)}) "
                    "/ on () group_left () "
                    f"sum({last('chakram_critical_path_seconds', selector)})"
                ),
                "{{cause}}",
                instant=True,
            ),
            unit=units.PercentUnit,
            span=12,
        )
    )

    def packet_share(counted: str) -> list[prometheus.Dataquery]:
        part, packets = (
            f"chakram_job_{counted}_packets_total",
            "chakram_job_packets_total",
        )
        return both(
            lambda selector: whole(part, packets, "chakram_job", selector),
            f"{{{{chakram_job}}}} {counted}",
            instant=True,
        )

    yield by_run(
        bars(
            "Retransmitted and marked",
            "Shares of the packets of each job.",
            *packet_share("retransmitted"),
            *packet_share("marked"),
            unit=units.PercentUnit,
            span=12,
        )
    )


def course_panels() -> Iterator[Panel]:
    """Yield the panels that show both runs over time."""
    yield by_run(
        graph(
            "Goodput",
            "Payload delivered per second.",
            *both(
                # A run that was scraped and loaded from its records has two instances.
                lambda selector: (
                    f"8 * max({sums(DELIVERED, 'job, instance', selector)})"
                )
            ),
            unit=units.BitsPerSecondSI,
            span=12,
        )
    )
    yield by_run(
        graph(
            "Iterations",
            "Mean time, by job.",
            *both(
                lambda selector: mean(ITERATION, "chakram_job", selector),
                "{{chakram_job}}",
            ),
            unit=units.Seconds,
            span=12,
        )
    )
