"""A real Prometheus scrapes a growing run, and every panel shows something."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from chakram.collectives.ops import CollectiveOp
from chakram.control.events import ShardLoad
from chakram.observe.exporter import MetricsServer, open_listener
from chakram.observe.metrics_state import MetricsState
from chakram.results.counters import (
    COUNTER_NAMES,
    TOTAL_SLOTS,
    fct_bucket,
    fct_slot,
    fct_sum_slot,
    slot,
)
from chakram.results.joining import CollectiveJoiner
from chakram.results.resolve import OperationTable, rank_records
from tests.prometheus import (
    annotation_queries,
    panel_queries,
    prometheus_missing,
    start_prometheus,
)
from tests.small_run import (
    ALL_REDUCE_NS,
    ALL_TO_ALL_NS,
    RANKS,
    small_plan,
    small_rows,
)
from tests.support import REPO_ROOT, require
from tests.waiting import PATIENCE_S

STEP_S = 0.02
SCRAPE_INTERVAL = "200ms"
WINDOW = "1s"
INFO = {
    "name": "quickstart",
    "case": "",
    "world": "namespaces",
    "congestion_control": "fixed_rate",
    "size_scale": "1",
    "dilation": "1",
}
BUS_BYTES = {"all_reduce": 2**20 * 1.5, "all_to_all": 2**18 / 2}


class GrowingRun:
    """A run that does one more iteration whenever it is told."""

    def __init__(self) -> None:
        self.state = MetricsState("r1", info=INFO)
        operations = OperationTable(small_plan())
        self._operations = operations
        self._joiner = CollectiveJoiner(operations, warmup=1)
        self._iteration = 0
        self._counters = [0] * TOTAL_SLOTS
        state = self.state
        state.set_plan(small_plan())
        state.set_start_time(1_700_000_000)
        state.set_end_time(1_700_000_100)
        state.set_state("running")
        state.set_clock("local", offset_ns=0, uncertainty_ns=1000)
        for source, factor in (("bound", 0.5), ("simulate", 0.8)):
            times_ns = {
                identity.key: int(factor * _TIMES_NS[identity.op])
                for identity in operations.identities
                if identity.op in _TIMES_NS
            }
            state.set_predictions(source, times_ns, operations.identities)

    def step(self) -> None:
        """Do one more iteration."""
        rows = small_rows(self._iteration, generator_wait_ns=10_000)
        self._iteration += 1
        self.state.add_collectives(self._joiner.add(rows))
        records = rank_records(rows.iterations, self._operations, warmup=1)
        self.state.add_ranks(records)
        for name in COUNTER_NAMES:
            self._counters[slot(name)] += 1000
        for op, fct_ns in _TIMES_NS.items():
            self._counters[fct_slot(op, fct_bucket(fct_ns))] += RANKS
            self._counters[fct_sum_slot(op)] += RANKS * fct_ns
        self.state.set_counters("local", list(self._counters))
        load = ShardLoad(
            shard=0,
            wall_ns=10**9,
            cpu_ns=10**9,
            max_lag_ns=10**6,
            rounds=100 * self._iteration,
            late_rounds=self._iteration,
        )
        self.state.set_loads("local", [load])
        nbytes = 10**6 * self._iteration
        self.state.set_link_bytes("leaf1-spine1", "up", nbytes)


_TIMES_NS = {
    CollectiveOp.ALL_REDUCE: ALL_REDUCE_NS,
    CollectiveOp.ALL_TO_ALL: ALL_TO_ALL_NS,
}


@contextmanager
def growing(run: GrowingRun) -> Iterator[None]:
    """Let *run* go on in the background, every ``STEP_S``."""
    done = threading.Event()

    def grow() -> None:
        while not done.wait(STEP_S):
            run.step()

    run.step()
    thread = threading.Thread(target=grow, name="growing")
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def value_of(series: list[dict[str, Any]], **labels: str) -> float:
    (found,) = (item for item in series if labels.items() <= item["metric"].items())
    return float(found["value"][1])


def test_every_panel_of_the_dashboard_shows_something(tmp_path: Path) -> None:
    require("prometheus", prometheus_missing())
    dashboard = json.loads(
        (REPO_ROOT / "dashboards/grafana/chakram-run.json").read_text(encoding="utf-8")
    )
    run = GrowingRun()
    with (
        MetricsServer(run.state, open_listener("127.0.0.1:0")) as server,
        growing(run),
        start_prometheus(
            tmp_path, [server.url.split("/")[2]], scrape_interval=SCRAPE_INTERVAL
        ) as prometheus,
    ):
        # Rates need a few scrapes.
        queries = panel_queries(dashboard) + annotation_queries(dashboard)
        found = prometheus.wait_for_all(
            [query.substituted(window=WINDOW) for query in queries],
            timeout_s=PATIENCE_S,
        )
        assert prometheus.label_values("run_id") == ["r1"]
        panels = {
            (query.panel, number): found[query.substituted(window=WINDOW)]
            for number, query in enumerate(panel_queries(dashboard))
        }
        (state,) = next(v for (panel, _), v in panels.items() if panel == "State")
        assert state["metric"] == {"state": "running"}
        busbw, predicted = (
            series
            for (panel, _), series in panels.items()
            if panel == "Bus bandwidth, measured and predicted"
        )
    for op, time_ns in _TIMES_NS.items():
        expected = BUS_BYTES[op] / (time_ns * 1e-9)
        assert value_of(busbw, collective=op) == pytest.approx(expected)
        for source, factor in (("bound", 0.5), ("simulate", 0.8)):
            model = value_of(predicted, collective=op, source=source)
            assert model == pytest.approx(expected / factor)
