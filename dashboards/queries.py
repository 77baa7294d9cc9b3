"""Prometheus selectors and expressions for the panels of the dashboards."""

from __future__ import annotations

RUN = 'job=~"$job", instance=~"$instance", run_id=~"$run_id"'
JOB = f'{RUN}, chakram_job=~"$chakram_job"'
COLLECTIVE = f'{RUN}, collective=~"$collective"'
WINDOW = "[$__rate_interval]"
IDENTITY = "job, instance, run_id, collective, message_size"


MOST = 12
"""Limit on the series of a panel that shows hosts or links."""


def rate(metric: str, selector: str = RUN) -> str:
    """Return an expression for the rate of a counter over the panel's window."""
    return f"rate({metric}{{{selector}}}{WINDOW})"


def sums(metric: str, by: str = "", selector: str = RUN) -> str:
    """Return an expression for the rate of a counter, summed by labels."""
    grouping = f" by ({by}) " if by else ""
    return f"sum{grouping}({rate(metric, selector)})"


def quantile(
    share: float, metric: str, by: str = "collective", selector: str = COLLECTIVE
) -> str:
    """Return an expression for a histogram's quantile, by collective or other label."""
    labels = f"{by}, le" if by else "le"
    return f"histogram_quantile({share}, {sums(f'{metric}_bucket', labels, selector)})"


def top(expression: str) -> str:
    """Return an expression for the ``MOST`` series with the largest values."""
    return f"topk({MOST}, {expression})"


def share(part: str, whole: str, by: str = "", selector: str = RUN) -> str:
    """Return an expression for the ratio of two rates, which is 0 without activity."""
    return f"{sums(part, by, selector)} / clamp_min({sums(whole, by, selector)}, 1)"


def final(metric: str, selector: str = RUN) -> str:
    """Return an expression for a gauge that a run may serve in its last scrape only.

    Without the window, a step of the graph finds such a value only by chance.
    """
    return f"last_over_time({metric}{{{selector}}}{WINDOW})"


def quotient(part: str, whole: str, by: str, selector: str) -> str:
    """Return an expression for the quotient of two rates, by labels."""
    return f"{sums(part, by, selector)} / {sums(whole, by, selector)}"


def bus_bandwidth(by: str) -> str:
    """Return an expression for the bus bandwidth of collectives, by a label."""
    part, whole = "collective_bus_bytes", "collective_busy_seconds"
    return quotient(f"chakram_{part}_total", f"chakram_{whole}_total", by, COLLECTIVE)


def mean(histogram: str, by: str, selector: str) -> str:
    """Return an expression for the mean of a histogram, by labels."""
    return quotient(f"{histogram}_sum", f"{histogram}_count", by, selector)


PLANNED = f"chakram_iterations_planned{{{JOB}}}"
# A background job has no planned number of iterations. Without this filter, its
# iterations would count as done, but not as planned.
DONE_OF_PLANNED = (
    f"chakram_iterations_total{{{JOB}}} "
    f"and on (job, instance, run_id, chakram_job) {PLANNED}"
)
PREDICTED = f"chakram_predicted_collective_duration_seconds{{{COLLECTIVE}}}"
# Bus bandwidth of the same mix of collectives, if each took the predicted duration.
PREDICTED_BUS_BANDWIDTH = (
    f"sum by (collective, source) (({PREDICTED} > bool 0) "
    f"* on ({IDENTITY}) group_left () "
    f"{rate('chakram_collective_bus_bytes_total', COLLECTIVE)}) / "
    f"sum by (collective, source) ({PREDICTED} * on ({IDENTITY}) group_left () "
    f"{rate('chakram_collectives_total', COLLECTIVE)})"
)
LOST_SHARE = (
    f"sum by (cause, place) ({final('chakram_lost_seconds')}) / on () group_left () "
    f"sum({final('chakram_critical_path_seconds')})"
)
