"""What the panels of the dashboards ask Prometheus: selectors and expressions."""

from __future__ import annotations

RUN = 'job=~"$job", instance=~"$instance", run_id=~"$run_id"'
JOB = f'{RUN}, chakram_job=~"$chakram_job"'
COLLECTIVE = f'{RUN}, collective=~"$collective"'
WINDOW = "[$__rate_interval]"
IDENTITY = "job, instance, run_id, collective, message_size"


def rate(metric: str, selector: str = RUN) -> str:
    """Return the rate of a counter over the panel's window."""
    return f"rate({metric}{{{selector}}}{WINDOW})"


def quantile(
    share: float, metric: str, by: str = "collective", selector: str = COLLECTIVE
) -> str:
    """Return a quantile of a histogram, by collective or otherwise."""
    buckets = rate(f"{metric}_bucket", selector)
    return f"histogram_quantile({share}, sum by ({by}, le) ({buckets}))"


def ratio(part: str, whole: str) -> str:
    """Return the ratio of two rates, 0 where nothing happens."""
    return f"sum({part}) / clamp_min(sum({whole}), 1)"


def share(part: str, whole: str, by: str) -> str:
    """Return the ratio of two rates by labels, 0 where nothing happens."""
    return f"sum by ({by}) ({part}) / clamp_min(sum by ({by}) ({whole}), 1)"


def quotient(part: str, whole: str, by: str, selector: str = RUN) -> str:
    """Return one rate over another by labels."""
    return (
        f"sum by ({by}) ({rate(part, selector)}) / "
        f"sum by ({by}) ({rate(whole, selector)})"
    )


PLANNED = f"chakram_iterations_planned{{{JOB}}}"
# A job in the background has no number of iterations: what it has done would stand
# beside what only the others are to do.
DONE_OF_PLANNED = (
    f"chakram_iterations_total{{{JOB}}} "
    f"and on (job, instance, run_id, chakram_job) {PLANNED}"
)
BUS_BANDWIDTH = quotient(
    "chakram_collective_bus_bytes_total",
    "chakram_collective_busy_seconds_total",
    "collective",
    COLLECTIVE,
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
LOST_SHARE = (
    f"sum by (cause, place) (chakram_lost_seconds{{{RUN}}}) / on () group_left () "
    f"sum(chakram_critical_path_seconds{{{RUN}}})"
)
