"""Check that all queries have an answer, on a Prometheus that has scraped a run."""

from __future__ import annotations

import json
import math
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dashboards.fabric_counters import PROVIDED

if TYPE_CHECKING:
    from dashboards.query_files import Query

LOOK_BACK = "1d"
"""Longest time since the end of the run to check."""

_STEPS = 1000
"""Limit on the number of times for which a query runs. Prometheus allows 11,000."""

_MODEL = "namespaces, switch: model"

PRECONDITIONS = {
    "chakram_predicted_collective_duration_seconds": "`predict` in the experiment",
    "chakram_lost_seconds": "a run that has ended, with at most 200,000 messages",
    "chakram_critical_path_seconds": (
        "a run that has ended, with at most 200,000 messages"
    ),
    "chakram_run_end_time_seconds": "a run that has ended",
}
"""What a run needs to have a metric, independent of its fabric."""

Ask = Callable[..., list[dict[str, Any]]]
"""Function that returns the result of an API call, given a path and parameters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """A run whose metrics are in a Prometheus.

    Attributes:
        run_id: ID of the run.
        fabric: Fabric type, a key of ``PROVIDED``. None for a simulation.
        start_s: Time of the first sample, as Unix time.
        end_s: Time of the last sample, as Unix time.
    """

    run_id: str
    fabric: str | None
    start_s: float
    end_s: float


def latest_run(ask: Ask) -> Observed | None:
    """Return the run with the latest sample, or None if there is no run."""
    found = ask("query", query=f"chakram_run_info[{LOOK_BACK}]")
    if not found:
        return None
    latest = max(found, key=lambda series: series["values"][-1][0])
    run_id, world = latest["metric"]["run_id"], latest["metric"]["world"]
    switches = f'chakram_switch_cpu_seconds_total{{run_id="{run_id}"}}[{LOOK_BACK}]'
    if world == "namespaces" and ask("query", query=switches):
        world = _MODEL
    return Observed(
        run_id=run_id,
        fabric=world if world in PROVIDED else None,
        start_s=float(latest["values"][0][0]),
        end_s=float(latest["values"][-1][0]),
    )


def check_live(queries: Iterable[Query], ask: Ask) -> Iterator[str]:
    """Yield the queries that should have an answer for the latest run, but have none.

    The check skips queries that need more than the fabric of the run provides.

    Args:
        queries: All queries.
        ask: Function that calls the API of the Prometheus.
    """
    run = latest_run(ask)
    if run is None:
        yield f"no run of the last {LOOK_BACK} on this Prometheus"
        return
    if run.fabric is None:
        yield f"run {run.run_id} is a simulation, which has no fabric to check"
        return
    has = PROVIDED[run.fabric]
    variables = {"run_id": run.run_id, "run_a": run.run_id, "run_b": run.run_id}
    for query in queries:
        expr = query.measured(variables, window="1m")
        if query.needs <= has and not is_answered(expr, run, ask):
            reasons = {text for name, text in PRECONDITIONS.items() if name in expr}
            hint = f" (needs {' and '.join(sorted(reasons))})" if reasons else ""
            yield f"{query.where}: no data for {expr}{hint}"


def is_answered(expr: str, run: Observed, ask: Ask) -> bool:
    """Return whether a query has a result for at least one time of a run."""
    step_s = max(0.25, math.ceil((run.end_s - run.start_s) / _STEPS))
    # Some values exist only in the last sample, so a step must end at its time.
    start_s = run.end_s - step_s * math.floor((run.end_s - run.start_s) / step_s)
    times = {"start": f"{start_s:.3f}", "end": f"{run.end_s:.3f}"}
    return bool(ask("query_range", query=expr, step=f"{step_s:g}", **times))


def api_of(url: str) -> Ask:
    """Return a function that calls the API of the Prometheus at *url*."""

    def ask(path: str, **parameters: str) -> list[dict[str, Any]]:
        encoded = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"{url}/api/v1/{path}?{encoded}") as answer:
            result: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        return result

    return ask
