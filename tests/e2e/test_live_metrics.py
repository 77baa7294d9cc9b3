"""A real Prometheus scrapes a run while it goes, and the dashboard asks it."""

from __future__ import annotations

import json
import re
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

from chakram.observe.exporter import open_listener
from tests.e2e.processes import RunProcess
from tests.e2e.runs import moe, write_experiment
from tests.prometheus import (
    panel_queries,
    prometheus_missing,
    start_prometheus,
)
from tests.support import REPO_ROOT, require
from tests.waiting import PATIENCE_S, wait_until

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
        predict=["bound", "simulate"],
    )
    with open_listener("127.0.0.1:0") as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    # Its first scrape takes seconds to come: the run begins meanwhile.
    with (
        start_prometheus(tmp_path, [address], scrape_interval="250ms") as prometheus,
        RunProcess(experiment, "--metrics", address) as going,
    ):
        going.wait_for_records()
        # Rates need a few scrapes with news in them.
        for dashboard in DASHBOARDS:
            document = json.loads(dashboard.read_text(encoding="utf-8"))
            queries = panel_queries(document)
            assert queries
            prometheus.wait_for_all(
                [query.substituted() for query in queries], timeout_s=PATIENCE_S
            )
        (state,) = prometheus.query("chakram_run_state == 1")
        assert state["metric"]["state"] == "running"
        (run_id,) = prometheus.label_values("run_id")
        assert going.process.poll() is None
    (directory,) = going.runs.iterdir()
    manifest = json.loads((directory / "run.json").read_text(encoding="utf-8"))
    assert manifest["run_id"] == run_id


def test_queue_pairs_and_ports_are_pages_of_the_run(tmp_path: Path) -> None:
    """The agent is one that the run has started: nobody can ask it."""
    experiment = write_experiment(
        tmp_path,
        [moe(4)],
        {"kind": "loopback", "rate": "50Mbit"},
        iterations={"warmup": 0, "measured": 1_000_000},
    )
    with RunProcess(experiment, "--metrics", "127.0.0.1:0") as going:
        going.wait_for_records()
        address = METRICS.search(going.errors)
        assert address is not None, going.errors

        def page(name: str) -> dict[str, Any]:
            url = f"http://{address[1]}/{name}"
            with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
                found: dict[str, Any] = json.load(answer)
            return found

        def moving() -> bool:
            rows = page("queue-pairs")["queue_pairs"]
            return any(
                row["data_tx_rate"] and row["data_rx_rate"] for row in rows
            ) and all(
                port["payload_tx_bytes"] and port["data_frames_rx"]
                for port in page("ports")["ports"]
            )

        wait_until(moving, "rates of queue pairs")
        queue_pairs, ports = page("queue-pairs"), page("ports")
        again = page("ports")
    rows = queue_pairs["queue_pairs"]
    assert queue_pairs["total"] == len(rows) >= 4
    names = {row["port_tx"] for row in rows}
    assert names == {row["port_rx"] for row in rows}
    assert len(names) == ports["total"] == len(ports["ports"]) == 4
    ends = {(row["src_ipv4"], row["src_qp"]): row for row in rows}
    assert len(ends) == len(rows)
    for row in rows:
        peer = ends.get((row["dest_ipv4"], row["dest_qp"]))
        assert peer is None or peer["dest_qp"] == row["src_qp"]
        assert row["flow_name"].startswith("moe/")
    for port, later in zip(ports["ports"], again["ports"], strict=True):
        assert 0 < port["payload_tx_bytes"] <= later["payload_tx_bytes"]
        assert 0 < port["data_frames_rx"] <= later["data_frames_rx"]
