"""A real Prometheus scrapes a run while it goes, and the dashboard asks it."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from chakram.testing.prometheus import (
    panel_queries,
    prometheus_missing,
    start_prometheus,
)
from tests.e2e.processes import RunProcess
from tests.e2e.runs import moe, write_experiment
from tests.support import REPO_ROOT, require
from tests.waiting import PATIENCE_S

if TYPE_CHECKING:
    from pathlib import Path

DASHBOARDS = sorted((REPO_ROOT / "dashboards/grafana").glob("*.json"))

METRICS = re.compile(r"metrics: http://(127\.0\.0\.1:\d+)/")


@pytest.mark.usefixtures("netns")
def test_every_panel_is_answered_while_the_run_goes(tmp_path: Path) -> None:
    require("prometheus", prometheus_missing())
    assert DASHBOARDS
    experiment = write_experiment(
        tmp_path,
        [moe(8)],
        {
            "kind": "namespaces",
            "topology": {"clos": {"leaves": 2, "spines": 2, "hosts_per_leaf": 4}},
            "links": {"host": {"rate": "50Mbit"}, "uplink": {"rate": "100Mbit"}},
        },
        iterations={"warmup": 0, "measured": 1_000_000},
        predict=["ideal", "simulate"],
    )
    with RunProcess(experiment, "--metrics", "127.0.0.1:0") as going:
        going.wait_for_records()
        address = METRICS.search(going.errors)
        assert address is not None, going.errors
        with start_prometheus(
            tmp_path, [address[1]], scrape_interval="250ms"
        ) as prometheus:
            # Rates need a few scrapes with news in them; this one stands for all.
            prometheus.wait_for(
                "changes(chakram_collectives_total[1m]) > 3", timeout_s=PATIENCE_S
            )
            for dashboard in DASHBOARDS:
                document = json.loads(dashboard.read_text(encoding="utf-8"))
                queries = panel_queries(document)
                assert queries
                silent = [
                    f"{query.panel}: {query.expr}"
                    for query in queries
                    if not prometheus.query(query.substituted())
                ]
                assert silent == []
            (state,) = prometheus.query("chakram_run_state == 1")
            assert state["metric"]["state"] == "running"
            (run_id,) = prometheus.label_values("run_id")
        assert going.process.poll() is None
    (directory,) = going.runs.iterdir()
    manifest = json.loads((directory / "run.json").read_text(encoding="utf-8"))
    assert manifest["run_id"] == run_id
