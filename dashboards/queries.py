"""What the panels of the dashboard ask Prometheus: selectors and expressions."""

from __future__ import annotations

RUN = 'instance=~"$instance", run_id=~"$run_id"'
JOB = f'{RUN}, chakram_job=~"$chakram_job"'
COLLECTIVE = f'{RUN}, collective=~"$collective"'
WINDOW = "[$__rate_interval]"
IDENTITY = "instance, run_id, collective, message_size"


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


PLANNED = f"chakram_iterations_planned{{{JOB}}}"
# A job in the background has no number of iterations: what it has done would stand
# beside what only the others are to do.
DONE_OF_PLANNED = (
    f"chakram_iterations_total{{{JOB}}} "
    f"and on (instance, run_id, chakram_job) {PLANNED}"
)
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
